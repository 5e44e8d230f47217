"""Verbs about measurements and what they mean: samples, use, findings, reports, energy."""
