"""Subcommands about nodes: what they are made of, what runs on them, what is measured there."""
