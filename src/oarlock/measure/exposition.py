"""The page that Prometheus reads, kept up to date by rewriting only the lines whose value changed.

Lines of one name stand together, as the format wants them: a `Column` holds them, one or more for each subject. The
page is made once a sample and handed out as it is, however often it is asked for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oarlock.measure.batch import AGENT, CGROUP, JOB, NODE, Batch, Subject
from oarlock.measure.names import Family
from oarlock.measure.naming import Naming, Output
from oarlock.measure.owners import Owner
from oarlock.model.sample import MetricKind
from oarlock.node.discovery import Key
from oarlock.node.sources.metrics import series, split

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JOB_INFO = "oarlock_node_job_info"
_MOST_REMEMBERED = 20_000  # users choose the names of executables, so there are series without end
_JOB_INFO_HELP = "A job that is on the node now; always 1."


@dataclass(frozen=True, slots=True)
class Page:
    """A page and the instant (epoch seconds) of its sample. Chunks are shared with the pages before and after."""

    at: float
    chunks: Sequence[bytes]


class Column:
    """All lines of one name. `slot` is a subject's number, with the series where it has several."""

    __slots__ = ("changed", "chunk", "head", "lines")

    def __init__(self, name: str, kind: MetricKind, about: str) -> None:
        text = about.replace("\\", "\\\\").replace("\n", "\\n")
        self.head = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        self.lines: dict[int | tuple[int, str], str] = {}
        self.chunk = b""
        self.changed = False

    def put(self, slot: int | tuple[int, str], line: str) -> None:
        """Write or replace a line."""
        self.lines[slot] = line
        self.changed = True

    def drop(self, slot: int | tuple[int, str]) -> None:
        """Remove a line, if it is there."""
        if self.lines.pop(slot, None) is not None:
            self.changed = True

    def written(self) -> bytes:
        """Give the column as text; nothing when it has no line."""
        if self.changed:
            self.chunk = f"{self.head}{''.join(self.lines.values())}".encode() if self.lines else b""
            self.changed = False
        return self.chunk


class _Line:
    """How one output is written: `start`, then the subject's labels, then the value."""

    __slots__ = ("column", "many", "output", "start", "times", "whole", "whose")

    def __init__(self, output: Output, column: Column, whose: int) -> None:
        self.output, self.column, self.whose = output, column, whose
        self.start = f"{output.name.name}{{{output.own},".replace("{,", "{")
        self.times, self.whole = output.name.times, output.name.whole
        self.many = bool(output.own)


class _Known:
    """A subject whose lines stand on the page. `tails` are its labels for each family."""

    __slots__ = ("at", "number", "owner", "scope", "tails", "values")

    def __init__(self, number: int, subject: Subject, tails: Sequence[str], at: float) -> None:
        self.number, self.scope, self.owner, self.tails = number, subject.scope, subject.owner, tails
        self.values: Mapping[str, float] = {}
        self.at = at


