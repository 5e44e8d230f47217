"""`oarlock import-oar`: a thousand jobs in the tables of OAR 2.5.9, from a dump or the live database, row by row."""

import gzip
import json
import re
import subprocess

import psycopg
import pytest
from sqlalchemy import create_engine, text

from oarlock.cli.oarlock import main
from oarlock.store.engine.opening import open_database
from oarlock.store.sources.connections import parse_address
from tests.simulate.oar_schema import INSTALLED, oar_sql
from tests.sources import oar_history

RULE = re.compile(r"VALUES \((\d+), '(\w+)', E'((?:[^'\\]|\\.|'')*)'\)", re.DOTALL)
KEYS = {
    "jobs": "job_id", "moldable_job_descriptions": "moldable_id", "job_resource_groups": "res_group_id",
    "job_resource_descriptions": "res_job_group_id, res_job_order", "job_types": "job_type_id",
    "assigned_resources": "moldable_job_id, resource_id", "job_state_logs": "job_state_log_id",
    "job_dependencies": "job_id", "frag_jobs": "frag_id_job", "event_logs": "event_id",
    "accounting": "window_start, accounting_user, consumption_type", "resource_logs": "resource_log_id",
    "resources": "resource_id", "walltime_change": "job_id", "event_log_hostnames": "event_id",
}  # fmt: skip
OVER = "SELECT job_id FROM jobs WHERE state IN ('Terminated', 'Error')"
MOLDABLES = f"SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id IN ({OVER})"
OF_JOBS_THAT_ARE_OVER = {
    "jobs": f"job_id IN ({OVER})", "job_types": f"job_id IN ({OVER})", "job_state_logs": f"job_id IN ({OVER})",
    "job_dependencies": f"job_id IN ({OVER})", "frag_jobs": f"frag_id_job IN ({OVER})",
    "walltime_change": f"job_id IN ({OVER})", "moldable_job_descriptions": f"moldable_job_id IN ({OVER})",
    "job_resource_groups": f"res_group_moldable_id IN ({MOLDABLES})",
    "job_resource_descriptions": f"res_job_group_id IN ({MOLDABLES})",
    "assigned_resources": f"moldable_job_id IN ({MOLDABLES})", "event_logs": "type <> 'A_PLUGIN_OF_OURS'",
    "event_log_hostnames": "event_id IN (SELECT event_id FROM event_logs WHERE type <> 'A_PLUGIN_OF_OURS')",
}  # fmt: skip
NEW_NAMES = {"types_index": "type_index", "available_upto": "cm_availability"}
NOWHERE = {"scheduler_info", "last_available_upto", "group"}


class Source:
    """OAR's database: how it is reached, how it is dumped."""

    def __init__(self, engine, address, dump):
        self.engine, self.address, self.dump = engine, address, dump

    def rows(self, name, columns):
        quoted = [self.engine.dialect.identifier_preparer.quote_identifier(column) for column in columns]
        where = OF_JOBS_THAT_ARE_OVER.get(name, "1 = 1")
        return self.run(f"SELECT {', '.join(quoted)} FROM {name} WHERE {where} ORDER BY {KEYS[name]}")

    def run(self, sql):
        with self.engine.begin() as tx:
            found = tx.execute(text(sql))
            return [tuple(row) for row in found] if found.returns_rows else []

    def columns(self, name):
        with self.engine.begin() as tx:
            return list(tx.execute(text(f"SELECT * FROM {name} WHERE 1 = 0")).keys())


@pytest.fixture(scope="module")
def oar(request, tmp_path_factory):
    yield from source_on("postgresql", request, tmp_path_factory)


@pytest.fixture(scope="module")
def oar_on_mariadb(request, tmp_path_factory):
    yield from source_on("mariadb", request, tmp_path_factory)


def source_on(kind, request, tmp_path_factory):
    statements = oar_sql(request.config.cache.mkdir("oar-schema"))
    dump = tmp_path_factory.mktemp("dump") / "oar.sql"
    if kind == "postgresql":
        postgres = request.getfixturevalue("postgres")
        url = postgres.make(template="template0")
        with psycopg.connect(url) as connection:
            for statement in statements:
                connection.execute(statement)
        command = [postgres.programs / "pg_dump", "--no-owner", f"--file={dump}", url]
        address = url
    else:
        server = request.getfixturevalue("mariadb")
        server.run("DROP DATABASE IF EXISTS oar_history; CREATE DATABASE oar_history CHARACTER SET utf8mb4")
        for part in (structure(request), statements[1]):
            server.run(part, "oar_history")
        address = server.url("root", "oar_history")
        command = ["mariadb-dump", "--no-defaults", f"--socket={server.socket}", "--user=root", "--skip-lock-tables",
                   f"--result-file={dump}", "oar_history"]  # fmt: skip
    engine = create_engine(parse_address(address))
    oar_history.fill(engine, rules_of(request))
    subprocess.run(command, check=True, timeout=60)
    yield Source(engine, address, dump)
    engine.dispose()


