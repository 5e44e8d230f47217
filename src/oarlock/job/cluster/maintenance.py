"""Maintenance windows: what administrators say, checked; and whom they meet."""

from collections.abc import Sequence

from msgspec import Struct

from oarlock.lang import where as conditions
from oarlock.lang.limits import short
from oarlock.model.condition import Column, Condition, In, Literal
from oarlock.model.errors import UnknownNode
from oarlock.model.job import HOLDS_RESOURCES, JobState
from oarlock.model.limits import BadWindow, Maintenance
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import administration, listing, properties, snapshot

LONGEST = 366 * 24 * 3600


class AffectedJobs(Struct, frozen=True):
    """A window that was added: how many resources it is about, and the jobs that will be there when it begins.

    They are left alone: `running` may end before, `reservations` were promised before.
    """

    window: Maintenance
    resources: int
    running: tuple[int, ...]
    reservations: tuple[int, ...]


def add(
    tx: Tx, *, name: str, start: int, stop: int, nodes: Sequence[str] | None, where: str | None, by: str, now: int
) -> AffectedJobs:
    """Keep resources free of jobs in [start, stop): those of nodes, those that fulfil a condition, or all."""
    _check(name, start, stop, now)
    condition = _condition(tx, nodes, where)
    written = conditions.show(condition) if condition is not None else ""
    window = administration.add_maintenance(tx, Maintenance(0, name, start, stop, written, by))
    ids = set(administration.resources_of_window(tx, written, properties.types(tx)))
    there = [job for job in snapshot.read(tx, karma_window=0, now=now, depth=0).snapshot.placed if job.stop > start]
    met = [job for job in there if job.start < stop and ids.intersection(job.resources)]
    return AffectedJobs(
        window,
        len(ids),
        tuple(job.job_id for job in met if job.state in HOLDS_RESOURCES),
        tuple(job.job_id for job in met if job.state in {JobState.WAITING, JobState.TO_ACK_RESERVATION}),
    )


def _check(name: str, start: int, stop: int, now: int) -> None:
    if not name.strip() or not name.isprintable() or "`" in name:
        raise BadWindow(f"`{short(name)}` cannot be the name of a maintenance.", hint="Use printable characters.")
    if stop <= start:
        raise BadWindow("The maintenance would end before it begins.", hint="Swap its two dates.")
    if stop <= now:
        raise BadWindow("The maintenance would be over already.", hint="Give dates to come.")
    if stop - start > LONGEST:
        raise BadWindow("The maintenance would last for more than a year.", hint="Make its resources Absent instead.")


def _condition(tx: Tx, nodes: Sequence[str] | None, where: str | None) -> Condition | None:
    if nodes and where:
        raise BadWindow("Resources are chosen in one way.", hint="Name nodes, or give a condition.")
    if where:
        return conditions.check(conditions.parse(where), properties.types(tx))
    if not nodes:
        return None
    existing = listing.at_nodes(tx, list(nodes))
    for name in nodes:
        if name not in existing:
            raise UnknownNode(f"There is no node `{short(name)}`.", hint="`oarnodes -l` lists them.")
    return In(Column("network_address"), tuple(Literal(name) for name in sorted(set(nodes))))
