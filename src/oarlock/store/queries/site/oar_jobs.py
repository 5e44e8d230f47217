"""Jobs of an OAR 2 that are over, with all that belongs to them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Table, select

from oarlock.model.errors import Conflict
from oarlock.model.job import FINAL
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx, skip_ids
from oarlock.store.queries.site.imported_rows import FreeNumbers, ImportCounts, fitted, insert
from oarlock.store.queries.site.oar_reader import OarReader, SourceRow
from oarlock.store.tables import (
    assigned_resources,
    frag_jobs,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
    walltime_change,
)

_OVER = tuple(sorted(FINAL))
_LOG = "LOG"


def import_jobs(tx: Tx, source: OarReader, report: ImportCounts, say: Callable[[str], None]) -> None:
    """Copy jobs that are over with all that belongs to them; the others are counted and left to OAR."""
    numbers = {
        table_.name: FreeNumbers(tx, next(iter(table_.primary_key)), source.highest(table_.name, _first_key(table_)))
        for table_ in (moldable_job_descriptions, job_resource_groups, job_types, job_state_logs)
    }
    living: Counter[str] = Counter()
    total, done = source.count("jobs"), 0
    for page in source.pages("jobs", "job_id"):
        over = [row for row in page if row["state"] in _OVER]
        living.update(str(row["state"]) for row in page if row["state"] not in _OVER)
        new = _not_here(tx, over)
        report.present["jobs"] += len(over) - len(new)
        if new:
            _write_jobs(tx, source, new, numbers, report)
        done += len(page)
        if done < total:
            say(f"{done} of {total} jobs read")
    for state, count in sorted(living.items()):
        report.no_place.append(f"jobs: {count} in state {state}; import again when they are over.")
    # A job of ours must not have the number of one that OAR still runs.
    skip_ids(tx, jobs.c.job_id, source.highest("jobs", "job_id"))


def _first_key(table_: Table) -> str:
    return next(iter(table_.primary_key)).name


def _not_here(tx: Tx, rows: Sequence[SourceRow]) -> list[SourceRow]:
    """Return the jobs that are not here yet; `Conflict` if a number is that of another job."""
    job = jobs.c
    query = select(job.job_id, job.job_user, job.submission_time).where(id_in(tx.dialect.name, job.job_id))
    here = {row.job_id: row for row in tx.execute(query, bind_ids(tx, [int(row["job_id"]) for row in rows]))}
    for row in rows:
        other = here.get(int(row["job_id"]))
        if other is not None and (other[1], other[2]) != (row["job_user"], int(row["submission_time"])):
            raise Conflict(
                f"Job {other[0]} of {other[1]} is here already, and OAR's job {other[0]} is of {row['job_user']}.",
                hint="Import before the first job of this instance, or into another one: nothing was changed.",
            )
    return [row for row in rows if int(row["job_id"]) not in here]


def _write_jobs(
    tx: Tx, source: OarReader, new: Sequence[SourceRow], numbers: Mapping[str, FreeNumbers], report: ImportCounts
) -> None:
    ids = [int(row["job_id"]) for row in new]
    moldables = source.of("moldable_job_descriptions", "moldable_job_id", ids, ["moldable_id"])
    chosen = numbers["moldable_job_descriptions"].of(int(row["moldable_id"]) for row in moldables)
    rows = [
        fitted(
            jobs, row, cpuset_name=f"{row['job_user']}_{row['job_id']}", file_id=None,
            assigned_moldable_job=chosen.get(int(row["assigned_moldable_job"] or 0), 0),
            array_id=int(row.get("array_id") or row["job_id"]),
        )
        for row in new
    ]  # fmt: skip
    insert(tx, jobs, rows, report)
    described = [
        fitted(moldable_job_descriptions, row, moldable_id=chosen[int(row["moldable_id"])], moldable_index=_LOG)
        for row in moldables
    ]
    insert(tx, moldable_job_descriptions, described, report)
    _write_requests(tx, source, chosen, numbers["job_resource_groups"], report)
    held = source.of("assigned_resources", "moldable_job_id", list(chosen), ["moldable_job_id", "resource_id"])
    given = [
        fitted(
            assigned_resources, row, moldable_job_id=chosen[int(row["moldable_job_id"])], assigned_resource_index=_LOG
        )
        for row in held
    ]  # fmt: skip
    insert(tx, assigned_resources, given, report)
    _write_kinds(tx, source, ids, numbers, report)
    needs = source.of("job_dependencies", "job_id", ids, ["job_id", "job_id_required"])
    insert(tx, job_dependencies, [fitted(job_dependencies, row, job_dependency_index=_LOG) for row in needs], report)
    killed = source.of("frag_jobs", "frag_id_job", ids, ["frag_id_job"])
    insert(tx, frag_jobs, [fitted(frag_jobs, row, frag_state="FRAGGED") for row in killed], report)
    longer = source.of("walltime_change", "job_id", ids, ["job_id"])
    insert(tx, walltime_change, [fitted(walltime_change, row) for row in longer], report)


def _write_requests(
    tx: Tx, source: OarReader, moldables: Mapping[int, int], numbers: FreeNumbers, report: ImportCounts
) -> None:
    groups = source.of("job_resource_groups", "res_group_moldable_id", list(moldables), ["res_group_id"])
    chosen = numbers.of(int(row["res_group_id"]) for row in groups)
    rows = [
        fitted(
            job_resource_groups, row, res_group_id=chosen[int(row["res_group_id"])],
            res_group_moldable_id=moldables[int(row["res_group_moldable_id"])], res_group_index=_LOG,
        )
        for row in groups
    ]  # fmt: skip
    insert(tx, job_resource_groups, rows, report)
    levels = source.of(
        "job_resource_descriptions", "res_job_group_id", list(chosen), ["res_job_group_id", "res_job_order"]
    )
    descriptions = [
        fitted(
            job_resource_descriptions, row, res_job_group_id=chosen[int(row["res_job_group_id"])], res_job_index=_LOG
        )
        for row in levels
    ]  # fmt: skip
    insert(tx, job_resource_descriptions, descriptions, report)


def _write_kinds(
    tx: Tx, source: OarReader, ids: Sequence[int], numbers: Mapping[str, FreeNumbers], report: ImportCounts
) -> None:
    """Write types and states."""
    types = source.of("job_types", "job_id", ids, ["job_type_id"])
    chosen = numbers["job_types"].of(int(row["job_type_id"]) for row in types)
    rows = [fitted(job_types, row, job_type_id=chosen[int(row["job_type_id"])], type_index=_LOG) for row in types]
    insert(tx, job_types, rows, report)
    stays = source.of("job_state_logs", "job_id", ids, ["job_state_log_id"])
    chosen = numbers["job_state_logs"].of(int(row["job_state_log_id"]) for row in stays)
    rows = [fitted(job_state_logs, row, job_state_log_id=chosen[int(row["job_state_log_id"])]) for row in stays]
    insert(tx, job_state_logs, rows, report)
