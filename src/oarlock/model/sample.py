"""A sample: what was measured of a job or a node at one instant."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MetricKind(StrEnum):
    """A counter only grows (a rate is its derivative); a gauge is what it is now."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is measured. The unit is part of the name and is a base unit (seconds, bytes, joules)."""

    name: str
    kind: MetricKind
    unit: str
    help: str


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one subject at one instant. A value that could not be read is absent, never zero."""

    node: str
    at: float  # epoch seconds; samples may be closer than a second
    job: int | None  # None: the node as a whole
    values: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)