class Exposition:
    """Keep the page of the families that are switched on. `constant` are labels of every line."""

    def __init__(self, naming: Naming, constant: Mapping[str, str] | None = None) -> None:
        self._naming = naming
        self._constant = split(series("", **(constant or {})))[1]
        self._whose = {family.name: at for at, family in enumerate(naming.families)}
        self._columns: dict[str, Column] = {}
        self._info = Column(JOB_INFO, MetricKind.GAUGE, _JOB_INFO_HELP)
        self._lines: dict[tuple[str, str], tuple[tuple[_Line, ...], tuple[_Line, ...]]] = {}
        self._moving = any(
            name.form != "value" for f in naming.families for names in f.names.values() for name in names
        )
        self._known: dict[Key, _Known] = {}
        self._numbers = 0
        self._scalars: dict[str, Mapping[str, float]] = {NODE: {}, AGENT: {}}
        self.page: Page | None = None

    def take(self, batch: Batch) -> None:
        """Bring the page up to a new sample."""
        present = {subject.key for subject in batch.subjects}
        for key in [key for key in self._known if key not in present]:
            self._forget(key)
        for subject in batch.subjects:
            self._write(subject, batch.at)
        for scope, values in ((NODE, batch.node), (AGENT, batch.agent)):
            self._write_scalars(scope, values)
        chunks = [column.written() for column in (self._info, *self._columns.values())]
        self.page = Page(batch.at, [chunk for chunk in chunks if chunk])

    def series(self) -> int:
        """Count the lines that carry a value."""
        return sum(len(column.lines) for column in (self._info, *self._columns.values()))

    def _write(self, subject: Subject, at: float) -> None:
        known = self._known.get(subject.key)
        if known is None or known.owner is not subject.owner or known.scope != subject.scope:
            self._forget(subject.key)
            known = self._meet(subject, at)
        before, now = known.values, subject.values
        if self._moving:
            self._write_moving(known, before, now, at)
        if before is not now:
            self._write_steady(known, before, now)
            known.values = now
        known.at = at

    def _write_steady(self, known: _Known, before: Mapping[str, float], now: Mapping[str, float]) -> None:
        """Write what changed. This runs for every value of every job: it is spelled out rather than divided."""
        number, tails, scope = known.number, known.tails, known.scope
        plans, get = self._lines, before.get
        for name, value in now.items():
            if get(name) == value:
                continue
            plan = plans.get((scope, name)) or self._plan(scope, name)
            for line in plan[0]:
                told = value if line.times == 1 else value * line.times
                if line.whole:
                    told = round(told)
                column = line.column
                column.lines[(number, name) if line.many else number] = f"{line.start}{tails[line.whose]}{told}\n"
                column.changed = True
        if not before.keys() <= now.keys():
            self._drop(known, before.keys() - now.keys())

    def _write_moving(self, known: _Known, before: Mapping[str, float], now: Mapping[str, float], at: float) -> None:
        seconds = at - known.at
        for name, value in now.items():
            for line in (self._lines.get((known.scope, name)) or self._plan(known.scope, name))[1]:
                told = line.output.moved(before.get(name), value, seconds)
                slot = (known.number, name) if line.many else known.number
                if told is None:
                    line.column.drop(slot)
                else:
                    line.column.put(slot, f"{line.start}{known.tails[line.whose]}{told}\n")

    def _meet(self, subject: Subject, at: float) -> _Known:
        self._numbers += 1
        tails = [tail(family, subject, self._constant) for family in self._naming.families]
        known = self._known[subject.key] = _Known(self._numbers, subject, tails, at)
        if subject.scope == JOB:
            self._info.put(known.number, f"{JOB_INFO}{{{info(subject.owner, self._constant)}}} 1\n")
        return known

    def _forget(self, key: Key) -> None:
        known = self._known.pop(key, None)
        if known:
            self._info.drop(known.number)
            self._drop(known, known.values)

    def _drop(self, known: _Known, names: Iterable[str]) -> None:
        for name in names:
            steady, moving = self._lines.get((known.scope, name)) or self._plan(known.scope, name)
            for line in (*steady, *moving):
                line.column.drop((known.number, name) if line.many else known.number)

    def _write_scalars(self, scope: str, values: Mapping[str, float]) -> None:
        before = self._scalars[scope]
        for name, value in values.items():
            if before.get(name) != value:
                for line in self._plan(scope, name)[0]:
                    labels = ",".join(part for part in (line.output.own, self._constant) if part)
                    told = f"{line.output.name.name}{{{labels}}}" if labels else line.output.name.name
                    line.column.put((0, name), f"{told} {line.output.value(value)}\n")
        for name in before.keys() - values.keys():
            for line in self._plan(scope, name)[0]:
                line.column.drop((0, name))
        self._scalars[scope] = dict(values)

    def _plan(self, scope: str, name: str) -> tuple[tuple[_Line, ...], tuple[_Line, ...]]:
        """Give the lines of a series: those that a changed value alone brings about, and those that need the last."""
        plan = self._lines.get((scope, name))
        if plan is None:
            if len(self._lines) >= _MOST_REMEMBERED:
                self._lines.clear()
            lines = [self._line(output) for output in self._naming.outputs(scope, name)]
            steady = tuple(line for line in lines if not line.output.moves)
            plan = self._lines[scope, name] = (steady, tuple(line for line in lines if line.output.moves))
        return plan

    def _line(self, output: Output) -> _Line:
        name = output.name
        column = self._columns.get(name.name)
        if column is None:
            column = self._columns[name.name] = Column(name.name, name.kind, name.help)
        return _Line(output, column, self._whose[output.family.name])


def tail(family: Family, subject: Subject, constant: str) -> str:
    """Write the labels that say whose a line is, its closing brace, and the space before the value."""
    told = labels(family, subject)
    return f"{_labels(**told)}{constant and ','}{constant}}} "


def labels(family: Family, subject: Subject) -> dict[str, str]:
    """Give the labels that say whose a measurement is; `node` only where several nodes share a machine."""
    owner = subject.owner
    if subject.scope != JOB:
        return {"cgroup": owner.job if owner.manager == CGROUP else f"{owner.manager}/{owner.job}"}
    told = {label: str(getattr(owner, said)) for label, said in family.labels.items()}
    return {**told, "node": owner.node} if owner.node else told


def info(owner: Owner, constant: str) -> str:
    """Write all that is known of a job as labels."""
    told = _labels(
        job_id=owner.job,
        user=owner.user,
        account=owner.account,
        name=owner.name,
        manager=owner.manager,
        node=owner.node,
    )
    return f"{told}{constant and ','}{constant}"


def _labels(**told: str) -> str:
    return split(series("", **told))[1]
