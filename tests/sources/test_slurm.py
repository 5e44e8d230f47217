"""A Slurm cluster, read from slurmdbd's database with the account that `oarlock sources slurm --grant` makes."""

import asyncio
import subprocess
import sys

import pytest

from oarlock.lang import slurm
from oarlock.model.errors import BadField, ConfigRefused
from oarlock.store.sources.connections import ForeignDatabase, parse_address
from oarlock.store.sources.slurm import SlurmDatabase, grant
from tests.sources.oar_cluster import NOW, ROOT
from tests.sources.test_oar import Portal

RECORDED = next(
    (path for folder in ROOT.parents[:2] if (path := folder / "shared/data/slurm-golden").exists()), None
)  # fmt: skip
JOBS = """CREATE TABLE peer_job_table (
  job_db_inx bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, mod_time bigint unsigned NOT NULL DEFAULT 0,
  deleted tinyint NOT NULL DEFAULT 0, account tinytext, cpus_req int unsigned NOT NULL,
  exit_code int unsigned NOT NULL DEFAULT 0, job_name tinytext NOT NULL, id_assoc int unsigned NOT NULL,
  id_array_job int unsigned NOT NULL DEFAULT 0, id_array_task int unsigned NOT NULL DEFAULT 4294967294,
  id_job int unsigned NOT NULL, id_resv int unsigned NOT NULL, id_wckey int unsigned NOT NULL,
  id_user int unsigned NOT NULL, id_group int unsigned NOT NULL, het_job_id int unsigned NOT NULL,
  het_job_offset int unsigned NOT NULL, state_reason_prev int unsigned NOT NULL, nodelist text,
  nodes_alloc int unsigned NOT NULL, `partition` tinytext NOT NULL, priority int unsigned NOT NULL,
  state int unsigned NOT NULL, timelimit int unsigned NOT NULL DEFAULT 0,
  time_submit bigint unsigned NOT NULL DEFAULT 0, time_eligible bigint unsigned NOT NULL DEFAULT 0,
  time_start bigint unsigned NOT NULL DEFAULT 0, time_end bigint unsigned NOT NULL DEFAULT 0,
  time_suspended bigint unsigned NOT NULL DEFAULT 0, submit_line text, env_hash_inx bigint unsigned NOT NULL DEFAULT 0,
  tres_alloc text NOT NULL DEFAULT '', tres_req text NOT NULL DEFAULT '',
  UNIQUE KEY id_job (id_job, time_submit));"""
ASSOC = """CREATE TABLE peer_assoc_table (creation_time bigint unsigned NOT NULL, id_assoc int unsigned NOT NULL
  AUTO_INCREMENT PRIMARY KEY, `user` tinytext NOT NULL DEFAULT '', acct tinytext NOT NULL, lft int NOT NULL,
  rgt int NOT NULL);"""
EVENTS = """CREATE TABLE peer_event_table (time_start bigint unsigned NOT NULL,
  time_end bigint unsigned NOT NULL DEFAULT 0, node_name tinytext NOT NULL DEFAULT '', cluster_nodes text NOT NULL
  DEFAULT '', reason tinytext NOT NULL, reason_uid int unsigned NOT NULL DEFAULT 4294967294,
  state int unsigned NOT NULL DEFAULT 0, tres text NOT NULL DEFAULT '');"""


def recorded(name):
    """The statement with which slurmdbd made a table, as it was recorded."""
    text = (RECORDED / name).read_text()
    return text[text.index("CREATE TABLE") : text.rindex("[rc=")].strip() + ";"


def job(number, state, start, end, *, inx=None, user=1, nodes="", cpus=2, **more):
    values = {
        "job_db_inx": inx or number, "mod_time": end or start or NOW - 500, "account": "science", "cpus_req": cpus,
        "job_name": f"job {number}", "id_assoc": user, "id_job": number, "id_resv": 0, "id_wckey": 0,
        "id_user": 1000 + user, "id_group": 1, "het_job_id": 0, "het_job_offset": 0, "state_reason_prev": 0,
        "nodelist": nodes, "nodes_alloc": 1, "partition": "main", "priority": 100, "state": state, "timelimit": 60,
        "time_submit": NOW - 5000 + (inx or number), "time_start": start, "time_end": end,
        "tres_alloc": f"1={cpus},2=100,4=1" if nodes else "", "tres_req": f"1={cpus},2=100,4=1", **more,
    }  # fmt: skip
    names = ", ".join(f"`{name}`" for name in values)
    shown = ", ".join(repr(value) for value in values.values())
    return f"REPLACE INTO peer_job_table ({names}) VALUES ({shown});"


