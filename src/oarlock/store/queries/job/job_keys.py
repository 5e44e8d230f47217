"""Keys of jobs, by their fingerprints and public halves. A private key is never stored in the database."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, Update, bindparam, select, update

from oarlock.model.job import FINAL, JobState
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import challenges, jobs

_YES_NO = {False: "NO", True: "YES"}
_LIVE = [state.value for state in JobState if state not in FINAL]
_COLUMNS = ["job_id", "challenge", "ssh_public_key", "imported"]


class JobKey(NamedTuple):
    """The key of a job: the fingerprint is empty until a pair that its first node makes was made."""

    fingerprint: str = ""
    public: str = ""
    is_imported: bool = False


def add(tx: Tx, keys: Mapping[range, JobKey]) -> None:
    """Store the keys of new jobs; those of an array have the same one, whose public half stands with the first."""
    rows = [
        (number, key.fingerprint, key.public if number == numbers[0] else None, _YES_NO[key.is_imported])
        for numbers, key in keys.items()
        for number in numbers
    ]
    insert_rows(tx, "challenges", _COLUMNS, rows)


def copy(tx: Tx, job_id: int, to: int) -> None:
    """Copy a copy of a job what its original had: the same key that was brought, or a new pair."""
    key = of_jobs(tx, [job_id]).get(job_id)
    if key is not None:
        add(tx, {range(to, to + 1): key if key.is_imported else JobKey()})


def of_jobs(tx: Tx, ids: Collection[int]) -> dict[int, JobKey]:
    """Return the keys of those jobs that have one."""
    rows = tx.execute(_of_jobs(tx.dialect.name), bind_ids(tx, ids))
    return {row.job_id: JobKey(row.challenge, row.ssh_public_key or "", row.imported == "YES") for row in rows}


@cache
def _of_jobs(engine: str) -> Select[Any]:
    return select(*(challenges.c[name] for name in _COLUMNS)).where(id_in(engine, challenges.c.job_id))


def set_generated(tx: Tx, job_id: int, key: JobKey) -> None:
    """Store the fingerprint and the public half of the pair that a node made for a job."""
    tx.execute(_SET, {"job": job_id, "fingerprint": key.fingerprint, "public": key.public})


_SET: Update = (
    update(challenges)
    .where(challenges.c.job_id == bindparam("job"), challenges.c.imported == "NO")
    .values(challenge=bindparam("fingerprint"), ssh_public_key=bindparam("public"))
)


def live_owners(tx: Tx, fingerprints: Collection[str]) -> dict[str, set[str]]:
    """Return the users whose jobs that are not over have these keys, by fingerprint."""
    owners: dict[str, set[str]] = {}
    query = select(challenges.c.challenge, jobs.c.job_user).distinct()
    for fingerprint, user in tx.execute(_with_live_jobs(query, sorted(fingerprints))):
        owners.setdefault(fingerprint, set()).add(user)
    return owners


def live_jobs(tx: Tx, fingerprint: str) -> list[int]:
    """Return the jobs that have a key and are not over, the newest first."""
    query = _with_live_jobs(select(challenges.c.job_id), [fingerprint]).order_by(challenges.c.job_id.desc())
    return list(tx.execute(query).scalars())


def _with_live_jobs(query: Select[Any], fingerprints: Sequence[str]) -> Select[Any]:
    return query.join_from(challenges, jobs, challenges.c.job_id == jobs.c.job_id).where(
        challenges.c.challenge.in_(fingerprints), jobs.c.state.in_(_LIVE)
    )
