"""A plain reading of quotas and containers, for the plain pass: every instant, every job, summed anew."""

from typing import NamedTuple

from oarlock.model.job import JobState
from oarlock.model.snapshot import PlacedJob, QuotaRule, QuotaSpan, Snapshot, WaitingJob

Ids = frozenset[int]
Job = WaitingJob | PlacedJob
ALWAYS = (-(1 << 60), 1 << 60)


def said(job: Job, word: str) -> str | None:
    """Give the value of a type of a job; None if it has no such type, or one without a value."""
    return next((one.partition("=")[2] for one in job.types if one.startswith(f"{word}=")), None)


def opens(job: Job) -> str | None:
    """Give the room that a container opens; one that is ending opens none."""
    if isinstance(job, PlacedJob) and job.state == JobState.FINISHING:
        return None
    return str(job.job_id) if "container" in job.types else said(job, "container")


def is_counted(job: Job) -> bool:
    """Say whether quotas speak of a job."""
    return not is_container(job) and "no_quotas" not in job.types


def is_container(job: Job) -> bool:
    return any(one.partition("=")[0] == "container" for one in job.types)


class Piece(NamedTuple):
    """A container's resources in its time."""

    start: int
    stop: int
    resources: Ids


class Rooms:
    """Containers that have a place, by the name of their room."""

    def __init__(self, snapshot: Snapshot) -> None:
        jobs = (*snapshot.placed, *snapshot.waiting)
        self._names = {str(job.job_id): room for job in jobs if (room := opens(job)) is not None}
        self._pieces: dict[str, dict[int, Piece]] = {}

    def open(self, job: Job, start: int, stop: int, resources: Ids) -> None:
        room = opens(job)
        if room is not None:
            self._pieces.setdefault(room, {})[job.job_id] = Piece(start, stop, resources)

    def withdraw(self, job: Job) -> None:
        for pieces in self._pieces.values():
            pieces.pop(job.job_id, None)

    def of(self, job: Job, resources: Ids = frozenset()) -> str | None:
        """Give the room a job belongs into; one that has resources which are not there belongs nowhere."""
        name = said(job, "inner")
        room = None if name is None else self._names.get(name, name)
        there = frozenset[int]().union(*(one.resources for one in self._of(room)))
        return room if resources <= there else None

    def there(self, room: str | None) -> bool:
        return room is None or bool(self._of(room))

    def _of(self, room: str | None) -> list[Piece]:
        return list(self._pieces.get(room or "", {}).values())

    def edges(self, room: str | None) -> set[int]:
        return {edge for one in self._of(room) for edge in (one.start, one.stop)}

    def inside(self, room: str, start: int, stop: int) -> Ids:
        """Give what is in a room at every instant of [start, stop)."""
        pieces = self._of(room)
        instants = [start, *(edge for edge in self.edges(room) if start < edge < stop)]
        there = [
            frozenset[int]().union(*(one.resources for one in pieces if one.start <= at < one.stop)) for at in instants
        ]
        return frozenset.intersection(*there)


class Counted(NamedTuple):
    """A job that has a place, as quotas see it."""

    job: Job
    start: int
    stop: int
    use: tuple[int, int, int]


class Quotas:
    """Rules and the jobs they count; `counted` are the resources that count."""

    def __init__(self, snapshot: Snapshot, counted: Ids) -> None:
        self._sets = [(ALWAYS, snapshot.quotas), *joined(snapshot.quota_spans)]
        self._counted = counted
        self._jobs: list[Counted] = []

    def count(self, job: Job, start: int, stop: int, resources: Ids, walltime: int) -> None:
        if is_counted(job):
            self._jobs.append(Counted(job, start, stop, self._use(resources, walltime)))

    def forget(self, job: Job) -> None:
        self._jobs = [one for one in self._jobs if one.job.job_id != job.job_id]

    def _use(self, resources: Ids, walltime: int) -> tuple[int, int, int]:
        size = len(resources & self._counted)
        return size, 1, size * walltime

    def limits(self, job: Job) -> list[tuple[tuple[int, int], QuotaRule]]:
        """Give the rules that hold for a job, and when each does."""
        if not is_counted(job):
            return []
        found = []
        for span, rules in self._sets:
            mine = [rule for rule in rules if speaks_of(rule, job)]
            found += [(span, rule) for rule in mine if not any(is_exception(other, rule) for other in mine)]
        return found

    def others(self, rule: QuotaRule, job: Job) -> list[Counted]:
        """Give the jobs that a rule counts together with one."""
        seen = [one for one in self._jobs if "besteffort" in job.types or "besteffort" not in one.job.types]
        same = [
            name
            for word, name in ((rule.queue, "queue"), (rule.project, "project"), (rule.user, "user"))
            if word == "/"
        ]
        return [
            one
            for one in seen
            if speaks_of(rule, one.job) and all(getattr(one.job, name) == getattr(job, name) for name in same)
        ]

    def edges(self, job: Job) -> set[int]:
        """Give the instants at which something changes for a job."""
        spans = {edge for span, _ in self.limits(job) for edge in span}
        return {edge for edge in spans if abs(edge) < 1 << 39} | {
            edge for _, rule in self.limits(job) for one in self.others(rule, job) for edge in (one.start, one.stop)
        }

    def let(self, job: Job, start: int, length: int, resources: Ids, walltime: int) -> bool:
        """Say whether a job breaks no rule at any instant of its stay."""
        return all(
            self._holds(span, rule, job, start, start + length, self._use(resources, walltime))
            for span, rule in self.limits(job)
        )

    def _holds(
        self, span: tuple[int, int], rule: QuotaRule, job: Job, start: int, stop: int, own: tuple[int, int, int]
    ) -> bool:
        others = self.others(rule, job)
        begin, end = max(start, span[0]), min(stop, span[1])
        instants = {begin, *(one.start for one in others)} if begin < end else set()
        for at in (one for one in instants if begin <= one < end):
            present = [own, *(one.use for one in others if one.start <= at < one.stop)]
            most = (rule.resources, rule.jobs, rule.resource_seconds)
            if any(0 <= limit < sum(used) for limit, used in zip(most, zip(*present, strict=True), strict=True)):
                return False
        return True


def joined(spans: tuple[QuotaSpan, ...]) -> list[tuple[tuple[int, int], tuple[QuotaRule, ...]]]:
    """Give when which rules hold; nothing changes where the same ones go on."""
    found: list[tuple[tuple[int, int], tuple[QuotaRule, ...]]] = []
    for one in spans:
        if found and found[-1][0][1] == one.begin and found[-1][1] == one.rules:
            found[-1] = (found[-1][0][0], one.end), one.rules
        else:
            found.append(((one.begin, one.end), one.rules))
    return found


def speaks_of(rule: QuotaRule, job: Job) -> bool:
    """Say whether a rule counts a job."""
    return (
        rule.queue in {"*", "/", job.queue}
        and rule.project in {"*", "/", job.project}
        and rule.user in {"*", "/", job.user}
        and (rule.job_type == "*" or rule.job_type in {one.partition("=")[0] for one in job.types})
    )


def is_exception(other: QuotaRule, rule: QuotaRule) -> bool:
    """Say whether the other rule names somebody whom this one speaks of as one of each."""
    mine = (rule.queue, rule.project, rule.job_type, rule.user)
    its = (other.queue, other.project, other.job_type, other.user)
    differ = [(one, two) for one, two in zip(mine, its, strict=True) if one != two]
    return bool(differ) and all(one == "/" and two != "*" for one, two in differ)
