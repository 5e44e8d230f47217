"""What a database says of its nodes beside what they say (`oarlock check --live`).

A cluster at work changes while it is looked at: the database is read before the nodes are asked and again afterwards,
and only what holds against both counts.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.job.check.finding import CheckFinding, broken, warning
from oarlock.model.job import UnknownAttempt
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import attempts
from oarlock.store.queries.job.attempts import Attempt

LEFTOVER_SECONDS = 3600
"""How long a node may keep the report of an attempt that is closed; the server makes it forget in bulk."""


class NodeAttempts(NamedTuple):
    """What a node answered: its boot id and the attempts that are there; or why it did not answer."""

    name: str
    boot: str = ""
    there: tuple[UnknownAttempt, ...] = ()
    problem: str = ""


class DatabaseLook(NamedTuple):
    """What the database says at an instant: open attempts, and attempts of others that were reported to it."""

    open: Mapping[tuple[int, int], Attempt]
    foreign: frozenset[tuple[str, int, int, str]]


def look(tx: Tx) -> DatabaseLook:
    """Read what is compared."""
    live = {(attempt.job_id, attempt.number): attempt for attempt in attempts.live(tx)}
    return DatabaseLook(live, frozenset((a.node, a.job, a.attempt, a.tag) for a in attempts.all_unknown(tx)))


def stored_attempts(tx: Tx, nodes: Sequence[NodeAttempts]) -> dict[tuple[int, int], Attempt]:
    """Read the attempts that nodes named."""
    jobs = sorted({attempt.job for node in nodes for attempt in node.there})
    return {(attempt.job_id, attempt.number): attempt for attempt in attempts.of_jobs(tx, jobs)}


def compare(
    before: DatabaseLook,
    nodes: Sequence[NodeAttempts],
    after: DatabaseLook,
    stored: Mapping[tuple[int, int], Attempt],
    *,
    now: float,
) -> list[CheckFinding]:
    """Return where nodes and database do not agree (17), and what is left on nodes (18)."""
    both = [attempt for key, attempt in before.open.items() if key in after.open]
    disagreements: list[CheckFinding] = []
    for node in nodes:
        if node.problem:
            disagreements.append(warning(17, f"{node.name} was not compared: {node.problem}"))
            continue
        for there in node.there:
            disagreements += _there(node, there, stored.get((there.job, there.attempt)), before, after, now)
        disagreements += _missing(node, both, {(there.job, there.attempt, there.tag) for there in node.there})
    return sorted(set(disagreements), key=lambda finding: (finding.invariant, finding.job))


def _there(
    node: NodeAttempts,
    there: UnknownAttempt,
    stored: Attempt | None,
    before: DatabaseLook,
    after: DatabaseLook,
    now: float,
) -> Iterator[CheckFinding]:
    """Judge an attempt that a node has."""
    name = f"job {there.job} (attempt {there.attempt})"
    if stored is None or stored.secret_hash != there.tag:
        heard_of = (node.name, there.job, there.attempt, there.tag) in before.foreign | after.foreign
        if there.alive and heard_of:
            yield warning(17, f"{node.name} runs {name} of another generation; its resources are held", job=there.job)
        elif there.alive:
            yield broken(17, f"{node.name} runs {name}, which the database does not know", job=there.job)
        elif not heard_of:
            yield warning(18, f"{node.name} keeps the report of {name}, which the database does not know")
    elif stored.closed_us is not None and (there.job, there.attempt) not in before.open:
        if there.alive:
            yield broken(17, f"{node.name} still runs {name}, which is over", job=there.job)
        elif now - stored.closed_us / 1e6 > LEFTOVER_SECONDS:
            yield warning(18, f"{node.name} still keeps the report of {name}, which is over", job=there.job)


def _missing(
    node: NodeAttempts, expected: Sequence[Attempt], there: Collection[tuple[int, int, str]]
) -> Iterator[CheckFinding]:
    """Judge attempts that should be on a node: those whose command began, or has to be heard of there."""
    for attempt in expected:
        place = next((place for place in attempt.nodes if place.name == node.name), None)
        if place is None or attempt.started_us is None or attempt.ended_us is not None:
            continue
        name = f"job {attempt.job_id} (attempt {attempt.number})"
        if place.boot_id and place.boot_id != node.boot:
            yield broken(17, f"{name} runs on {node.name}, which was started again since", job=attempt.job_id)
        elif (attempt.job_id, attempt.number, attempt.secret_hash) not in there:
            yield broken(17, f"{name} runs on {node.name}, which does not have it", job=attempt.job_id)
