"""Plans: when and where jobs will start, for the scheduler and, in copies, for displays."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Delete, Select, Table, bindparam, delete, func, literal_column, select

from oarlock.model.job import JobState, Reservation
from oarlock.model.plan import Plan
from oarlock.model.snapshot import Promise
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import shapes
from oarlock.store.tables import (
    gantt_jobs_predictions,
    gantt_jobs_predictions_visu,
    gantt_jobs_resources,
    gantt_jobs_resources_visu,
    job_types,
    jobs,
    moldable_job_descriptions,
)

_REFERENCE = 0
"""The prediction that is no job's: the date of the pass."""

_COPIES = (
    (gantt_jobs_predictions, gantt_jobs_resources),
    (gantt_jobs_predictions_visu, gantt_jobs_resources_visu),
)


class Prediction(NamedTuple):
    """Where a moldable alternative is planned: from when, on which resources."""

    moldable_id: int
    start: int
    resources: tuple[int, ...]


def predictions(plan: Plan) -> dict[int, Prediction]:
    """Return what is stored of a plan, by moldable number."""
    return {
        place.moldable_id: Prediction(
            place.moldable_id, place.start, tuple(sorted(filter(None, plan.resources(job_id))))
        )
        for job_id, place in plan.placements.items()
    }


def read(tx: Tx, ids: Collection[int] | None = None) -> dict[int, Prediction]:
    """Return the plan as it is stored, by moldable number: all of it, or only what it says of these."""
    if ids is None:
        given, starts, bound = _GIVEN, _STARTS, {}
    else:
        (given, starts), bound = _of_these(tx.dialect.name), bind_ids(tx, ids)
    rows = tx.execute(given, bound).all()
    resources = {key: tuple([resource for _, resource in group]) for key, group in groupby(rows, key=itemgetter(0))}
    return {
        number: Prediction(number, start, resources.get(number, ()))
        for number, start in tx.execute(starts, bound)
        if number != _REFERENCE
    }


_GIVEN = select(gantt_jobs_resources).order_by(
    gantt_jobs_resources.c.moldable_job_id, gantt_jobs_resources.c.resource_id
)
_STARTS = select(gantt_jobs_predictions).order_by(gantt_jobs_predictions.c.moldable_job_id)


@cache
def _of_these(engine: str) -> tuple[Select[Any], Select[Any]]:
    return (
        _GIVEN.where(id_in(engine, gantt_jobs_resources.c.moldable_job_id)),
        _STARTS.where(id_in(engine, gantt_jobs_predictions.c.moldable_job_id)),
    )


def promised(tx: Tx, queue: str) -> dict[int, Promise]:
    """Return the dates promised to the waiting jobs of a queue, by job; reservations have their own dates."""
    starts, given = _stored_promises()
    rows = tx.execute(given, {"queue": queue}).all()
    resources = {key: tuple([resource for _, resource in group]) for key, group in groupby(rows, key=itemgetter(0))}
    return {
        job_id: Promise(number, start, resources.get(number, ()))
        for job_id, number, start in tx.execute(starts, {"queue": queue})
    }


@cache
def _stored_promises() -> tuple[Select[Any], Select[Any]]:
    moldable, predicted, given = moldable_job_descriptions.c, gantt_jobs_predictions.c, gantt_jobs_resources.c
    waits = (
        jobs.c.state == JobState.WAITING.value,
        jobs.c.queue_name == bindparam("queue"),
        jobs.c.reservation == Reservation.NONE.value,
    )
    starts = (
        select(jobs.c.job_id, moldable.moldable_id, predicted.start_time)
        .join(moldable_job_descriptions, moldable.moldable_job_id == jobs.c.job_id)
        .join(gantt_jobs_predictions, predicted.moldable_job_id == moldable.moldable_id)
        .where(*waits)
    )
    resources = (
        select(given.moldable_job_id, given.resource_id)
        .select_from(jobs)
        .join(moldable_job_descriptions, moldable.moldable_job_id == jobs.c.job_id)
        .join(gantt_jobs_resources, given.moldable_job_id == moldable.moldable_id)
        .where(*waits)
        .order_by(given.moldable_job_id, given.resource_id)
    )
    return starts, resources


