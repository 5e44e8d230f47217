"""Placeholders: jobs that keep resources for others, who say so; to everybody else they are jobs like any."""

from collections.abc import Iterable


def placeholder_of(types: Iterable[str]) -> str | None:
    """Give the name under which a job keeps its resources for others; None if it does not."""
    return next((one.partition("=")[2] for one in types if one.startswith("placeholder=")), None)


def allowed_placeholder(types: Iterable[str]) -> str | None:
    """Give the name of the placeholders that are not in a job's way (`allow=NAME`, and OAR's `allowed=NAME`)."""
    return next((one.partition("=")[2] for one in types if one.startswith(("allow=", "allowed="))), None)
