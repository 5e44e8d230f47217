"""Shells and commands of users in their jobs: who may have them, and the bytes between their clients and the nodes."""
