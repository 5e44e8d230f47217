"""The unit of work of a step: what it read, what it decided, and everything it writes together at its end.

Steps decide job by job; a unit of work writes for all jobs at once: a hundred reports cost little more than one.
"""

import hashlib
import hmac
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job import queue_states, summaries
from oarlock.job.run import notices
from oarlock.job.run.blame import NodeFailures, ProgramFailures
from oarlock.job.run.effects import Effect, ScheduleAgain
from oarlock.model.condition import Column, In, Literal
from oarlock.model.event import EVENTS, Blame, Event, EventType, Suspects
from oarlock.model.job import FINAL, FragState, Job, JobState, Moved, move
from oarlock.model.job_type import parse_types
from oarlock.model.resource import ResourceState
from oarlock.node.wire.messages import Report
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties, resources
from oarlock.store.queries.job import attempts, jobs, moves
from oarlock.store.queries.job.attempts import Attempt
from oarlock.store.queries.usage import accounting

"""Types of jobs whose command runs on a frontend: its troubles are no fault of the compute nodes."""


@dataclass(slots=True)
class Lineage:
    """The generation of the database, and the nodes on which jobs of others may run. Loaded at the start."""

    generation: str = ""
    unknown_nodes: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What all steps share: the settings, and the key from which the secrets of attempts are computed.

    In memory: whose jobs failed on which node (`failures`), and for whose the site's programs failed (`programs`).
    `lineage`: the generation of the database. `interrupted`: attempts that were open when the server started.
    """

    config: Config
    key: bytes
    failures: NodeFailures = field(default_factory=NodeFailures, compare=False)
    programs: ProgramFailures = field(default_factory=ProgramFailures, compare=False)
    lineage: Lineage = field(default_factory=Lineage, compare=False)
    interrupted: set[tuple[int, int]] = field(default_factory=set, compare=False)

    def secret(self, attempt: Attempt) -> str:
        """Return the secret of an attempt: computed whenever it is needed, stored nowhere.

        The generation and the nonce keep an attempt apart from one of the same number that the database has lost.
        """
        # Computed with a key instead of stored: a copy of the database alone does not let anybody sign reports.
        named = f"{attempt.job_id}.{attempt.number}"
        if attempt.nonce:  # those of before 0009 have none
            named += f".{attempt.generation}.{attempt.nonce}"
        return hmac.new(self.key, named.encode(), hashlib.sha256).hexdigest()


Place = tuple[int, int, str]
"""An attempt on one node: job, number, node."""


class UnitOfWork:
    """Jobs and attempts as stored, with the changes of a step, which `write` stores. `now` may have a fraction."""

    def __init__(self, tx: Tx, context: StepContext, now: float, ids: Collection[int] = ()) -> None:
        self.tx, self.context, self.config = tx, context, context.config
        self.precise, self.now = now, int(now)
        self.jobs: dict[int, Job] = {}
        self.attempts: dict[int, Attempt] = {}  # the last one of each job
        self.reported: set[Place] = set()  # attempts whose end was reported to this step
        self.effects: list[Effect] = []
        self._moves: list[Moved] = []
        self._events: list[Event] = []
        self._reports: list[Report] = []
        self._touched: dict[int, Attempt] = {}
        self._kills: dict[FragState, list[int]] = {}
        self._suspects: dict[bool, set[str]] = {False: set(), True: set()}
        self._notified: list[int] = []
        self._to_end: set[int] | None = None
        if ids:
            self.load(ids)

    def load(self, ids: Collection[int]) -> None:
        """Read jobs and their last attempts; numbers that were never given are left out."""
        self.jobs |= {job.id: job for job in jobs.existing(self.tx, ids)}
        self.attempts |= {attempt.job_id: attempt for attempt in attempts.of_jobs(self.tx, ids)}

    def open_attempt(self, job_id: int, number: int) -> Attempt | None:
        """Return an attempt if it is the job's last and not closed; reports about others change nothing."""
        attempt = self.attempts.get(job_id)
        if attempt is None or attempt.number != number or attempt.closed_us is not None:
            return None
        return attempt

    def move(self, job_id: int, to: JobState, why: str, **changes: Any) -> Job:
        """Move a job, with what changes of it."""
        moved = move(self.jobs[job_id], to, at=self.now, why=why, **changes)
        self._moves.append(moved)
        self.jobs[job_id] = moved.job
        return moved.job

    def event(
        self, kind: EventType, says: str, job_id: int | None = None, hosts: Iterable[str] = (), *, cause: str = ""
    ) -> Blame:
        """Add an event with its consequences (nodes are suspected, queues stopped); return whose fault it is.

        `cause` is why a program of the site failed, where one did (`UNUSABLE`, `EXIT` or `TIMEOUT`).
        """
        event = Event(kind, self.now, says, job_id, tuple(hosts))
        self._events.append(event)
        job = self.jobs.get(job_id or 0)
        blame = self.context.programs.blame(kind, cause, user=job.user if job else "")
        if blame is Blame.SITE:
            stop = queue_states.stop_all(self.tx, says, now=self.now)
            self._events += [stop] if stop else []
        else:
            self._suspect_for(event, blame)
        return blame

    def _suspect_for(self, event: Event, blame: Blame) -> None:
        job = self.jobs.get(event.job or 0)
        if job is not None and parse_types(job.types).frontend:
            return
        hosts = self._concerned(event)
        if blame is Blame.NODE:
            self.suspect(hosts, by_check=event.type in _BY_CHECK)
        elif job is not None:
            for host in hosts:
                self._count_failure(host, job, event)

    def _concerned(self, event: Event) -> Sequence[str]:
        """Return the nodes that an event is about."""
        attempt = self.attempts.get(event.job or 0)
        nodes = [node.name for node in attempt.nodes] if attempt else []
        match EVENTS[event.type].suspects:
            case Suspects.FIRST:
                return event.hosts or nodes[:1]
            case Suspects.NAMED:
                return event.hosts
            case Suspects.JOB:
                return nodes
            case Suspects.NONE:
                return ()

    def _count_failure(self, host: str, job: Job, event: Event) -> None:
        """Suspect a node if jobs of several users failed there, with an event that names them."""
        if users := self.context.failures.failed(host, job.user, at=self.now):
            says = f"jobs of {', '.join(users)} failed on {host} one after the other; the last one: {event.description}"
            self.event(EventType.NODE_FAILS_SEVERAL_USERS, says, None, (host,))

    def suspect(self, hosts: Iterable[str], *, by_check: bool = False) -> None:
        """Make nodes Suspected; those that the node check suspects come back by themselves."""
        self._suspects[by_check].update(hosts)

    def take_back_suspicion(self, host: str) -> bool:
        """Drop the suspicion of a node that did not answer and has since; return whether there was one."""
        silent = self._suspects[True]
        was_silent = host in silent
        silent.discard(host)
        return was_silent

    def update_attempt(self, attempt: Attempt, **changes: Any) -> Attempt:
        """Change fields of an attempt, and return it."""
        now = replace(attempt, **changes)
        self.attempts[attempt.job_id] = self._touched[attempt.job_id] = now
        return now

    def close(self, attempt: Attempt) -> None:
        """Close an attempt: nothing of it is alive any more."""
        self.update_attempt(attempt, closed_us=self.us())

    def add_usage(self, report: Report) -> None:
        """Store the counters of a report."""
        self._reports.append(report)

    def us(self, at: float | None = None) -> int:
        """Return an instant (by default, now) in microseconds."""
        return round((self.precise if at is None else at) * 1_000_000)

    def set_kill_state(self, job_id: int, state: FragState) -> None:
        """Record how far the kill of a job has come."""
        self._kills.setdefault(state, []).append(job_id)

    def is_being_killed(self, job_id: int) -> bool:
        """Return whether a job that is not over is being killed."""
        if self._to_end is None:
            self._to_end = {number for number, _, _ in moves.kills_under_way(self.tx)}
        return job_id in self._to_end

    def has_event(self, job_id: int, kind: EventType) -> bool:
        """Return whether a job has an event of this type, from this step or before."""
        if any(event.type is kind and event.job == job_id for event in self._events):
            return True
        return any(noted.event.type is kind for noted in events.of_jobs(self.tx, [job_id]))

    def notice_sent(self, number: int) -> None:
        """Remove a notice that was sent."""
        self._notified.append(number)

    def add_effects(self, *effects: Effect) -> None:
        """Add effects; they are carried out once everything is committed."""
        self.effects += effects

    def write(self) -> list[Effect]:
        """Write everything to the database and return the effects."""
        ended = [moved.job.id for moved in self._moves if moved.job.state in FINAL]
        new_notices = [*notices.of_events(self._events, self.jobs), *notices.of_moves(self._moves)]
        self.add_effects(*notices.store(self.tx, new_notices))
        if self._notified:
            events.remove_notices(self.tx, self._notified)
        if self._moves:
            moves.record(self.tx, self._moves)
            if any(_makes_room(moved.job) for moved in self._moves):
                self.add_effects(ScheduleAgain())
        if self._touched:
            attempts.record(self.tx, list(self._touched.values()))
        summaries.keep_reports(self.tx, self._reports, now=self.now)
        self._write_events()
        for by_check, hosts in self._suspects.items():
            if hosts:
                suspect(self.tx, hosts, at=self.now, by_check=by_check)
        for state, ids in self._kills.items():
            moves.set_kill_state(self.tx, ids, state)
        if ended:
            moves.set_kill_state(self.tx, ended, FragState.FRAGGED)
            accounting.update_accounts(self.tx, window=self.config.accounting_window, ids=ended)
        return self.effects

    def _write_events(self) -> None:
        if not self._events:
            return
        numbers = events.add(self.tx, self._events)
        # What has to follow is written in this very transaction; only stopped queues wait for a person.
        done = [
            number
            for number, event in zip(numbers, self._events, strict=True)
            if event.to_check and not self._is_left_open(event)
        ]
        if done:
            events.check_off(self.tx, done)

    def _is_left_open(self, event: Event) -> bool:
        """Whether something still has to follow from an event: a person's look, or the answer of nodes."""
        if event.type is EventType.QUEUES_STOPPED:
            return True
        job = self.jobs.get(event.job or 0)
        return event.type in AWAITS_NODES and (job is None or job.state in _HEARS_OF_NODES)


