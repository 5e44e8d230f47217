"""Subcommands about an instance: set it up, look after it, show it off, try other policies on its past."""
