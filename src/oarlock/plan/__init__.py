"""Snapshot + now → Plan: arithmetic on sets of resources. See README.md in this folder."""
