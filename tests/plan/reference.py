"""A plain reading of the whole pass, to compare the quick one with.

Sets of resource ids, lists of instants, trees walked as they are; nothing is remembered from one job to the next and
nothing of `plan/` is used but the settings. Slow, and meant to be read next to the manual: what is written here is what
the scheduler promises.

Two points are decided by us. A job takes, at the same start, resources where no running best-effort job has to die,
if there are enough of them. Several groups take one after the other, each what the earlier ones left.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.lang.where import truth
from oarlock.model.condition import Condition
from oarlock.model.job import JobState, Reservation
from oarlock.model.plan import Obstacle
from oarlock.model.resource import ResourceOrder, Value
from oarlock.model.snapshot import Choice, PlacedJob, Queue, Shape, Snapshot, Usage, WaitingJob
from oarlock.model.submission import ALL, BEST, BESTHALF, Level, ResourceGroup
from oarlock.plan.settings import PlanSettings
from tests.plan.reference_limits import Quotas, Rooms, said

Ids = frozenset[int]
Row = Mapping[str, Value]


class Place(NamedTuple):
    """Where a job goes: [start, stop) on resources."""

    moldable_id: int
    start: int
    stop: int
    resources: Ids


class Refusal(NamedTuple):
    """Why a job goes nowhere, and, for a reservation, when it could."""

    obstacle: Obstacle
    earliest: int | None = None


class Character(NamedTuple):
    """What others see of a job."""

    besteffort: bool
    sharing: tuple[str, str] | None
    room: str | None = None
    keeps_for: str | None = None
    allowed: str | None = None

    def minds(self, other: "Character") -> bool:
        """Say whether the other one is in this one's way."""
        if self.room != other.room or (other.besteffort and not self.besteffort):
            return False
        if other.keeps_for is not None and other.keeps_for == self.allowed:
            return False
        return self.sharing is None or self.sharing != other.sharing


class Stay(NamedTuple):
    """Somebody on resources during [start, stop), the security time included."""

    who: Character
    start: int
    stop: int
    resources: Ids


class Rule(NamedTuple):
    """What a queue's policy says: who comes first, how many dates there are, who may pass; are dates kept?"""

    fair: bool = False
    dates: int | None = None
    passing: str = "in order"
    keeps: bool = False
    weighs: bool = False


def rule(policy: str) -> Rule | None:
    """Read the name of a policy."""
    policy, plus, _ = policy.partition("+")
    if plus:
        found = rule(policy)
        return None if found is None else found._replace(weighs=True)
    known = {
        "oar_sched_gantt_with_timesharing": Rule(),
        "oar_sched_gantt_with_timesharing_and_fairsharing": Rule(fair=True),
        "conservative": Rule(keeps=True),
        "multifactor": Rule(weighs=True),
        "fcfs": Rule(dates=1, passing="nobody"),
        "easy": Rule(dates=1),
        "easy-sjbf": Rule(dates=1, passing="shortest first"),
    }
    word, _, rest = policy.partition("-")
    if word == "depth":
        number, _, order = rest.partition("-")
        return Rule(dates=int(number), passing="shortest first" if order else "in order")
    return known.get(policy)


class BadType(Exception):
    """A job that cannot be planned at all."""


