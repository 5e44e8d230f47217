"""One attempt on a node: its supervisor, the user's command, and what surrounds it."""