def folder_of(request):
    unpacked = request.config.cache.mkdir("oar-schema") / INSTALLED.relative_to("/")
    return INSTALLED if INSTALLED.is_dir() else unpacked


def structure(request):
    """OAR's tables for MySQL; the name of one column is a reserved word of MariaDB."""
    return (folder_of(request) / "mysql_structure.sql").read_text().replace("\nforce ENUM", "\n`force` ENUM")


def rules_of(request):
    """The rules that OAR installs, and two of the site."""
    shipped = (folder_of(request) / "pg_default_admission_rules.sql").read_text()
    rules = []
    for priority, enabled, quoted in RULE.findall(shipped):
        plain = re.sub(
            r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), quoted.replace("''", "'")
        )
        rules.append({"priority": int(priority), "enabled": enabled, "rule": plain})
    night = '# Who works at night\nif ($user eq "eve") { $queue_name = "night"; }'
    default = 'if (not defined($queue_name)) {$queue_name="night";}'
    return [
        *rules,
        {"priority": 30, "enabled": "YES", "rule": night},
        {"priority": 31, "enabled": "YES", "rule": default},
    ]


@pytest.fixture
def oarlock(capsys, tmp_path):
    (tmp_path / "empty.conf").touch()

    def run(*words):
        code = main([*map(str, words), "--state", str(tmp_path / "state"), "--config", str(tmp_path / "empty.conf")])
        out, err = capsys.readouterr()
        return code, out, err

    run.state = tmp_path / "state"
    return run


def ours(state, name, columns):
    quoted = ", ".join(f'"{NEW_NAMES.get(column, column)}"' for column in columns)
    with open_database(state / "oarlock.db") as database, database.read() as tx:
        return [tuple(row) for row in tx.execute(text(f'SELECT {quoted} FROM "{name}" ORDER BY {KEYS[name]}'))]


def same(source, state, name):
    """Compare all columns that have a place here; what OAR has as NULL may be empty here."""
    columns = [column for column in source.columns(name) if column not in NOWHERE]
    theirs = source.rows(name, columns)
    here = ours(state, name, columns)
    if name == "resource_logs":
        theirs = [tuple("cm_availability" if value == "available_upto" else value for value in row) for row in theirs]
    assert len(here) == len(theirs), name
    for row, original in zip(here, theirs, strict=True):
        plain = tuple(value if given is not None else value or None for value, given in zip(row, original, strict=True))
        assert plain == original
    return len(here)


@pytest.mark.parametrize("kind", ["oar", pytest.param("oar_on_mariadb", marks=pytest.mark.soak)])
def test_a_thousand_jobs_are_the_same_row_by_row(kind, request, oarlock):
    source = request.getfixturevalue(kind)
    code, out, err = oarlock("import-oar", source.dump)
    assert code == 0, err
    counts = {name: same(source, oarlock.state, name) for name in KEYS}
    assert (counts["jobs"], counts["resources"], counts["accounting"]) == (995, 32, 80)
    assert "jobs: 1 in state Running; import again when they are over." in out
    assert "event_logs: 12 events of the type A_PLUGIN_OF_OURS, which is unknown here." in out
    assert "challenges: 1000 rows" in out
    assert "resources.group: `group` cannot be the name of a property" in out
    (oarlock.state / "oarlock.db").unlink()
    (oarlock.state / "oarlock.db.created").unlink()
    code, _, err = oarlock("import-oar", source.address)
    assert code == 0, err
    assert {name: same(source, oarlock.state, name) for name in KEYS} == counts


def test_a_second_run_continues_and_doubles_nothing(oar, oarlock):
    assert oarlock("import-oar", oar.dump)[0] == 0
    oar.run("UPDATE jobs SET state = 'Terminated', start_time = 5, stop_time = 9 WHERE job_id = 1000")
    for table, column in (("moldable_job_descriptions", "moldable_index"), ("job_resource_groups", "res_group_index"),
                          ("job_resource_descriptions", "res_job_index"), ("job_types", "types_index"),
                          ("job_dependencies", "job_dependency_index")):  # fmt: skip
        oar.run(f"UPDATE {table} SET {column} = 'LOG'")
    oar.run("UPDATE resource_logs SET date_stop = 7 WHERE resource_log_id = 1")
    oar.run(
        "INSERT INTO event_logs (event_id, type, job_id, date, description, to_check) "
        "VALUES (5000, 'WALLTIME', 1000, 9, 'x', 'NO')"
    )
    oar.run("UPDATE accounting SET consumption = consumption + 1 WHERE accounting_user = 'ada'")
    try:
        code, out, err = oarlock("import-oar", oar.address, "--json")
        assert code == 0, err
        report = json.loads(out)
        assert {name: report["copied"].get(name, 0) for name in ("jobs", "resources", "accounting", "event_logs")} == {
            "jobs": 1, "resources": 0, "accounting": 40, "event_logs": 1,
        }  # fmt: skip
        assert report["present"]["jobs"] == 995
        assert {name: same(oar, oarlock.state, name) for name in KEYS}["jobs"] == 996
    finally:
        oar.run("UPDATE jobs SET state = 'Running', start_time = 0, stop_time = 0 WHERE job_id = 1000")
        oar.run("UPDATE resource_logs SET date_stop = 0 WHERE resource_log_id = 1")
        oar.run("DELETE FROM event_logs WHERE event_id = 5000")
        oar.run("UPDATE accounting SET consumption = consumption - 1 WHERE accounting_user = 'ada'")


