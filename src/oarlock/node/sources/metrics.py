"""How a reading is called: the metric's name alone, or with labels in Prometheus' own writing.

`core_cpu_seconds_total{core="3"}` is such a series. What each metric means stands in `measure/metrics.toml`.
"""

from __future__ import annotations


def series(name: str, /, **labels: str) -> str:
    """Return the key of a reading. Labels keep the order in which they are passed."""
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{inside}}}" if inside else name


def split(key: str) -> tuple[str, str]:
    """Cut a series into its name and its labels as they are written, without braces."""
    name, _, inside = key.partition("{")
    return name, inside[:-1]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
