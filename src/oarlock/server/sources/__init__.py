"""Clusters that others run: their sources are followed, and a portal shows the copy."""
