"""Verbs about jobs: submit them, show them, act on them."""
