"""Large arrays: written in slices, so that others can write in between, and visible all at once or not at all.

Everything but the rows of `jobs` is written first. It is invisible, since every query begins with a row of `jobs`;
these are inserted in the last transaction, by one statement. What a server that died left is removed at the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Delete, Insert, String, bindparam, cast, delete, insert, literal_column, select, update

from oarlock.model.condition import Condition
from oarlock.model.job import Job
from oarlock.model.record import changed
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.jobs import COLUMNS, NewJob, add_details, add_texts, allocate_numbers, row_of, text_of
from oarlock.store.tables import (
    array_members,
    array_texts,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
)
from oarlock.store.tables.columns import INTEGER


@dataclass(frozen=True, slots=True)
class IncomingArray:
    """An array that is being written: its first member, and what all members have in common."""

    first: Job
    new: NewJob
    parameters: Sequence[str]

    @property
    def numbers(self) -> range:
        """The numbers of its members, in their order."""
        return range(self.first.id, self.first.id + len(self.parameters))


def begin(tx: Tx, new: NewJob, parameters: Sequence[str]) -> IncomingArray:
    """Allocate numbers for an array, and store what its members share; `new` describes each of them."""
    numbers = allocate_numbers(tx, len(parameters))
    text = text_of(new.request.where, {})
    first = changed(new.job, id=numbers[0], array_id=numbers[0], array_index=1, properties=text)
    add_texts(tx, first, last_job_id=numbers[-1], stored=False)
    return IncomingArray(first, new, parameters)


def add_slice(tx: Tx, incoming: IncomingArray, places: range) -> None:
    """Store some members of an array, but for their rows in `jobs`: those at these places, counted from 0."""
    numbers = [incoming.numbers[place] for place in places]
    members = [
        (number, incoming.first.id, place + 1, incoming.parameters[place] or None)
        for number, place in zip(numbers, places, strict=True)
    ]
    insert_rows(tx, "array_members", ["job_id", "array_id", "array_index", "command"], members)
    texts: dict[Condition, str] = {}
    add_details(tx, numbers, [incoming.new] * len(numbers), texts)


def finish(tx: Tx, incoming: IncomingArray) -> None:
    """Publish all members of an array at once."""
    first = incoming.first
    constants = dict(zip(COLUMNS, row_of(changed(first, environment="", initial_request="")), strict=True))
    tx.execute(_ADD_JOBS, {**{f"all_{name}": constants[name] for name in _SAME}, "array": first.id, "user": first.user})
    tx.execute(delete(array_members).where(array_members.c.array_id == first.id))
    tx.execute(update(array_texts).where(array_texts.c.array_id == first.id).values(stored="YES"))


_OWN: dict[str, Any] = {
    "job_id": array_members.c.job_id,
    "array_index": array_members.c.array_index,
    "command": array_members.c.command,
    "texts_id": array_members.c.array_id,
    "cpuset_name": bindparam("user", type_=String()) + literal_column("'_'") + cast(array_members.c.job_id, String),
}
_SAME = [name for name in COLUMNS if name not in _OWN]
_ADD_JOBS: Insert = insert(jobs).from_select(
    [*_OWN, *_SAME],
    select(*_OWN.values(), *(bindparam(f"all_{name}", type_=jobs.c[name].type) for name in _SAME))
    .where(array_members.c.array_id == bindparam("array"))
    .order_by(array_members.c.job_id),
    include_defaults=False,
)


def unfinished(tx: Tx) -> list[range]:
    """Return the numbers of arrays that were begun and not finished."""
    texts = array_texts.c
    rows = tx.execute(select(texts.array_id, texts.last_job_id).where(texts.stored == literal_column("'NO'")))
    return [range(first, last + 1) for first, last in rows]


def remove_unfinished(tx: Tx, numbers: range) -> None:
    """Remove what was written of an array, unless it was finished after all."""
    if numbers in unfinished(tx):
        remove(tx, numbers)


def remove(tx: Tx, numbers: range) -> None:
    """Remove what was written of an array that was not finished."""
    for statement in _REMOVALS:
        tx.execute(statement, {"first": numbers[0], "last": numbers[-1]})


def _removals() -> list[Delete]:
    first, last = bindparam("first", type_=INTEGER), bindparam("last", type_=INTEGER)
    moldable, group = moldable_job_descriptions.c, job_resource_groups.c
    alternatives = select(moldable.moldable_id).where(moldable.moldable_job_id.between(first, last))
    groups = select(group.res_group_id).where(group.res_group_moldable_id.in_(alternatives))
    return [
        delete(job_resource_descriptions).where(job_resource_descriptions.c.res_job_group_id.in_(groups)),
        delete(job_resource_groups).where(group.res_group_moldable_id.in_(alternatives)),
        delete(moldable_job_descriptions).where(moldable.moldable_job_id.between(first, last)),
        *(
            delete(table).where(table.c.job_id.between(first, last))
            for table in (job_state_logs, job_types, job_dependencies, array_members)
        ),
        delete(array_texts).where(array_texts.c.array_id == first),
    ]


_REMOVALS = _removals()
