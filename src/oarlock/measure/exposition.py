"""The page that Prometheus reads, kept up to date by writing only those series anew of which a value changed.

A `_Part` is one of our series (`memory_usage_bytes`, `core_cpu_seconds_total{core="3"}`) over all jobs; each of its
lines of text is made of what all jobs share, the labels of a job, and its value. Parts of one name stand together, as
the format wants it. The page is made once a sample and handed out as it is, however often it is asked for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.measure.batch import AGENT, CGROUP, JOB, NODE, JobOwner, MeasuredSubject, SampleBatch
from oarlock.measure.metrics import MetricKind
from oarlock.measure.names import NameFamily
from oarlock.measure.naming import Naming, OutputSeries
from oarlock.node.measure.discovery import Key
from oarlock.node.sources.probe import series, split

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JOB_INFO = "oarlock_node_job_info"
_JOB_INFO_HELP = "A job that is on the node now; always 1."
_NOBODY = JobOwner("")


class MetricsPage(NamedTuple):
    """A page in pieces, the instant (epoch seconds) of its sample, and how many series it holds."""

    at: float
    pieces: Sequence[bytes]
    series: int


class _SubjectState:
    """A subject whose lines stand on the page. `tails` are its labels for each family."""

    __slots__ = ("at", "before", "number", "owner", "scope", "seconds", "tails", "values")

    def __init__(self, number: int, scope: str, owner: JobOwner, tails: Sequence[str]) -> None:
        self.number, self.scope, self.owner, self.tails = number, scope, owner, tails
        self.values: Mapping[str, float] = {}
        self.before: Mapping[str, float] = {}
        self.at = self.seconds = 0.0


class _Line:
    """How a part is written under one name."""

    __slots__ = ("family_index", "moves", "output", "start", "text", "times", "whole")

    def __init__(self, output: OutputSeries, start: str, family_index: int) -> None:
        self.output, self.start, self.family_index = output, start, family_index
        self.times, self.whole, self.moves = output.name.times, output.name.whole, output.moves
        self.text = b""

    def write(self, name: str, members: Sequence[_SubjectState]) -> None:
        """Write it for these subjects, which all have the series."""
        start, family_index = self.start, self.family_index
        if self.moves:
            text = "".join(self._moving(name, members))
        elif self.whole:
            times = self.times
            text = "".join(
                [f"{start}{subject.tails[family_index]}{round(subject.values[name] * times)}\n" for subject in members]
            )
        elif self.times != 1:
            times = self.times
            text = "".join(
                [f"{start}{subject.tails[family_index]}{subject.values[name] * times}\n" for subject in members]
            )
        else:
            text = "".join([f"{start}{subject.tails[family_index]}{subject.values[name]}\n" for subject in members])
        self.text = text.encode()

    def _moving(self, name: str, members: Sequence[_SubjectState]) -> Iterator[str]:
        for subject in members:
            value = self.output.moved(subject.before.get(name), subject.values[name], subject.seconds)
            if value is not None:
                yield f"{self.start}{subject.tails[self.family_index]}{value}\n"


class _Part:
    """One series over the subjects that have it. What nearly all jobs have is asked of all: no list is kept of it."""

    __slots__ = ("changed", "lines", "members", "moves", "name", "size")

    def __init__(self, name: str, lines: Sequence[_Line]) -> None:
        self.name, self.lines = name, lines
        self.members: dict[int, _SubjectState] | None = {} if "{" in name else None
        self.moves = any(line.moves for line in lines)
        self.changed = True
        self.size = 0

    def write(self, subjects: Mapping[Key, _SubjectState]) -> None:
        """Write all lines anew."""
        name = self.name
        if self.members is None:
            members = [subject for subject in subjects.values() if name in subject.values]
        else:
            members = list(self.members.values())
        for line in self.lines:
            line.write(name, members)
        self.size = len(members)
        self.changed = False


class _Column:
    """All that stands under one name."""

    __slots__ = ("head", "lines")

    def __init__(self, name: str, kind: MetricKind, about: str) -> None:
        text = about.replace("\\", "\\\\").replace("\n", "\\n")
        self.head = f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()
        self.lines: dict[_Line, None] = {}

    def pieces(self) -> list[bytes]:
        """Return the column as text; nothing when it has no line."""
        texts = [line.text for line in self.lines if line.text]
        return [self.head, *texts] if texts else []


class _Scope:
    """The subjects of one scope and their parts."""

    def __init__(self) -> None:
        self.subjects: dict[Key, _SubjectState] = {}
        self.parts: dict[str, _Part] = {}


class Exposition:
    """Keep the page of the families that are switched on. `constant` are labels of every line."""

    def __init__(self, naming: Naming, constant: Mapping[str, str] | None = None) -> None:
        self._naming = naming
        self._constant = split(series("", **(constant or {})))[1]
        self._moves = any(
            name.form != "value" for family in naming.families for rows in family.names.values() for name in rows
        )
        self._columns: dict[str, _Column] = {}
        self._scopes = {scope: _Scope() for scope in (JOB, CGROUP, NODE, AGENT)}
        self._info: dict[int, bytes] = {}
        self._numbers = 0
        self.page: MetricsPage | None = None

    def take(self, batch: SampleBatch) -> MetricsPage:
        """Update the page with a new sample, and return it."""
        subjects = [*batch.subjects, *_scalars(batch)]
        present = {(subject.scope, subject.key) for subject in subjects}
        for name, scope in self._scopes.items():
            for key in [key for key in scope.subjects if (name, key) not in present]:
                self._forget(scope, key)
        for subject in subjects:
            self._note(self._scopes[subject.scope], subject, batch.at)
        for scope in self._scopes.values():
            self._write(scope)
        self.page = self._page(batch.at)
        return self.page

    def _note(self, scope: _Scope, subject: MeasuredSubject, at: float) -> None:
        """Remember a subject's values, and mark what changed."""
        state = scope.subjects.get(subject.key)
        if state is None or (state.owner is not subject.owner and state.owner != subject.owner):
            self._forget(scope, subject.key)
            state = self._add_subject(scope, subject)
        before, now = state.values, subject.values
        state.values = now
        if self._moves:
            state.before = before
        state.seconds, state.at = at - state.at, at
        if before is not now:
            self._mark(scope, state, before, now)

    def _mark(self, scope: _Scope, state: _SubjectState, before: Mapping[str, float], now: Mapping[str, float]) -> None:
        parts, was = scope.parts, before.get
        for name, value in now.items():
            if was(name) != value:
                part = parts.get(name) or self._new_part(scope, state.scope, name)
                part.changed = True
                if part.members is not None:
                    part.members[state.number] = state
        if not before.keys() <= now.keys():
            self._unmark(scope, state, before.keys() - now.keys())

    def _unmark(self, scope: _Scope, state: _SubjectState, names: Sequence[str] | set[str]) -> None:
        for name in names:
            part = scope.parts[name]
            part.changed = True
            if part.members is not None:
                part.members.pop(state.number, None)

    def _write(self, scope: _Scope) -> None:
        for part in list(scope.parts.values()):
            if part.changed or part.moves:
                part.write(scope.subjects)
                if not part.size:
                    self._drop_part(scope, part)

    def _page(self, at: float) -> MetricsPage:
        pieces = []
        if self._info:
            head = _Column(JOB_INFO, MetricKind.GAUGE, _JOB_INFO_HELP).head
            pieces += [head, *self._info.values()]
        for column in self._columns.values():
            pieces += column.pieces()
        parts = [part for scope in self._scopes.values() for part in scope.parts.values()]
        return MetricsPage(at, pieces, len(self._info) + sum(part.size * len(part.lines) for part in parts))

    def _add_subject(self, scope: _Scope, subject: MeasuredSubject) -> _SubjectState:
        self._numbers += 1
        scalar = subject.scope in {NODE, AGENT}
        tails = [] if scalar else [label_tail(family, subject, self._constant) for family in self._naming.families]
        state = _SubjectState(self._numbers, subject.scope, subject.owner, tails or [""] * len(self._naming.families))
        scope.subjects[subject.key] = state
        if subject.scope == JOB:
            self._info[state.number] = f"{JOB_INFO}{{{info_labels(subject.owner, self._constant)}}} 1\n".encode()
        return state

    def _forget(self, scope: _Scope, key: Key) -> None:
        state = scope.subjects.pop(key, None)
        if state:
            self._info.pop(state.number, None)
            self._unmark(scope, state, list(state.values))

    def _new_part(self, scope: _Scope, called: str, name: str) -> _Part:
        lines = []
        family_index = {family.name: at for at, family in enumerate(self._naming.families)}
        for output in self._naming.outputs(called, name):
            column = self._columns.get(output.name.name)
            if column is None:
                column = _Column(output.name.name, output.name.kind, output.name.help)
                self._columns[output.name.name] = column
            line = _Line(output, self._start(output, called), family_index[output.family.name])
            column.lines[line] = None
            lines.append(line)
        part = scope.parts[name] = _Part(name, lines)
        return part

    def _drop_part(self, scope: _Scope, part: _Part) -> None:
        del scope.parts[part.name]
        for line in part.lines:
            self._columns[line.output.name.name].lines.pop(line)

    def _start(self, output: OutputSeries, scope: str) -> str:
        """Return what comes before a subject's labels; for the node, which has none, all up to the value."""
        if scope in {JOB, CGROUP}:
            return f"{output.name.name}{{{output.own}{output.own and ','}"
        labels = ",".join(part for part in (output.own, self._constant) if part)
        return f"{output.name.name}{{{labels}}} " if labels else f"{output.name.name} "


