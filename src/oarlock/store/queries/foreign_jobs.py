"""Owners of jobs, read from the databases of other resource managers (OAR, Slurm), which are never written.

OAR's PostgreSQL is asked directly. Slurm's MariaDB is asked through MariaDB's own command line client, which is there
wherever slurmdbd is: the statement is made here and the client's answer is read here; running it is the caller's part.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psycopg
from sqlalchemy import column, select, table
from sqlalchemy.dialects import mysql

from oarlock.model.errors import ConfigRefused

_TIMEOUT_SECONDS = 10
_CLUSTER = re.compile(r"[a-z0-9_-]{1,40}")
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}
_READ_ONLY = "SET SESSION TRANSACTION READ ONLY;\n"


class ForeignJob(NamedTuple):
    """A job as another resource manager's database has it."""

    id: int
    user: str
    account: str
    name: str


def oar_jobs(conninfo: str, jobs: Sequence[int]) -> list[ForeignJob]:
    """Query OAR's database for jobs, in a read-only transaction. OAR's projects stand for accounts."""
    with psycopg.connect(conninfo, connect_timeout=_TIMEOUT_SECONDS) as connection:
        connection.read_only = True
        rows = connection.execute(
            "SELECT job_id, job_user, project, job_name FROM jobs WHERE job_id = ANY(%s)", (list(jobs),)
        )
        return [ForeignJob(row[0], row[1] or "", row[2] or "", row[3] or "") for row in rows]


def slurm_statement(cluster: str, jobs: Iterable[int]) -> str:
    """Build the statement that queries slurmdbd's database for jobs of a cluster; of equal numbers the oldest first."""
    if not _CLUSTER.fullmatch(cluster):
        raise ConfigRefused(f"`{cluster}` is not the name of a cluster in slurmdbd.", hint="Give --slurm-cluster NAME.")
    job = table(f"{cluster}_job_table", *map(column, ("id_job", "account", "job_name", "id_assoc", "time_submit")))
    owner = table(f"{cluster}_assoc_table", column("id_assoc"), column("user"))
    wanted = (
        select(job.c.id_job, owner.c.user, job.c.account, job.c.job_name)
        .select_from(job.outerjoin(owner, owner.c.id_assoc == job.c.id_assoc))
        .where(job.c.id_job.in_([int(number) for number in jobs]))
        .order_by(job.c.time_submit)
    )
    compiled = wanted.compile(dialect=mysql.dialect(), compile_kwargs={"literal_binds": True})
    return f"{_READ_ONLY}{compiled};\n"


def slurm_jobs(answer: str) -> list[ForeignJob]:
    """Parse the output of MariaDB's client in batch mode: tabs between columns, backslash escapes."""
    rows = (line.split("\t") for line in answer.splitlines())
    return [ForeignJob(int(row[0]), *map(_plain, row[1:])) for row in rows if len(row) == len(ForeignJob._fields)]


def _plain(text: str) -> str:
    return "" if text == "NULL" else re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
