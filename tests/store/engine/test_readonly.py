"""The read-only account of PostgreSQL reads what is public and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg import errors

from oarlock.config import Config
from oarlock.server.instance import open_instance
from oarlock.settings.kinds import DbType
from oarlock.settings.secret import Secret
from oarlock.store.engine.engines import grant_reader
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.job import new_jobs
from oarlock.store.tables import HIDDEN_JOB_COLUMNS, metadata
from tests.databases import Postgres
from tests.store.cluster import new
from tests.store.tables.test_migrations import MANUAL


@pytest.fixture(scope="module")
def reader(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """A login of the account, in a database where a job has a canary in everything that is hidden."""
    url = postgres.make(template="oarlock_template")
    with open_database(url) as database:
        canary = dict.fromkeys(("command", "environment", "initial_request", "message", "notify"), "canary")
        database.write(lambda tx: new_jobs.add(tx, [new(name="visible", **canary)]))
        for _ in range(2):  # as at every start
            database.write(lambda tx: grant_reader(tx, "oar_ro", password="it's a secret"))
    with psycopg.connect(url, user="oar_ro", password="it's a secret", autocommit=True) as connection:
        yield connection
    postgres.drop(url)
    postgres.run("DROP ROLE oar_ro")


@pytest.mark.manual(156)
def test_it_reads_jobs_and_resources(reader: psycopg.Connection):
    assert reader.execute("SELECT job_name, state, job_user FROM jobs").fetchall() == [("visible", "Waiting", "ada")]
    assert reader.execute("SELECT count(*) FROM resources, queues, accounting, event_logs").fetchone() == (0,)
    assert reader.execute("SELECT job_id, number, outcome FROM attempts").fetchall() == []


@pytest.mark.parametrize("column", sorted(HIDDEN_JOB_COLUMNS))
def test_it_cannot_read_what_is_hidden_of_a_job(reader: psycopg.Connection, column: str):
    for query in (f"SELECT {column} FROM jobs", f"SELECT job_id FROM jobs WHERE {column} LIKE 'c%'"):
        with pytest.raises(errors.InsufficientPrivilege):
            reader.execute(query)


@pytest.mark.manual(113)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM challenges",
        "SELECT count(*) FROM challenges",
        "SELECT * FROM tokens",
        "SELECT * FROM browser_sessions",
        "SELECT answer FROM request_ids",
        "SELECT script FROM job_scripts",
        "SELECT secret_hash FROM attempts",
        "SELECT * FROM jobs",
        "SELECT row_to_json(jobs) FROM jobs",
    ],
)
def test_it_cannot_read_secrets(reader: psycopg.Connection, query: str):
    with pytest.raises(errors.InsufficientPrivilege):
        reader.execute(query)


READABLE_BESIDE_THE_MANUAL = {
    "account_doubts", "agent_jobs", "archive_pins", "attempt_nodes", "attempts", "energy_days", "energy_shares",
    "job_summaries", "maintenance", "monitoring_samples", "quotas", "site_notices", "start_predictions",
    "unknown_attempts", "usage_days", "walltime_change",
}  # fmt: skip
"""Tables of our own that it may read. A new table is named here, or its name in `engines` says that it is secret."""


@pytest.mark.manual(113, 156)
def test_it_reads_every_table_of_the_manual_but_the_challenges(reader: psycopg.Connection):
    readable = {table for table, _ in _columns_of("oar_ro", reader)}
    assert readable == (MANUAL - {"challenges"}) | READABLE_BESIDE_THE_MANUAL
    jobs = {column for table, column in _columns_of("oar_ro", reader) if table == "jobs"}
    assert set(metadata.tables["jobs"].columns.keys()) - jobs == HIDDEN_JOB_COLUMNS


def test_it_cannot_write_even_when_it_asks_to(reader: psycopg.Connection):
    reader.execute("SET default_transaction_read_only = off")
    for statement in ("DELETE FROM queues", "UPDATE jobs SET state = 'Error'", "CREATE TABLE t (i int)"):
        with pytest.raises(errors.InsufficientPrivilege):
            reader.execute(statement)


def _settings(url: str, **more: object) -> Config:
    parts = urlsplit(url)
    return Config(
        db_type=DbType.POSTGRESQL,
        db_hostname=parse_qs(parts.query)["host"][0],
        db_base_name=parts.path.lstrip("/"),
        db_base_passwd=None,
        db_base_passwd_ro=Secret("only to read"),
        **more,
    )


def _columns_of(role: str, connection: psycopg.Connection) -> set[tuple[str, str]]:
    rows = connection.execute(
        "SELECT table_name, column_name FROM information_schema.column_privileges"
        " WHERE grantee = %s AND privilege_type = 'SELECT' AND table_schema = 'public'",
        [role],
    )
    return {(table, column) for table, column in rows}


@pytest.mark.manual(156)
def test_a_server_makes_the_account_at_its_start(postgres: Postgres, tmp_path: Path):
    url = postgres.make(template="oarlock_template")
    config = _settings(url, db_base_login="postgres", db_base_login_ro="portal")
    try:
        for password in ("the first", "another"):  # a password that changed holds after the next start
            settings = replace(config, db_base_passwd_ro=Secret(password))
            with open_instance(tmp_path, settings):
                pass
            with psycopg.connect(url, user="portal", password=password, autocommit=True) as connection:
                readable = _columns_of("portal", connection)
        assert ("jobs", "state") in readable
        hidden = {("jobs", column) for column in HIDDEN_JOB_COLUMNS} | {("unknown_attempts", "tag")}
        hidden |= {("attempts", "nonce"), ("array_texts", "job_env"), ("array_members", "command")}
        assert not readable & hidden
    finally:
        postgres.drop(url)
        postgres.run("DROP ROLE portal")


def test_a_server_that_may_not_make_the_account_starts_and_warns(postgres: Postgres, tmp_path: Path, caplog):
    url = postgres.make(template="template0")
    name = url.partition("?")[0].rpartition("/")[2]
    postgres.run("CREATE ROLE plain LOGIN")
    postgres.run(f"ALTER DATABASE {name} OWNER TO plain")
    try:
        for role, why in (("portal", "cannot be made: permission denied"), ("plain", "is the server's own account")):
            caplog.clear()
            with open_instance(tmp_path, _settings(url, db_base_login="plain", db_base_login_ro=role)) as database:
                database.write(lambda tx: new_jobs.add(tx, [new()]))
            [record] = [record for record in caplog.records if record.message == "no read-only account"]
            assert why in record.why
    finally:
        postgres.drop(url)
        postgres.run("DROP ROLE plain")
