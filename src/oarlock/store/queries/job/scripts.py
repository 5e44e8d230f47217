"""Scripts of jobs: of our own as `oarsub -S` sent them, of others as they were submitted to their resource manager."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from sqlalchemy import bindparam, insert, select, update

from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER
from oarlock.store.tables import job_scripts, jobs

KEPT_CHARACTERS = 32 * 1024
"""So much is kept of a script that `oarsub -S` sends: jobs are many, and scripts that long are rare."""

_OWN = ""
"""In place of a cluster: a script that was sent with a submission here. An array has one, under its own number."""


def store(tx: Tx, cluster: str, job: int, script: str, *, now: int, replace: bool = False) -> bool:
    """Store the script of a job; one that is there already stays, unless `replace`. Return whether it was stored."""
    key = {"of_cluster": cluster, "of_job": job}
    if tx.execute(_SCRIPT, key).first() is None:
        tx.execute(insert(job_scripts), {"cluster": cluster, "job": job, "script": script, "date": now})
        return True
    if replace:
        tx.execute(_REPLACE_SCRIPT, {**key, "script": script, "date": now})
    return replace


def find(tx: Tx, cluster: str, job: int) -> str | None:
    """Return the script of a job of a cluster, if it was sent."""
    row = tx.execute(_SCRIPT, {"of_cluster": cluster, "of_job": job}).first()
    return None if row is None else str(row.script)


def keep_submitted(tx: Tx, scripts: Iterable[tuple[int, str]], *, now: int) -> None:
    """Keep the scripts of submissions, each with the number of its first job."""
    rows = [
        {"cluster": _OWN, "job": job, "script": script[:KEPT_CHARACTERS], "date": now} for job, script in scripts
    ]  # fmt: skip
    if rows:
        tx.execute(insert(job_scripts), rows)


def copy_submitted(tx: Tx, array_id: int, copy: int, *, now: int) -> None:
    """Keep the script of a job, named by its array, for another one that is a copy of it."""
    if script := submitted(tx, array_id):
        keep_submitted(tx, [(copy, script)], now=now)


def submitted(tx: Tx, array_id: int) -> str | None:
    """Return the script that was sent with the submission of an array, or of a job alone."""
    return find(tx, _OWN, array_id)


def of_jobs(tx: Tx, ids: Collection[int], *, cluster: str) -> dict[int, str]:
    """Return the scripts of jobs by our numbers. `cluster` is our own: under its name scripts may have been sent."""
    own = [number for number in ids if number < FIRST_NUMBER]
    numbers: defaultdict[str, dict[int, int]] = defaultdict(dict)
    if cluster and own:
        numbers[cluster] = {number: number for number in own}
    if len(own) < len(ids):
        for number, job in agent_jobs.by_number(tx, ids).items():
            if job.job.isdigit():
                numbers[job.cluster][int(job.job)] = number
    sent: dict[int, str] = {}
    for name, theirs in numbers.items():
        query = select(job_scripts.c.job, job_scripts.c.script).where(
            job_scripts.c.cluster == name, id_in(tx.dialect.name, job_scripts.c.job)
        )
        sent |= {theirs[job]: script for job, script in tx.execute(query, bind_ids(tx, list(theirs)))}
    return sent | _submitted_of(tx, own)


def _submitted_of(tx: Tx, ids: Collection[int]) -> dict[int, str]:
    query = (
        select(jobs.c.job_id, job_scripts.c.script)
        .join(job_scripts, job_scripts.c.job == jobs.c.array_id)
        .where(job_scripts.c.cluster == _OWN, id_in(tx.dialect.name, jobs.c.job_id))
    )
    return dict(tuple(row) for row in tx.execute(query, bind_ids(tx, ids)))


_THIS = (job_scripts.c.cluster == bindparam("of_cluster"), job_scripts.c.job == bindparam("of_job"))
_SCRIPT = select(job_scripts.c.script).where(*_THIS)
_REPLACE_SCRIPT = update(job_scripts).where(*_THIS).values(script=bindparam("script"), date=bindparam("date"))
