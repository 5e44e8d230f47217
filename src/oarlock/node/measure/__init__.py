"""Measuring on a node: which jobs there are, and a sample of each."""
