"""Warnings that jobs got because of a finding: after how many idle minutes, and when."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import delete, insert, select

from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import finding_warnings


def of_jobs(tx: Tx, ids: Collection[int]) -> Mapping[tuple[int, str], dict[int, int]]:
    """Return when jobs were warned, by job and rule, and then by the idle minutes of the warning."""
    row = finding_warnings.c
    warned: defaultdict[tuple[int, str], dict[int, int]] = defaultdict(dict)
    query = select(row.job_id, row.rule, row.idle_minutes, row.date).where(id_in(tx.dialect.name, row.job_id))
    for job, rule, minutes, at in tx.execute(query, bind_ids(tx, ids)):
        warned[job, rule][minutes] = at
    return warned


def put(tx: Tx, job: int, rule: str, minutes: int, *, at: int) -> None:
    """Store a warning; it takes the place of the one of an earlier idle stretch."""
    row = finding_warnings.c
    tx.execute(delete(finding_warnings).where(row.job_id == job, row.rule == rule, row.idle_minutes == minutes))
    values = {"job_id": job, "rule": rule, "idle_minutes": minutes, "date": at}
    tx.execute(insert(finding_warnings), values)
