"""The user's side of shells in jobs: opened, passed through, and the terminal that they have."""
