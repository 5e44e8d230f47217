"""From a reading to measurements under the names of every family that is switched on."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.measure.names import MetricName, NameFamily
from oarlock.node.sources.probe import series as written
from oarlock.node.sources.probe import split

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PERCENT = 100
_MOST_REMEMBERED = 20_000
"""Series whose outputs are remembered; users choose the names of executables, so they are without end."""


class OutputSeries(NamedTuple):
    """What one of our series becomes in one family. `own` are its labels other than the owner's."""

    family: NameFamily
    name: MetricName
    own: str

    @property
    def key(self) -> str:
        """Return the series as a text, without the owner's labels."""
        return f"{self.name.name}{{{self.own}}}" if self.own else self.name.name

    @property
    def moves(self) -> bool:
        """Return whether the value needs the previous sample."""
        return self.name.form != "value"

    def value(self, now: float) -> float:
        """Return a value in the unit of this name."""
        return round(now * self.name.times) if self.name.whole else now * self.name.times

    def moved(self, before: float | None, now: float, seconds: float) -> float | None:
        """Return the growth since the previous sample, or its share of the time passed; None when that is not known."""
        grown = None if before is None else growth(self.value(before), self.value(now))
        if grown is None or self.name.form == "delta":
            return grown
        return percent(grown, seconds) if seconds > 0 else None


def growth(before: float | None, now: float, largest: int | None = None) -> float | None:
    """Return the growth of a counter; None for its first value, and when it was reset.

    With `largest` known, a counter that fell has turned over instead.
    """
    if before is None:
        return None
    if now >= before:
        return now - before
    return None if largest is None else largest - before + now + 1


def percent(part: float, whole: float) -> float:
    """Return a share in percent: CPU time of one core that was busy all the time is 100."""
    return part * _PERCENT / whole


class Naming:
    """The families that are switched on."""

    def __init__(self, families: Sequence[NameFamily]) -> None:
        self.families = families
        self._names: dict[tuple[str, str], list[tuple[NameFamily, MetricName]]] = {}
        for family in families:
            for scope, names in family.names.items():
                for name in names:
                    self._names.setdefault((scope, name.metric), []).append((family, name))
        self._outputs: dict[tuple[str, str], tuple[OutputSeries, ...]] = {}

    def outputs(self, scope: str, series: str) -> tuple[OutputSeries, ...]:
        """Return what a series of a scope (`job`, `cgroup`, `node`, `agent`) becomes."""
        series_list = self._outputs.get((scope, series))
        if series_list is None:
            if len(self._outputs) >= _MOST_REMEMBERED:
                self._outputs.clear()
            metric, labels = split(series)
            named = self._names.get((scope, metric), ())
            series_list = tuple(_output(family, name, labels) for family, name in named if _applies(name, labels))
            self._outputs[scope, series] = series_list
        return series_list

    def measurements(
        self, scope: str, values: Mapping[str, float], before: Mapping[str, float], seconds: float
    ) -> Iterator[tuple[OutputSeries, float]]:
        """Yield every value under every name; `before` are the values `seconds` ago."""
        for series, value in values.items():
            for output in self.outputs(scope, series):
                shown = output.moved(before.get(series), value, seconds) if output.moves else output.value(value)
                if shown is not None:
                    yield output, shown


def _applies(name: MetricName, labels: str) -> bool:
    return not name.where or name.where.items() <= dict(pairs(labels)).items()


def _output(family: NameFamily, name: MetricName, labels: str) -> OutputSeries:
    if name.rename or name.drop:
        pairs = [
            (name.rename.get(label, label), text) for label, text in _LABEL.findall(labels) if label not in name.drop
        ]
        labels = ",".join(f'{label}="{text}"' for label, text in pairs)
    added = split(written("", **name.add))[1]
    return OutputSeries(family, name, ",".join(part for part in (labels, added) if part))


def pairs(own: str) -> Iterable[tuple[str, str]]:
    """Parse labels into pairs, with escapes undone."""
    return [(label, _unescaped(text)) for label, text in _LABEL.findall(own)]


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], text)
