"""The scheduler: its snapshot, its plans and its predictions."""
