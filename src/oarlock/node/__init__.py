"""What runs on a compute node: standard library only, Python 3.9 or newer, travels over ssh."""