_MAKES_ROOM = FINAL | {JobState.WAITING, JobState.SUSPENDED}
"""States after which the scheduler may do something that it could not do before."""


def _makes_room(job: Job) -> bool:
    """Return whether the scheduler may do more after a move of this job; inner jobs wait for their container."""
    return job.state in _MAKES_ROOM or parse_types(job.types).is_container


AWAITS_NODES = frozenset({EventType.HOLD_RUNNING_JOB, EventType.RESUME_JOB})
"""Events from which something follows only when nodes have answered."""

_HEARS_OF_NODES = frozenset({JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING})

_BY_CHECK = frozenset({EventType.PING_CHECKER_NODE_SUSPECTED, EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB})


def of_hosts(tx: Tx, hosts: Collection[str]) -> list[int]:
    """Return the resources of nodes."""
    if not hosts:
        return []
    named = In(Column("network_address"), tuple(Literal(host) for host in sorted(hosts)))
    return resources.matching(tx, named, properties.types(tx))


def suspect(tx: Tx, hosts: Collection[str], *, at: int, by_check: bool) -> list[int]:
    """Make the resources of nodes Suspected, if they are Alive (or were suspected by the node check only)."""
    suspected = []
    for resource in resources.listed(tx, of_hosts(tx, hosts)):
        state, checked = resource.properties["state"], resource.properties["finaud_decision"] == "YES"
        if state == ResourceState.ALIVE or (state == ResourceState.SUSPECTED and checked and not by_check):
            suspected.append(resource.id)
    if suspected:
        resources.set_state(tx, suspected, ResourceState.SUSPECTED, at=at, by_check=by_check)
    return suspected
