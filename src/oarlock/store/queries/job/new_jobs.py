"""New jobs: stored with all they ask for, an array at once or in slices.


A large array is written in slices, so that others can write in between, and is visible all at once or not at all.
Everything but the rows of `jobs` is written first. It is invisible, since every query begins with a row of `jobs`;
these are inserted in the last transaction, by one statement. What a server that died left is removed at the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    Delete,
    Insert,
    String,
    bindparam,
    cast,
    delete,
    insert,
    literal_column,
    select,
    update,
)

from oarlock.lang.where import show
from oarlock.model.condition import Condition
from oarlock.model.job import Job
from oarlock.model.submission import ResourceRequest
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.queries.job.jobs import FIELDS, with_parameters
from oarlock.store.queries.job.moves import shorten_reason
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

_YES_NO = {False: "NO", True: "YES"}


class NewJob(Struct, frozen=True):
    """A job to be stored: its fields (numbers are allocated by `add`), its request, and the jobs it waits for.

    Every alternative has its walltime by now. The text in `properties` is made from the request's own condition. What
    stands in `parameters` comes behind the command, which the members of an array have in common.
    """

    job: Job
    request: ResourceRequest
    after: tuple[int, ...] = ()
    parameters: str = ""


def add(tx: Tx, new: Sequence[NewJob]) -> list[Job]:
    """Store jobs with all they ask for, in the states they have, in as many statements for thousands as for one.

    A job whose array index is 1 begins an array (of one, for most); those that follow with other indexes belong to it,
    and share its command, environment and request as it was typed. The jobs that are returned have no `parameters`.
    """
    numbers = allocate_numbers(tx, len(new))
    texts: dict[Condition, str] = {}
    added: list[Job] = []
    for number, job_to_add in zip(numbers, new, strict=True):
        array_id = number if job_to_add.job.array_index == 1 or not added else added[-1].array_id
        text = text_of(job_to_add.request.where, texts)
        added.append(replace(job_to_add.job, id=number, array_id=array_id, properties=text))
    shared = _add_texts(tx, added)
    rows = [
        (*row_of(_in_array(job, job_to_add) if job.id in shared else _alone(job, job_to_add)), shared.get(job.id, 0))
        for job, job_to_add in zip(added, new, strict=True)
    ]
    insert_rows(tx, "jobs", [*COLUMNS, "texts_id"], rows)
    add_details(tx, numbers, new, texts)
    return added


def allocate_numbers(tx: Tx, count: int) -> range:
    """Allocate numbers for new jobs; those of arrays that are still being written stay reserved."""
    return allocate_ids(tx, jobs.c.job_id, count, beside=(array_texts.c.last_job_id,))


def _add_texts(tx: Tx, added: Sequence[Job]) -> dict[int, int]:
    """Store what the members of arrays have in common; return the array of each job that has its texts from there."""
    last = {job.array_id: job.id for job in added if job.id != job.array_id}
    if not last:
        return {}
    firsts = {job.id: job for job in added if job.id in last}
    for first in firsts.values():
        add_texts(tx, first, last_job_id=last[first.id], stored=True)
    return {
        job.id: job.array_id
        for job in added
        if job.array_id in last and _texts_of(job) == _texts_of(firsts[job.array_id])
    }


def _texts_of(job: Job) -> tuple[str | None, str, str]:
    return job.command, job.environment, job.initial_request


def add_texts(tx: Tx, first: Job, *, last_job_id: int, stored: bool) -> None:
    """Store what the members of one array have in common, its first one given."""
    columns = ["array_id", "last_job_id", "command", "job_env", "initial_request", "stored"]
    row = (first.id, last_job_id, first.command, first.environment, first.initial_request, _YES_NO[stored])
    insert_rows(tx, "array_texts", columns, [row])


def _in_array(job: Job, new: NewJob) -> Job:
    return replace(job, command=new.parameters or None, environment="", initial_request="")


def _alone(job: Job, new: NewJob) -> Job:
    return replace(job, command=with_parameters(job.command, new.parameters)) if new.parameters else job


def add_details(tx: Tx, numbers: Sequence[int], new: Sequence[NewJob], texts: dict[Condition, str]) -> None:
    """Store everything of jobs but their own rows: their histories, what they ask for, their types and dependencies."""
    _add_logs(tx, numbers, new)
    _add_requests(tx, numbers, [new_job.request for new_job in new], texts)
    types = [(number, type_) for number, new_job in zip(numbers, new, strict=True) for type_ in new_job.job.types]
    numbered = zip(allocate_ids(tx, job_types.c.job_type_id, len(types)), types, strict=True)
    insert_rows(tx, "job_types", ["job_type_id", "job_id", "type"], [(line, *pair) for line, pair in numbered])
    required = [(number, before) for number, new_job in zip(numbers, new, strict=True) for before in set(new_job.after)]
    insert_rows(tx, "job_dependencies", ["job_id", "job_id_required"], required)


COLUMNS: Sequence[str] = (*FIELDS.values(), "cpuset_name")
"""The columns of a job, in the order of `row_of`."""


def row_of(job: Job) -> tuple[Any, ...]:
    """Return a job as its columns."""
    return (
        job.id, job.state.value, job.user, job.queue, job.kind.value, job.name, job.project, job.command,
        job.properties, job.directory, job.environment, job.stdout, job.stderr, job.notify, job.message, job.info,
        job.initial_request, job.reservation.value, job.submitted, job.start, job.stop, job.assigned, job.checkpoint,
        job.checkpoint_signal, job.exit_code, job.resubmit_of, job.array_id, job.array_index,
        _YES_NO[job.suspended], _YES_NO[job.accounted], job.uid, job.file_id, job.login_host,
        job.cpuset_name,
    )  # fmt: skip


def _add_logs(tx: Tx, numbers: Sequence[int], new: Sequence[NewJob]) -> None:
    lines = allocate_ids(tx, job_state_logs.c.job_state_log_id, len(new))
    insert_rows(
        tx,
        "job_state_logs",
        ["job_state_log_id", "job_id", "job_state", "date_start", "why"],
        [
            (line, number, state.value, new_job.job.submitted, shorten_reason(state, "submitted"))
            for line, number, new_job in zip(lines, numbers, new, strict=True)
            for state in [new_job.job.state]
        ],
    )


def _add_requests(
    tx: Tx, numbers: Sequence[int], requests: Sequence[ResourceRequest], texts: dict[Condition, str]
) -> None:
    alternatives = [(n, a) for n, request in zip(numbers, requests, strict=True) for a in request.alternatives]
    moldables = allocate_ids(tx, moldable_job_descriptions.c.moldable_id, len(alternatives))
    insert_rows(
        tx,
        "moldable_job_descriptions",
        ["moldable_id", "moldable_job_id", "moldable_walltime"],
        [(m, number, _walltime(a.walltime)) for m, (number, a) in zip(moldables, alternatives, strict=True)],
    )
    group_rows = [(m, group) for m, (_, a) in zip(moldables, alternatives, strict=True) for group in a.groups]
    groups = allocate_ids(tx, job_resource_groups.c.res_group_id, len(group_rows))
    insert_rows(
        tx,
        "job_resource_groups",
        ["res_group_id", "res_group_moldable_id", "res_group_property"],
        [(g, m, text_of(group.where, texts)) for g, (m, group) in zip(groups, group_rows, strict=True)],
    )
    insert_rows(
        tx,
        "job_resource_descriptions",
        ["res_job_group_id", "res_job_resource_type", "res_job_value", "res_job_order"],
        [
            (g, level.name, level.count, order)
            for g, (_, group) in zip(groups, group_rows, strict=True)
            for order, level in enumerate(group.levels)
        ],
    )


def _walltime(walltime: int | None) -> int:
    if walltime is None:
        raise ValueError("an alternative without a walltime cannot be stored")
    return walltime


def text_of(condition: Condition | None, texts: dict[Condition, str]) -> str:
    """Return the stored text of a condition; `texts` caches it for the members of an array."""
    if condition is None:
        return ""
    if condition not in texts:
        texts[condition] = show(condition)
    return texts[condition]


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


def begin_array(tx: Tx, new: NewJob, parameters: Sequence[str]) -> IncomingArray:
    """Allocate numbers for an array, and store what its members share; `new` describes each of them."""
    numbers = allocate_numbers(tx, len(parameters))
    text = text_of(new.request.where, {})
    first = replace(new.job, id=numbers[0], array_id=numbers[0], array_index=1, properties=text)
    add_texts(tx, first, last_job_id=numbers[-1], stored=False)
    return IncomingArray(first, new, parameters)


def add_array_slice(tx: Tx, incoming: IncomingArray, places: range) -> None:
    """Store some members of an array, but for their rows in `jobs`: those at these places, counted from 0."""
    numbers = [incoming.numbers[place] for place in places]
    members = [
        (number, incoming.first.id, place + 1, incoming.parameters[place] or None)
        for number, place in zip(numbers, places, strict=True)
    ]
    insert_rows(tx, "array_members", ["job_id", "array_id", "array_index", "command"], members)
    texts: dict[Condition, str] = {}
    add_details(tx, numbers, [incoming.new] * len(numbers), texts)


def finish_array(tx: Tx, incoming: IncomingArray) -> None:
    """Publish all members of an array at once."""
    first = incoming.first
    constants = dict(zip(COLUMNS, row_of(replace(first, environment="", initial_request="")), strict=True))
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


def unfinished_arrays(tx: Tx) -> list[range]:
    """Return the numbers of arrays that were begun and not finished."""
    texts = array_texts.c
    rows = tx.execute(select(texts.array_id, texts.last_job_id).where(texts.stored == literal_column("'NO'")))
    return [range(first, last + 1) for first, last in rows]


def remove_unfinished_array(tx: Tx, numbers: range) -> None:
    """Remove what was written of an array, unless it was finished after all."""
    if numbers in unfinished_arrays(tx):
        remove_array(tx, numbers)


def remove_array(tx: Tx, numbers: range) -> None:
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
