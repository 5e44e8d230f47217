"""Requests of jobs, read back from their tables: jobs with equal requests share a shape. Their walltimes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Select, select, update

from oarlock.lang import request as requests
from oarlock.lang.where import STORED, Types, parse
from oarlock.model.condition import Condition
from oarlock.model.errors import OarlockError
from oarlock.model.job import JobState
from oarlock.model.snapshot import Choice, Shape
from oarlock.model.submission import Alternative, Level, ResourceGroup, ResourceRequest
from oarlock.store.engine.rows import BoundRows, bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import job_resource_descriptions, job_resource_groups, jobs, moldable_job_descriptions
from oarlock.store.tables.columns import INTEGER

_Groups = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""Groups as they are stored: each with its condition and its levels."""

_Written = tuple[str, _Groups]
"""A shape as it is stored: the job's condition, then the groups."""


@dataclass(slots=True)
class JobRequests:
    """Requests of jobs: shapes, the choices of each job in order, and why some cannot be parsed any more."""

    shapes: list[Shape] = field(default_factory=list)
    choices: dict[int, list[Choice]] = field(default_factory=lambda: defaultdict(list))
    broken: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class ShapeCache:
    """Shapes of earlier reads, for reads that follow each other: they keep their numbers, none is parsed twice.

    What an alternative asks for never changes; its walltime may, and is always read.
    """

    types: dict[str, type] = field(default_factory=dict)
    shapes: list[Shape] = field(default_factory=list)
    interned: dict[_Written, int | str] = field(default_factory=dict)
    groups: dict[int, _Groups] = field(default_factory=dict)

    def begin(self, types: Types) -> None:
        """Clear the cache if resources have other columns now."""
        if self.types != types:
            self.types = dict(types)
            self.shapes, self.interned, self.groups = [], {}, {}


WAITING = select(jobs.c.job_id).where(jobs.c.state == JobState.WAITING.value)
"""The numbers of the jobs that wait, for `read`."""


@cache
def bound_job_ids(engine: str) -> Select[Any]:
    """The numbers that `these` brings, for `read`."""
    return select(jobs.c.job_id).where(id_in(engine, jobs.c.job_id))


def read(tx: Tx, which: Select[Any], types: Types, memory: ShapeCache | None = None, **bound: Any) -> JobRequests:
    """Read what the jobs whose numbers `which` selects ask for, on resources that have these columns."""
    rows = tx.execute(_stored_choices(which), bound).all()
    if memory is None:
        memory = ShapeCache(dict(types), groups=_groups(tx.execute(_stored_groups(which), bound)))
    else:
        memory.begin(types)
        _remember(tx, [row.moldable_id for row in rows], memory)
    requests_read, groups, interned = JobRequests(memory.shapes), memory.groups, memory.interned
    for moldable_id, job_id, walltime, properties in rows:
        written = (properties, groups.get(moldable_id, ()))
        if written not in interned:
            interned[written] = _intern(written, types, requests_read.shapes)
        shape = interned[written]
        if isinstance(shape, str):
            requests_read.broken[job_id] = shape
        else:
            requests_read.choices[job_id].append(Choice(moldable_id, shape, walltime))
    for job_id in requests_read.broken:
        requests_read.choices.pop(job_id, None)
    return requests_read


def _remember(tx: Tx, moldables: list[int], memory: ShapeCache) -> None:
    """Read the groups of new alternatives into the cache, and drop those of alternatives that are gone."""
    new = [number for number in moldables if number not in memory.groups]
    new_groups = _groups(tx.execute(_stored_groups_of(tx.dialect.name), bind_ids(tx, new))) if new else {}
    memory.groups = {number: new_groups.get(number) or memory.groups.get(number, ()) for number in moldables}


def requests_of(tx: Tx, ids: list[int], types: Types) -> dict[int, ResourceRequest]:
    """Return what each of these jobs asked for; a job whose condition can no longer be read is not in the answer."""
    requests_read = read(tx, bound_job_ids(tx.dialect.name), types, **bind_ids(tx, ids))
    return {
        job_id: ResourceRequest(
            tuple(Alternative(requests_read.shapes[choice.shape].groups, choice.walltime) for choice in choices),
            requests_read.shapes[choices[0].shape].where,
        )
        for job_id, choices in requests_read.choices.items()
    }