def test_rules_are_told_and_drafts_written(oar, oarlock, tmp_path):
    code, out, _ = oarlock("import-oar", oar.dump, "--rules", tmp_path / "rules")
    assert code == 0
    assert "as OAR installs it; here 03-drain.toml does the same" in out
    assert "Who works at night\n      changes the queue; looks at the user" in out
    drafts = {path.name: path.read_text() for path in (tmp_path / "rules").iterdir()}
    assert sorted(drafts)[0].startswith("30-oar-")
    assert [name.rpartition(".")[2] for name in sorted(drafts)] == ["perl", "toml"]
    assert 'default = { queue = "night" }' in drafts[sorted(drafts)[1]]
    assert main(["rules", "list", str(tmp_path / "rules")]) == 0


def test_a_dump_that_was_cut_off_leaves_nothing(oar, oarlock, tmp_path):
    whole = oar.dump.read_bytes()
    last_line = whole.rindex(b"\n-- ")
    for part in (whole[: len(whole) // 3], whole[: last_line + 9], b"", b"no dump at all\n"):
        cut = tmp_path / "cut.sql"
        cut.write_bytes(part)
        code, _, err = oarlock("import-oar", cut)
        assert code == 2
        assert "cut off" in err
    packed = tmp_path / "cut.sql.gz"
    packed.write_bytes(gzip.compress(whole)[:5000])
    assert oarlock("import-oar", packed)[0] == 2
    assert not (oarlock.state / "oarlock.db").exists()


def test_a_packed_dump_is_read(oar, oarlock, tmp_path):
    packed = tmp_path / "oar.sql.gz"
    packed.write_bytes(gzip.compress(oar.dump.read_bytes(), 1))
    assert oarlock("import-oar", packed)[0] == 0
    assert len(ours(oarlock.state, "jobs", ["job_id"])) == 995


def test_a_dump_in_the_own_format_of_postgresql_is_read(oar, oarlock, postgres, tmp_path, monkeypatch):
    packed = tmp_path / "oar.dump"
    url = oar.address.replace("+psycopg", "")
    subprocess.run([postgres.programs / "pg_dump", "--format=custom", f"--file={packed}", url], check=True, timeout=60)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = oarlock("import-oar", packed)
    assert (code, "`pg_restore` is not installed on this machine." in err) == (2, True)
    monkeypatch.setenv("PATH", str(postgres.programs))
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    code, _, err = oarlock("import-oar", packed)
    assert (code, f"{packed} cannot be unpacked" in err) == (2, True)
    packed.write_bytes(whole)
    code, out, err = oarlock("import-oar", packed)
    assert (code, " jobs" in out) == (0, True), err
    assert len(ours(tmp_path / "state", "jobs", ["job_id"])) == len(oar.rows("jobs", ["job_id"]))


def test_numbers_of_other_jobs_are_refused(oar, oarlock):
    assert oarlock("import-oar", oar.dump)[0] == 0
    with open_database(oarlock.state / "oarlock.db") as database:
        database.write(lambda tx: tx.execute(text("UPDATE jobs SET job_user = 'zoe' WHERE job_id = 7")))
    code, _, err = oarlock("import-oar", oar.address)
    assert (code, "Job 7 of zoe is here already" in err) == (2, True)


def test_quotas_are_taken_over_once(oar, oarlock, tmp_path):
    quotas = tmp_path / "scheduler_quotas.conf"
    quotas.write_text(
        "# quotas\n$Gantt_quotas->{'*'}->{'proj1'}->{'*'}->{'/'} = [25,100,2000] ;\n"
        "$Gantt_quotas->{'*'}->{'*'}->{'besteffort'}->{'*'} = 150;\nmy $x = 1;\n"
    )
    for copied in (2, 0):
        code, out, err = oarlock("import-oar", oar.dump, "--quotas", quotas, "--json")
        assert code == 0, err
        report = json.loads(out)
        assert report["copied"]["quotas"] == copied
        assert "quotas: `my $x = 1;` is no limit that can be read." in report["no_place"]
    with open_database(oarlock.state / "oarlock.db") as database, database.read() as tx:
        rows = [tuple(row) for row in tx.execute(text("SELECT * FROM quotas ORDER BY position"))]
    assert rows == [(1, "*", "proj1", "*", "/", 25, 100, 2000 * 3600), (2, "*", "*", "besteffort", "*", 150, -1, -1)]