class Reference:
    """A snapshot, planned slowly. `places` and `refusals` tell of every waiting job after `run`."""

    def __init__(
        self, snapshot: Snapshot, *, now: int, settings: PlanSettings, promised: Mapping[int, Place] | None = None
    ) -> None:
        self.snapshot, self.now, self.settings, self.promised = snapshot, now, settings, promised or {}
        self.rows = ordered_rows(snapshot, settings.order)
        self.places: dict[int, Place] = {}
        self.refusals: dict[int, Refusal] = {}
        self.held: dict[int, tuple[Stay, Place]] = {}
        self.ends = {job.job_id: max(job.stop, now + 1) for job in snapshot.placed}
        self.always = self._with("type", settings.always_assigned)
        self.rooms = Rooms(snapshot)
        self.quotas = Quotas(snapshot, self._with("type", ("default",)) - self.always)
        for job in snapshot.placed:
            self.rooms.open(job, job.start, job.stop, self._given(job))
        self.occupations = [self._stay(job) for job in snapshot.placed]

    def run(self) -> "Reference":
        """Plan every waiting job."""
        known = {queue.name for queue in self.snapshot.queues}
        for queue in sorted(self.snapshot.queues, key=lambda queue: -queue.priority):
            self._plan_queue(queue, [job for job in self.snapshot.waiting if job.queue == queue.name])
        for job in self.snapshot.waiting:
            if job.queue not in known:
                self.refusals[job.job_id] = Refusal(Obstacle.QUEUE_STOPPED)
        return self

    # Which resources there are.

    def _with(self, column: str, values: Iterable[Value]) -> Ids:
        wanted = set(values)
        return frozenset(id_ for id_, row in self.rows.items() if row.get(column) in wanted)

    def ready(self) -> Ids:
        """Give the resources a job can start on."""
        leaving = self._with("next_state", ("Absent", "Suspected", "Dead"))
        return self._with("state", ("Alive",)) - leaving

    def asleep(self) -> dict[int, int]:
        """Give the resources that can be woken, and until when each may be used."""
        if not self.settings.wake_up:
            return {}
        absent = self._with("state", ("Absent",)) - self._with("next_state", ("Absent", "Suspected", "Dead"))
        dates = {id_: self.rows[id_].get("cm_availability") for id_ in absent}
        return {id_: date for id_, date in dates.items() if isinstance(date, int) and date > self.now}

    # Who is where.

    def who(self, job: WaitingJob | PlacedJob) -> Character:
        """Say how others see a job here: one whose container is gone is in everybody's way."""
        given = frozenset[int]() if isinstance(job, WaitingJob) else self._given(job)
        return character(job)._replace(room=self.rooms.of(job, given))

    def _given(self, job: PlacedJob) -> Ids:
        return frozenset(job.resources) & frozenset(self.rows) - self.always

    def _holds(self, job: PlacedJob) -> Ids:
        resources = self._given(job)
        if job.state == JobState.SUSPENDED:
            resources -= self._with("type", self.settings.shared_when_suspended)
        return resources

    def _stay(self, job: PlacedJob) -> Stay:
        stop = job.stop + self.settings.security_time
        if job.state != JobState.WAITING:
            stop = max(stop, self.now + 1)
        occupation = Stay(self.who(job), job.start, stop, self._holds(job))
        self.quotas.count(job, occupation.start, occupation.stop, occupation.resources, job.stop - job.start)
        return occupation

    def in_danger(self, who: Character) -> Ids:
        """Give the resources on which a best-effort job would have to die, in the same room."""
        running = [job for job in self.snapshot.placed if job.state != JobState.FINISHING]
        dying = [job for job in running if self.who(job).besteffort and self.who(job).room == who.room]
        return frozenset[int]().union(*(job.resources for job in dying)) - self.always

    def free(self, who: Character, start: int, stop: int, *, dated: bool) -> Ids:
        """Give the resources that nobody in the way of `who` has at any instant of [start, stop)."""
        asleep = {} if dated else self.asleep()
        usable = frozenset(self.rows) if dated else self.ready() | frozenset(asleep)
        taken = [
            occupation.resources
            for occupation in self._seen(who)
            if occupation.start < stop and start < occupation.stop
        ]
        gone = frozenset(id_ for id_, until in asleep.items() if stop > until)
        outside = usable - self.rooms.inside(who.room, start, stop) if who.room is not None else frozenset()
        return usable.difference(gone, self.windows(start, stop), outside, *taken)

    def windows(self, start: int, stop: int) -> Ids:
        """Give the resources with a maintenance window at some instant of [start, stop)."""
        meeting = [one for one in self.snapshot.windows if one.start < stop and start < one.stop]
        return frozenset[int]().union(*(one.resources for one in meeting))

    def _seen(self, who: Character) -> Iterator[Stay]:
        return (occupation for occupation in self.occupations if who.minds(occupation.who))

    def instants(self, job: WaitingJob, who: Character, begin: int, *, dated: bool) -> list[int]:
        """Give the instants at which a job may begin: at once, or when something changes."""
        begin = max(begin, self.now)
        asleep = {} if dated else self.asleep()
        usable = frozenset(self.rows) if dated else self.ready() | frozenset(asleep)
        met = [one for one in (*self._seen(who), *self.snapshot.windows) if not usable.isdisjoint(one.resources)]
        edges = {edge for one in met for edge in (one.start, one.stop)} | set(asleep.values())
        edges |= self.rooms.edges(who.room) | self.quotas.edges(job)
        return [begin, *sorted(edge for edge in edges if edge > begin)]

    # The pass.

    def _plan_queue(self, queue: Queue, jobs: list[WaitingJob]) -> None:
        policy = rule(queue.policy)
        if not queue.active or policy is None:
            self.refusals |= {job.job_id: Refusal(Obstacle.QUEUE_STOPPED) for job in jobs}
            return
        if not self.always <= self.ready():
            self.refusals |= {job.job_id: Refusal(Obstacle.ALWAYS_ASSIGNED) for job in jobs}
            return
        dated = [job for job in jobs if job.reservation == Reservation.TO_SCHEDULE]
        undated = [job for job in jobs if job.reservation != Reservation.TO_SCHEDULE]
        if policy.fair:
            usage = self.snapshot.usage.get(queue.name, Usage())
            undated.sort(key=lambda job: (self.karma(job, usage), job.job_id))
            undated, late = undated[: self.settings.fairness.max_jobs], undated[self.settings.fairness.max_jobs :]
            self.refusals |= {job.job_id: Refusal(Obstacle.FAR_BACK) for job in late}
        if policy.weighs:
            usage = self.snapshot.usage.get(queue.name, Usage())
            undated.sort(key=lambda job: (-self.priority(job, usage), job.job_id))
        depth = len(undated) if self.settings.depth is None else self.settings.depth
        self.refusals |= {job.job_id: Refusal(Obstacle.FAR_BACK) for job in undated[depth:]}
        told = [job for job in undated[:depth] if policy.keeps and job.job_id in self.promised]
        for job in sorted(told, key=lambda job: self.promised[job.job_id].start):
            self._hold(job, self.promised[job.job_id])
        for job in dated:
            self._guarded(job, dated=True)
        self._plan_in_order(policy, undated[:depth])

    def _plan_in_order(self, policy: Rule, jobs: list[WaitingJob]) -> None:
        dates = policy.dates
        while jobs and dates != 0:
            job, *jobs = jobs
            held = self._let_go(job)
            if dates is None or not self._waits_for_others(job):
                self._guarded(job, dated=False, held=held)
            place = self.places.get(job.job_id)
            if dates is not None and place is not None and place.start > self.now:
                dates -= 1
        if policy.passing == "shortest first":
            jobs = sorted(jobs, key=lambda job: min(choice.walltime for choice in job.choices))
        for job in jobs:
            if policy.passing == "nobody":
                self.refusals[job.job_id] = Refusal(Obstacle.FAR_BACK)
            elif not self._waits_for_others(job):
                self._guarded(job, dated=False, only_now=True)

    def _hold(self, job: WaitingJob, old: Place) -> None:
        """Keep what a job was told, or the same resources as soon after that as they are free."""
        begin = self._begin(job)
        try:
            who = self.who(job)
        except BadType:
            return
        if isinstance(begin, Refusal) or (old.start >= max(begin, self.now) and self._keeps(job, who, old)):
            return
        length, lasting = self._length(who, old.stop - old.start), old.stop - old.start
        for start in self.instants(job, who, max(begin, old.start), dated=False):
            if old.resources - self.always <= self.free(who, start, start + length, dated=False):
                self._keeps(job, who, old._replace(start=start, stop=start + lasting))
                return

    def _stay_at(self, who: Character, place: Place) -> Stay:
        length = self._length(who, place.stop - place.start)
        return Stay(who, place.start, place.start + length, place.resources - self.always)

    def _is_free(self, job: WaitingJob, who: Character, place: Place) -> bool:
        occupation = self._stay_at(who, place)
        free = self.free(who, occupation.start, occupation.stop, dated=False)
        if who.besteffort:
            free -= self.windows(occupation.start, place.stop + self.settings.security_time)
        length, walltime = occupation.stop - occupation.start, place.stop - place.start
        return occupation.resources <= free and self.quotas.let(
            job, occupation.start, length, occupation.resources, walltime
        )

    def _keeps(self, job: WaitingJob, who: Character, old: Place) -> bool:
        """Let a job have a place, if it is free and nothing else is against it."""
        if not self._is_free(job, who, old):
            return False
        occupation, walltime = self._stay_at(who, old), old.stop - old.start
        resources = occupation.resources
        self.held[job.job_id] = occupation, old
        self.occupations.append(occupation)
        self.ends[job.job_id] = old.stop
        self.quotas.count(job, occupation.start, occupation.stop, resources, walltime)
        self.rooms.open(job, old.start, old.stop, resources)
        return True

    def _let_go(self, job: WaitingJob) -> Place | None:
        """Let a job hold its place no more; say which that was."""
        if job.job_id not in self.held:
            return None
        occupation, place = self.held.pop(job.job_id)
        self.occupations.remove(occupation)
        del self.ends[job.job_id]
        self.quotas.forget(job)
        self.rooms.withdraw(job)
        return place

    def _waits_for_others(self, job: WaitingJob) -> bool:
        begin = self._begin(job)
        if isinstance(begin, Refusal):
            self.refusals[job.job_id] = begin
        elif begin > self.now and begin == job.not_before:
            self.refusals[job.job_id] = Refusal(Obstacle.POSTPONED, begin)
        elif begin > self.now:
            self.refusals[job.job_id] = Refusal(Obstacle.DEPENDENCY)
        else:
            return False
        return True

    def priority(self, job: WaitingJob, usage: Usage) -> float:
        """Say how much speaks for a job."""
        weights, targets, used = self.settings.weights, self.settings.fairness.user_targets, usage.decayed_by_user
        waited = max(0, self.now - job.submitted)
        others = {*used, job.user} - set(targets)
        left = max(0.0, 100 - sum(targets.values()))
        target = targets[job.user] / 100 if job.user in targets else left / 100 / len(others)
        part = used.get(job.user, 0.0) / (sum(used.values()) or 1.0)
        size = min((self.size(choice.shape) for choice in job.choices), default=0.0)
        length = max(1, min((choice.walltime for choice in job.choices), default=1))
        qos = next((kind[4:] for kind in job.types if kind.startswith("qos=")), "")
        terms = [
            (weights.age, min(waited, weights.age_limit) / weights.age_limit),
            (weights.share, 2.0 ** (-part / target) if target else float(not part)),
            (weights.size, size),
            (weights.slowdown, waited / (waited + length)),
            (weights.qos, weights.qos_values.get(qos, 0) / 100),
            (weights.project, weights.project_values.get(job.project, 0) / 100),
        ]
        return sum(factor * weight for weight, factor in terms if weight)

    def size(self, shape: int) -> float:
        """Say which part of the cluster a shape takes; one that cannot be read takes nothing."""
        try:
            return len(self.take(shape, frozenset(self.rows))) / len(self.rows)
        except Exception:  # noqa: BLE001
            return 0.0

    def karma(self, job: WaitingJob, usage: Usage) -> float:
        """Say by how much a job's people are over their share."""
        fairness = self.settings.fairness
        user, project = fairness.user_targets.get(job.user, 0), fairness.project_targets.get(job.project, 0)
        used, asked = usage.used or 1, usage.requested or 1
        return (
            fairness.project_weight * (usage.used_by_project.get(job.project, 0) / used - project / 100)
            + fairness.user_weight * (usage.used_by_user.get(job.user, 0) / used - user / 100)
            + fairness.requested_weight * (usage.requested_by_user.get(job.user, 0) / asked - user / 100)
        )

    def _guarded(self, job: WaitingJob, *, dated: bool, only_now: bool = False, held: Place | None = None) -> None:
        try:
            who = self.who(job)
            found = self._reserve(job, who) if dated else self._place(job, who, only_now=only_now, held=held)
        except Exception:  # noqa: BLE001
            found = Refusal(Obstacle.SET_ASIDE)
        if isinstance(found, Refusal):
            self.refusals[job.job_id] = found
            return
        length = self._length(who, found.stop - found.start)
        mine = found.resources - self.always
        self.occupations.append(Stay(who, found.start, found.start + length, mine))
        self.quotas.count(job, found.start, found.start + length, mine, found.stop - found.start)
        self.rooms.open(job, found.start, found.stop, mine)
        self.ends[job.job_id] = found.stop
        self.places[job.job_id] = found._replace(resources=found.resources | self.always)

    def _length(self, who: Character, walltime: int) -> int:
        security_time = self.settings.security_time
        return max(self.settings.besteffort_duration, security_time) if who.besteffort else walltime + security_time

    def _place(self, job: WaitingJob, who: Character, *, only_now: bool, held: Place | None) -> Place | Refusal:
        begin = self._begin(job)
        if isinstance(begin, Refusal):
            return begin
        instants = [self.now] if only_now else self.instants(job, who, begin, dated=False)
        places = [place for choice in job.choices if (place := self._first(job, who, choice, instants)) is not None]
        if held is not None and self._is_best(job, who, held, places, begin):
            return held
        if not places:
            return Refusal(self._why_not_now(job, who) if only_now else self._never(job, who))
        best = min(places, key=lambda place: place.stop)
        if job.deadline is not None and best.stop > job.deadline:
            return Refusal(Obstacle.DEADLINE, best.start)
        return best

    def _is_best(self, job: WaitingJob, who: Character, held: Place, others: list[Place], begin: int) -> bool:
        """Say whether a place that a job had is still free and ends before all others."""
        if job.deadline is not None and held.stop > job.deadline:
            return False
        best = all(held.stop < one.stop for one in others)
        return best and held.start >= max(begin, self.now) and self._is_free(job, who, held)

    def _why_not_now(self, job: WaitingJob, who: Character) -> Obstacle:
        for choice in job.choices:
            place = self._first(job, who, choice, [self.now], limited=False)
            if place and not self._let(job, who, choice, place.start, place.resources):
                return Obstacle.QUOTA
        usable = self.ready() | frozenset(self.asleep())
        if any(self.take(choice.shape, usable) for choice in job.choices):
            return Obstacle.FAR_BACK
        return self._never(job, who)

    def _never(self, job: WaitingJob, who: Character) -> Obstacle:
        if not any(self.take(choice.shape, frozenset(self.rows)) for choice in job.choices):
            return Obstacle.TOO_BIG
        if who.room is not None:
            return Obstacle.CONTAINER
        for choice in job.choices:
            instants = self.instants(job, who, 0, dated=False)
            place = self._first(job, who, choice, instants, limited=False)
            if place and not self._let(job, who, choice, place.start, place.resources):
                return Obstacle.QUOTA
        return Obstacle.UNAVAILABLE

    def _let(self, job: WaitingJob, who: Character, choice: Choice, start: int, resources: Ids) -> bool:
        return self.quotas.let(job, start, self._length(who, choice.walltime), resources, choice.walltime)

    def _begin(self, job: WaitingJob) -> int | Refusal:
        if not self.rooms.there(self.rooms.of(job)):
            return Refusal(Obstacle.CONTAINER)
        begin = job.not_before
        for required in job.after:
            failed = required.state == JobState.TERMINATED and required.exit_code
            if failed or (required.state == JobState.ERROR and not self.settings.release_after_error):
                return Refusal(Obstacle.BROKEN_DEPENDENCY)
            if required.state in {JobState.TERMINATED, JobState.ERROR}:
                continue
            if required.job_id not in self.ends:
                return Refusal(Obstacle.DEPENDENCY)
            begin = max(begin, self.ends[required.job_id] + 2 * self.settings.security_time)
        return begin

    def _first(
        self, job: WaitingJob, who: Character, choice: Choice, instants: list[int], *, limited: bool = True
    ) -> Place | None:
        hole = max(self._length(who, choice.walltime), self.settings.minimum_hole)
        lasting = choice.walltime + self.settings.security_time
        for start in instants:
            free = self.free(who, start, start + hole, dated=False)
            if who.besteffort and limited:
                free -= self.windows(start, start + lasting)
            taken = self.take_best(choice.shape, free)
            if not taken:
                continue
            peaceful = frozenset() if who.besteffort else self.take_best(choice.shape, free - self.in_danger(who))
            chosen = peaceful or taken
            if not limited or self._let(job, who, choice, start, chosen):
                return Place(choice.moldable_id, start, start + choice.walltime, chosen)
        return None

    def _reserve(self, job: WaitingJob, who: Character) -> Place | Refusal:
        choice = job.choices[0]
        if not self.rooms.there(who.room):
            return Refusal(Obstacle.CONTAINER)
        if job.start + choice.walltime <= self.now:
            return Refusal(Obstacle.MISSED)
        asked, length = max(job.start, self.now), choice.walltime + self.settings.security_time
        why, possible = Obstacle.CONFLICT, False
        for start in self.instants(job, who, asked, dated=True):
            free = self.free(who, start, start + length, dated=True)
            taken = self.take(choice.shape, free & self.ready()) or self.take(choice.shape, free)
            possible = possible or bool(taken)
            let = bool(taken) and self._let(job, who, choice, start, taken)
            if let and start == asked:
                return Place(choice.moldable_id, start, start + choice.walltime, taken)
            if let:
                return Refusal(why, start)
            if taken and start == asked:
                why = Obstacle.QUOTA
        return Refusal(Obstacle.QUOTA if possible else Obstacle.TOO_BIG)

    # What a shape takes.

    def take_best(self, shape: int, free: Ids) -> Ids:
        """Take from nodes at work, if the site packs, else from nodes awake, else from all; never less for that."""
        taken = self.take(shape, free)
        tiers = [self.ready()] if self.asleep() else []
        if self.settings.pack:
            held = {id_ for job in self.snapshot.placed if job.state != JobState.WAITING for id_ in job.resources}
            at_work = {row.get("network_address") for id_, row in self.rows.items() if id_ in held}
            names = {id_: row.get("network_address") for id_, row in self.rows.items()}
            tiers.insert(0, self.ready() & {id_ for id_, name in names.items() if not name or name in at_work})
        for tier in tiers:
            better = self.take(shape, free & tier)
            if len(better) == len(taken):
                return better
        return taken

    def take(self, shape: int, free: Ids) -> Ids:
        """Give what a shape takes of free resources; nothing if they are not enough."""
        asked = self.snapshot.shapes[shape]
        total: Ids = frozenset()
        for group in asked.groups:
            taken = self.take_group(asked, group, free - total)
            if not taken:
                return frozenset()
            total |= taken
        return total

    def take_group(self, shape: Shape, group: ResourceGroup, free: Ids) -> Ids:
        """Give what one group takes, the manual's way: a tree of all that match, pruned, then trimmed."""
        levels = [*group.levels]
        if levels[-1].name != "resource_id":
            levels.append(Level("resource_id", ALL))
        matching = [
            id_
            for id_, row in self.rows.items()
            if holds(shape.where, row) and holds(group.where, row) and all(has(row, level.name) for level in levels)
        ]
        return frozenset(self._survivors(matching, levels, free))

    def _survivors(self, ids: Sequence[int], levels: Sequence[Level], free: Ids) -> list[int]:
        """Give what a vertex above these resources keeps; nothing when it does not survive."""
        if not levels:
            return [id_ for id_ in ids if id_ in free]
        below: dict[Value, list[int]] = {}
        for id_ in ids:
            below.setdefault(self.rows[id_][levels[0].name], []).append(id_)
        alive = [kept for branch in below.values() if (kept := self._survivors(branch, levels[1:], free))]
        return [id_ for kept in alive[: kept_of(levels[0].count, len(alive), len(below))] for id_ in kept]