@lru_cache(maxsize=16)
def _stored_choices(which: Select[Any]) -> Select[Any]:
    moldable = moldable_job_descriptions.c
    return (
        select(moldable.moldable_id, moldable.moldable_job_id, moldable.moldable_walltime, jobs.c.properties)
        .join(jobs, jobs.c.job_id == moldable.moldable_job_id)
        .where(moldable.moldable_job_id.in_(which))
        .order_by(moldable.moldable_id)
    )


@lru_cache(maxsize=16)
def _stored_groups(which: Select[Any]) -> Select[Any]:
    return _all_groups().where(moldable_job_descriptions.c.moldable_job_id.in_(which))


@cache
def _stored_groups_of(engine: str) -> Select[Any]:
    return _all_groups().where(id_in(engine, job_resource_groups.c.res_group_moldable_id))


def _all_groups() -> Select[Any]:
    group, level = job_resource_groups.c, job_resource_descriptions.c
    return (
        select(
            group.res_group_moldable_id,
            group.res_group_id,
            group.res_group_property,
            level.res_job_resource_type,
            level.res_job_value,
        )
        .select_from(moldable_job_descriptions)
        .join(job_resource_groups, group.res_group_moldable_id == moldable_job_descriptions.c.moldable_id)
        .join(job_resource_descriptions, level.res_job_group_id == group.res_group_id)
        .order_by(group.res_group_id, level.res_job_order)
    )


def _groups(rows: Iterable[Any]) -> dict[int, _Groups]:
    """Collect the stored groups of every moldable alternative."""
    by_moldable: defaultdict[int, list[tuple[str, list[tuple[str, int]]]]] = defaultdict(list)
    last = None
    for moldable_id, group_id, text, name, count in rows:
        if group_id != last:
            last, levels = group_id, list[tuple[str, int]]()
            by_moldable[moldable_id].append((text, levels))
        levels.append((name, count))
    return {
        moldable_id: tuple([(text, tuple(levels)) for text, levels in groups])
        for moldable_id, groups in by_moldable.items()
    }


def _intern(written: _Written, types: Types, shapes: list[Shape]) -> int | str:
    """Parse a stored shape; return its index in `shapes`, or the sentence that says why it cannot be parsed."""
    properties, groups = written
    try:
        request = ResourceRequest(
            (
                Alternative(
                    tuple(
                        ResourceGroup(tuple(Level(name, count) for name, count in levels), _condition(text))
                        for text, levels in groups
                    )
                ),
            ),
            _condition(properties),
        )
        checked = requests.check(request, types)
    except OarlockError as error:
        return str(error)
    shapes.append(Shape(checked.alternatives[0].groups, checked.where))
    return len(shapes) - 1


@lru_cache(maxsize=4096)
def _condition(text: str) -> Condition | None:
    return parse(text, limits=STORED) if text else None


_WALLTIMES = BoundRows("lasting", id=INTEGER, seconds=INTEGER)


def walltimes(tx: Tx, ids: Collection[int]) -> dict[int, int]:
    """Return the walltimes of moldable alternatives, in seconds."""
    return dict(tuple(row) for row in tx.execute(_walltimes(tx.dialect.name), bind_ids(tx, ids)))


@cache
def _walltimes(engine: str) -> Select[Any]:
    moldable = moldable_job_descriptions.c
    return select(moldable.moldable_id, moldable.moldable_walltime).where(id_in(engine, moldable.moldable_id))


def starts_and_walltimes(tx: Tx, states: Collection[JobState]) -> list[tuple[int, int, int]]:
    """Return the jobs in these states with their start and the walltime of the alternative that was chosen (else 0)."""
    moldable = moldable_job_descriptions.c
    rows = tx.execute(
        select(jobs.c.job_id, jobs.c.start_time, moldable.moldable_walltime)
        .outerjoin(moldable_job_descriptions, moldable.moldable_id == jobs.c.assigned_moldable_job)
        .where(jobs.c.state.in_([state.value for state in states]))
        .order_by(jobs.c.job_id)
    )
    return [(number, start, walltime or 0) for number, start, walltime in rows]


def set_walltimes(tx: Tx, walltimes: Mapping[int, int]) -> None:
    """Update the walltimes of moldable alternatives."""
    new_walltimes = _WALLTIMES.table(tx.dialect.name)
    tx.execute(
        update(moldable_job_descriptions)
        .where(moldable_job_descriptions.c.moldable_id == new_walltimes.c.id)
        .values(moldable_walltime=new_walltimes.c.seconds),
        _WALLTIMES.parameters(tx, list(walltimes.items())),
    )