def planned_starts(tx: Tx, ids: Collection[int]) -> dict[int, int]:
    """Return when jobs are planned to start, by job; those that have no place in the plan are left out."""
    rows = tx.execute(_planned_starts(tx.dialect.name), bind_ids(tx, ids))
    return {row[0]: row[1] for row in rows}


@cache
def _planned_starts(engine: str) -> Select[Any]:
    moldable, predicted = moldable_job_descriptions.c, gantt_jobs_predictions.c
    return (
        select(moldable.moldable_job_id, func.min(predicted.start_time))
        .join(gantt_jobs_predictions, predicted.moldable_job_id == moldable.moldable_id)
        .where(id_in(engine, moldable.moldable_job_id))
        .group_by(moldable.moldable_job_id)
    )


def reserved(tx: Tx) -> dict[int, int]:
    """Return the reservations that were accepted and did not start, each with the alternative that has a place."""
    return {row.job_id: row.moldable_id for row in tx.execute(_RESERVED)}


class ReservedPlace(NamedTuple):
    """What an accepted reservation was promised: [start, stop) on these resources."""

    job_id: int
    start: int
    stop: int
    resources: tuple[int, ...]
    types: tuple[str, ...]


def reserved_places(tx: Tx) -> list[ReservedPlace]:
    """Return what accepted reservations were promised that did not start yet."""
    alternatives = reserved(tx)
    if not alternatives:
        return []
    places, lasting = read(tx, alternatives.values()), shapes.walltimes(tx, alternatives.values())
    types: dict[int, list[str]] = {}
    for number, word in tx.execute(_types_of(tx.dialect.name), bind_ids(tx, alternatives)):
        types.setdefault(number, []).append(word)
    return [
        ReservedPlace(number, place.start, place.start + lasting[chosen], place.resources, tuple(types.get(number, ())))
        for number, chosen in alternatives.items()
        for place in [places[chosen]]
    ]


@cache
def _types_of(engine: str) -> Select[Any]:
    return select(job_types.c.job_id, job_types.c.type).where(id_in(engine, job_types.c.job_id))


ACCEPTED = (
    jobs.c.reservation != literal_column("'None'"),  # a literal, so that the partial index is used
    jobs.c.reservation == Reservation.SCHEDULED.value,
    jobs.c.state.in_([JobState.WAITING.value, JobState.HOLD.value, JobState.TO_ACK_RESERVATION.value]),
)
"""Says of jobs that they are reservations that were accepted and did not start yet, be they held or not."""

_RESERVED = (
    select(jobs.c.job_id, moldable_job_descriptions.c.moldable_id)
    .join(moldable_job_descriptions, moldable_job_descriptions.c.moldable_job_id == jobs.c.job_id)
    .join(gantt_jobs_predictions, gantt_jobs_predictions.c.moldable_job_id == moldable_job_descriptions.c.moldable_id)
    .where(*ACCEPTED)
)


def reference(tx: Tx) -> int | None:
    """Return the date of the last scheduling pass; None before the first."""
    predicted = gantt_jobs_predictions.c
    return tx.execute(select(predicted.start_time).where(predicted.moldable_job_id == _REFERENCE)).scalar()


def difference(before: Mapping[int, Prediction], after: Mapping[int, Prediction]) -> tuple[list[Prediction], list[int]]:
    """Return the changes between two plans: placements that are new or differ, and alternatives without one now."""
    placed = [place for number, place in after.items() if before.get(number) != place]
    return placed, [number for number in before if number not in after]


def write(tx: Tx, *, now: int, placed: Sequence[Prediction], gone: Collection[int] = ()) -> None:
    """Change the plan and its copies: these places are new or other than before, those of `gone` are no more.

    Everybody else keeps the place they have, so that a pass that changes little writes little.
    """
    replaced = [_REFERENCE, *gone, *(place.moldable_id for place in placed)]
    starts = [(_REFERENCE, now), *((place.moldable_id, place.start) for place in placed)]
    given = [(place.moldable_id, resource) for place in placed for resource in place.resources]
    for predictions, resources in _COPIES:
        for table in (predictions, resources):
            tx.execute(_delete(tx.dialect.name, table), bind_ids(tx, replaced))
        insert_rows(tx, predictions.name, _names(predictions), starts)
        insert_rows(tx, resources.name, _names(resources), given)


@cache
def _delete(engine: str, table: Table) -> Delete:
    return delete(table).where(id_in(engine, table.c.moldable_job_id))


@cache
def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]
