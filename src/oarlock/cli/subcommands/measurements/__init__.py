"""Subcommands about what was measured: samples, findings, reports, energy, the archive."""