def merge_pages(pages: Iterable[Exposition]) -> list[bytes]:
    """Merge the pages of several nodes: Prometheus wants all series of a name together."""
    infos: list[bytes] = []
    columns: dict[str, list[bytes]] = {}
    for page in pages:
        infos += page._info.values()
        for name, column in page._columns.items():
            pieces = column.pieces()
            if pieces:
                columns.setdefault(name, pieces[:1]).extend(pieces[1:])
    about = [_Column(JOB_INFO, MetricKind.GAUGE, _JOB_INFO_HELP).head] if infos else []
    return [*about, *infos, *(piece for pieces in columns.values() for piece in pieces)]


def _scalars(batch: SampleBatch) -> list[MeasuredSubject]:
    return [MeasuredSubject((scope, "", ""), scope, _NOBODY, values) for scope, values in
            ((NODE, batch.node), (AGENT, batch.agent))]  # fmt: skip


def label_tail(family: NameFamily, subject: MeasuredSubject, constant: str) -> str:
    """Return the owner's labels of a line, the closing brace, and the space before the value."""
    return f"{_labels(**labels(family, subject))}{constant and ','}{constant}}} "


def labels(family: NameFamily, subject: MeasuredSubject) -> dict[str, str]:
    """Return the labels that name the owner of a measurement; `node` only where several nodes share a machine."""
    owner = subject.owner
    if subject.scope != JOB:
        return {"cgroup": owner.job if owner.manager == CGROUP else f"{owner.manager}/{owner.job}"}
    texts = {label: str(getattr(owner, field)) for label, field in family.labels.items()}
    return {**texts, "node": owner.node} if owner.node else texts


def info_labels(owner: JobOwner, constant: str) -> str:
    """Return all that is known of a job as labels."""
    labels = _labels(
        job_id=owner.job,
        user=owner.user,
        account=owner.account,
        name=owner.name,
        manager=owner.manager,
        node=owner.node,
    )
    return f"{labels}{constant and ','}{constant}"


def _labels(**texts: str) -> str:
    return split(series("", **texts))[1]
