"""Sets of resources: integers, their layout, and which resources a condition names."""
