"""What measurements mean: findings, efficiency, reports. It reads summaries through `store`, never a curve."""
