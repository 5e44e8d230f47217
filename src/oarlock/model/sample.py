"""Kinds of metrics."""

from enum import StrEnum


class MetricKind(StrEnum):
    """A counter only grows (a rate is its derivative); a gauge is what it is now."""

    COUNTER = "counter"
    GAUGE = "gauge"
