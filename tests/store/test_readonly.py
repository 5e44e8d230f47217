"""The read-only account of PostgreSQL reads what is public and nothing else."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from oarlock.store.engine.opening import open_database
from oarlock.store.queries import jobs
from oarlock.store.queries.readonly import grant_reader
from oarlock.store.tables import HIDDEN_JOB_COLUMNS
from tests.databases import Postgres
from tests.store.cluster import new


@pytest.fixture(scope="module")
def reader(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """A login of the account, in a database where a job has a canary in everything that is hidden."""
    url = postgres.make(template="oarlock_template")
    with open_database(url) as database:
        canary = dict.fromkeys(("command", "environment", "initial_request", "message", "notify"), "canary")
        database.write(lambda tx: jobs.add(tx, [new(name="visible", **canary)]))
        for _ in range(2):  # as at every start
            database.write(lambda tx: grant_reader(tx, "oar_ro", password="it's a secret"))
    with psycopg.connect(url, user="oar_ro", password="it's a secret", autocommit=True) as connection:
        yield connection
    postgres.drop(url)
    postgres.run("DROP ROLE oar_ro")


def test_it_reads_jobs_and_resources(reader: psycopg.Connection):
    assert reader.execute("SELECT job_name, state, job_user FROM jobs").fetchall() == [("visible", "Waiting", "ada")]
    assert reader.execute("SELECT count(*) FROM resources, queues, accounting, event_logs").fetchone() == (0,)
    assert reader.execute("SELECT job_id, number, outcome FROM attempts").fetchall() == []


@pytest.mark.parametrize("column", sorted(HIDDEN_JOB_COLUMNS))
def test_it_cannot_read_what_is_hidden_of_a_job(reader: psycopg.Connection, column: str):
    for query in (f"SELECT {column} FROM jobs", f"SELECT job_id FROM jobs WHERE {column} LIKE 'c%'"):
        with pytest.raises(errors.InsufficientPrivilege):
            reader.execute(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM challenges",
        "SELECT count(*) FROM challenges",
        "SELECT * FROM tokens",
        "SELECT answer FROM request_ids",
        "SELECT secret_hash FROM attempts",
        "SELECT * FROM jobs",
        "SELECT row_to_json(jobs) FROM jobs",
    ],
)
def test_it_cannot_read_secrets(reader: psycopg.Connection, query: str):
    with pytest.raises(errors.InsufficientPrivilege):
        reader.execute(query)


def test_it_cannot_write_even_when_it_asks_to(reader: psycopg.Connection):
    reader.execute("SET default_transaction_read_only = off")
    for statement in ("DELETE FROM queues", "UPDATE jobs SET state = 'Error'", "CREATE TABLE t (i int)"):
        with pytest.raises(errors.InsufficientPrivilege):
            reader.execute(statement)
