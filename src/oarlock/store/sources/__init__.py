"""Databases of other resource managers, read and never written."""