def kept_of(count: int, alive: int, total: int) -> int:
    """Say how many of its surviving children a vertex keeps."""
    if count == ALL:
        return alive if alive == total else 0
    if count == BEST:
        return alive
    if count == BESTHALF:
        return max(1, alive // 2) if alive else 0
    return count if alive >= count else 0


def holds(condition: Condition | None, row: Row) -> bool:
    """Say whether a condition is true of a resource."""
    return condition is None or truth(condition, row) is True


def has(row: Row, column: str) -> bool:
    """Say whether a resource has a value there; a node without a name is no node."""
    return row[column] is not None and not (column == "network_address" and row[column] == "")


def character(job: WaitingJob | PlacedJob) -> Character:
    """Say how others see a job. One that runs already and shares in no known way shares with nobody."""
    kept = said(job, "placeholder"), said(job, "allow") or said(job, "allowed")
    try:
        return Character("besteffort" in job.types, sharing(job), said(job, "inner"), *kept)
    except BadType:
        if isinstance(job, WaitingJob):
            raise
        return Character("besteffort" in job.types, None, said(job, "inner"), *kept)


def sharing(job: WaitingJob | PlacedJob) -> tuple[str, str] | None:
    """Give the timesharing class of a job."""
    forms = {"": "**", "*,*": "**", "user,*": "u*", "*,name": "*n", "*,job_name": "*n", "user,name": "un"}
    for kind in job.types:
        word, _, scope = kind.partition("=")
        if word == "timesharing":
            form = forms.get(scope.replace("job_name", "name"))
            if form is None:
                raise BadType(kind)
            return job.user if form[0] == "u" else "*", (job.name or "*") if form[1] == "n" else "*"
    return None


def ordered_rows(snapshot: Snapshot, order: Sequence[ResourceOrder]) -> dict[int, Row]:
    """Give all resources in the order in which they are preferred; those of no node come last."""
    table = snapshot.resources
    rows = [
        {"resource_id": id_} | {name: column[at] for name, column in table.columns.items()}
        for at, id_ in enumerate(table.ids)
    ]
    rows.sort(key=lambda row: row["resource_id"])
    for term in reversed(order):
        known = [row for row in rows if row[term.column] is not None]
        unknown = [row for row in rows if row[term.column] is None]
        rows = sorted(known, key=lambda row: row[term.column], reverse=term.descending) + unknown
    on_nodes = [row for row in rows if row["network_address"]]
    return {row["resource_id"]: row for row in on_nodes + [row for row in rows if not row["network_address"]]}
