"""How commands lay out what they print."""