def register(node, state, tres, *, all_nodes="", end=0):
    return (
        "INSERT INTO peer_event_table (time_start, time_end, node_name, cluster_nodes, reason, state, tres) "
        f"VALUES ({NOW - 9000}, {end}, '{node}', '{all_nodes}', '', {state}, '{tres}');"
    )


@pytest.fixture(params=["plain", "as slurmdbd made them"])
def accounting(request, mariadb):
    """The address for the account that was granted."""
    if request.param != "plain" and RECORDED is None:
        pytest.skip("Slurm's tables are not recorded here")
    own = request.param == "plain"
    tables = [JOBS if own else recorded("db_schema_job.txt"), ASSOC if own else recorded("db_schema_assoc.txt"), EVENTS]
    rows = [
        *(f"INSERT INTO peer_assoc_table (creation_time, id_assoc, user, acct, lft, rgt) VALUES "
          f"(0, {number}, '{user}', 'science', 0, 0);" for number, user in ((1, "ann"), (2, "bob"))),
        register("", 0, "1=10,2=4000,4=3", all_nodes="n[1-3]"),
        register("n3", 1 | 1 << 9, "1=2,2=100"),
        job(1, 3, NOW - 4000, NOW - 3000, nodes="n1", exit_code=0),
        job(2, 7, NOW - 4500, NOW - 4400, inx=20, nodes="n2"),
        job(2, 1, NOW - 600, 0, inx=21, user=2, nodes="n[1-2]", cpus=3),
        job(3, 0, 0, 0, nodes="None assigned", cpus=8),
        job(4, 0, 0, 0, priority=0),
        job(5, 6, NOW - 3900, NOW - 300, nodes="n1", exit_code=15, id_array_job=5, id_array_task=7),
    ]  # fmt: skip
    mariadb.run("DROP DATABASE IF EXISTS slurm_acct_db; CREATE DATABASE slurm_acct_db;")
    mariadb.run("\n".join([*tables, *rows]), "slurm_acct_db")
    ran = subprocess.run(
        [sys.executable, "-m", "oarlock", "sources", "slurm", "--grant", "--cluster", "peer"],
        capture_output=True, text=True, timeout=60, check=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin"},
    )  # fmt: skip
    mariadb.run(ran.stdout.replace("CHANGE-THIS", "pw"))
    yield mariadb
    mariadb.run("DROP USER oarlock@localhost;")


def source_of(server):
    address = parse_address(server.url("oarlock", "slurm_acct_db"), "pw")
    return SlurmDatabase(ForeignDatabase(address, "Slurm's database"))


def test_the_portal_shows_what_slurm_has(accounting, tmp_path):
    async def story():
        portal = Portal(tmp_path, source_of(accounting))
        try:
            await portal.core.follower.look()
            assert [health.says for health in portal.core.follower.health] == [""] * 4
            everything = ["Running", "Waiting", "Hold", "Terminated", "Error"]
            jobs = (await portal.ask("jobs.list", states=everything)).jobs
            assert [(job.id, job.state, job.owner, job.project, job.walltime, job.start, job.stop) for job in jobs] == [
                (1, "Terminated", "ann", "science", 3600, NOW - 4000, NOW - 3000),
                (2, "Running", "bob", "science", 3600, NOW - 600, 0),
                (3, "Waiting", "ann", "science", 3600, 0, 0),
                (4, "Hold", "ann", "science", 3600, 0, 0),
                (5, "Error", "ann", "science", 3600, NOW - 3900, NOW - 300),
            ]
            assert (await portal.ask("jobs.show", id=5)).message == "Slurm: TIMEOUT"
            overview = await portal.ask("overview")
            assert [(node.name, node.state, node.cores, node.held) for node in overview.nodes] == [
                ("n1", "alive", 4, 2), ("n2", "alive", 4, 1), ("n3", "dead", 2, 0)
            ]  # fmt: skip
            chart = await portal.ask("gantt", since=NOW - 5000, until=NOW + 100)
            held = {bar.id: bar.resources for bar in chart.jobs}
            assert {number: len(cores) for number, cores in held.items()} == {1: 2, 2: 3, 5: 2}
            assert not set(held[1]) & set(held[5])  # both ran on n1 at once
            assert [queue.name for queue in overview.queues] == ["main"]
            assert {(bar.state, bar.start, bar.stop) for bar in chart.states} == {("Dead", NOW - 9000, NOW + 100)}
            assert len(chart.states) == 2, "n3 and its cores"
            accounting.run(job(2, 3, NOW - 600, NOW, inx=21, user=2, nodes="n[1-2]", cpus=3), "slurm_acct_db")
            await portal.core.follower.look()
            assert (await portal.ask("jobs.show", id=2)).state == "Terminated"
            assert sum(node.held for node in (await portal.ask("overview")).nodes) == 0
        finally:
            await portal.close()

    asyncio.run(story())


def test_the_account_reads_the_views_and_nothing_else(accounting):
    command = ["mariadb", "--no-defaults", f"--socket={accounting.socket}", "--user=oarlock", "--password=pw",
               "slurm_acct_db", "-e"]  # fmt: skip
    for statement in (
        "SELECT * FROM peer_job_table", "SELECT * FROM peer_assoc_table", "SELECT submit_line FROM oarlock_jobs",
        "DELETE FROM oarlock_jobs", "DROP VIEW oarlock_nodes", "SELECT * FROM mysql.user",
    ):  # fmt: skip
        ran = subprocess.run([*command, statement], capture_output=True, text=True, timeout=20)
        assert ran.returncode != 0, statement
        assert "denied" in ran.stderr or "Unknown column" in ran.stderr
    assert subprocess.run([*command, "SELECT * FROM oarlock_jobs"], capture_output=True, timeout=20).returncode == 0


HOSTILE = ("'; DROP TABLE peer_job_table; -- ", "x' OR '1'='1", "`a`\\", '"); DELETE FROM jobs; --', "%(id)s :id ? {0}")


@pytest.mark.parametrize("accounting", ["plain"], indirect=True)
def test_no_name_or_number_becomes_a_statement(accounting, tmp_path):
    def text(value):
        return "0x" + value.encode().hex()  # MariaDB takes it as it is: nothing in it has to be escaped here

    rows = []
    for at, name in enumerate(HOSTILE):
        row = job(50 + at, 3, NOW - 900, NOW - 800, nodes="n1", job_name="NAME", account="NAME", partition="NAME")
        rows.append(row.replace("'NAME'", text(name)))
    accounting.run("\n".join(rows), "slurm_acct_db")
    accounting.run(f"UPDATE peer_assoc_table SET user = {text(HOSTILE[0])} WHERE id_assoc = 1", "slurm_acct_db")
    accounting.run("SET GLOBAL log_output = 'TABLE'; TRUNCATE mysql.general_log; SET GLOBAL general_log = ON")

    async def story():
        portal = Portal(tmp_path, source_of(accounting))
        try:
            await portal.core.follower.look()
            shown = [await portal.ask("jobs.show", id=50 + at) for at in range(len(HOSTILE))]
            assert [(view.name, view.project, view.queue) for view in shown] == [(name,) * 3 for name in HOSTILE]
            assert {view.owner for view in shown} == {HOSTILE[0]}
            for name in HOSTILE:
                for field in ("user", "project", "queue", "name"):
                    found = await portal.ask("jobs.list", states=["Terminated"], **{field: name})
                    assert {job.id for job in found.jobs} <= {1, *range(50, 55)}
                with pytest.raises(BadField):
                    await portal.ask("jobs.show", id=name)
            assert len((await portal.ask("jobs.list", states=["Terminated"])).jobs) == 6, "all are still there"
        finally:
            await portal.close()

    try:
        asyncio.run(story())
    finally:
        accounting.run("SET GLOBAL general_log = OFF")
    sent = accounting.run(
        "SELECT argument FROM mysql.general_log WHERE user_host LIKE '%oarlock%' AND command_type = 'Query'"
    ).splitlines()[1:]
    assert len(sent) > 8
    assert {line.split(None, 1)[0] for line in sent if not line.startswith((" ", "\\n"))} <= {
        "SELECT",
        "SET",
        "ROLLBACK",
        "COMMIT",
    }
    assert not [line for line in sent if "DROP" in line or "DELETE" in line or "peer_" in line]
    assert accounting.run("SELECT COUNT(*) FROM peer_job_table", "slurm_acct_db").split()[1] == "11"


@pytest.mark.parametrize("cluster", ["", "a`b", "x; DROP TABLE y", "A", "é", "a" * 99])
def test_no_statement_is_made_of_a_strange_name(cluster):
    with pytest.raises(ConfigRefused, match="--cluster"):
        grant(cluster, database="slurm_acct_db", account="oarlock", host="localhost")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,7],login1", ["n1", "n2", "n3", "n7", "login1"]), ("c[08-10]-ib", ["c08-ib", "c09-ib", "c10-ib"]),
        ("", []), ("vm", ["vm"]), ("n[1-", ["n", "1-"]), ("n[x]", ["n", "x"]),
    ],
)  # fmt: skip
def test_lists_of_hosts_are_expanded(text, names):
    assert slurm.hosts(text) == names


def test_a_list_of_very_many_hosts_is_cut():
    assert len(slurm.hosts("n[1-999999999]")) == 100_000
