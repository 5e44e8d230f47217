"""File systems and virtual machines: a real Prometheus with exporters' series, a real MariaDB with Robinhood's sums."""

import os

import pytest

from oarlock.model.errors import ConfigRefused
from oarlock.settings.kinds import JobVisibility
from oarlock.settings.secret import Secret
from oarlock.store.sources.robinhood import grant
from tests.measure.real import free_port
from tests.portal.browsing import signed_in
from tests.sources.engine import Exporter, engine
from tests.sources.facility_series import MIB, add_lustre, add_machines, robinhood_tables
from tests.waiting import wait_until
from tests.web.nodeless_server import NOW, alone

pytestmark = [
    pytest.mark.component("prometheus"),
    pytest.mark.component("promtool"),
    pytest.mark.component("mariadb"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users"),
]

GIB = 1 << 30
ROLES = {"job_min_uid": 1, "support": ("bin",), "project_leaders": {"vision": ("sys",)}, "cluster_name": "gofree"}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    said = Exporter()
    add_lustre(said, NOW)
    add_machines(said, NOW)
    running = engine(tmp_path_factory.mktemp("prometheus"), said)
    try:
        wait_until(running.ready, "Prometheus", 30)
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def databases(mariadb):
    """Robinhood's sums in the names of version 3 and of 2, read by the account that the printed statements make."""
    for database, names in (("rbh_scratch", {}), ("rbh_home", {"uid": "owner", "gid": "gr_name"})):
        mariadb.run(f"DROP DATABASE IF EXISTS {database}; CREATE DATABASE {database};")
        mariadb.run(robinhood_tables(**names), database)
        mariadb.run(grant(database=database, account="reader", host="localhost").replace("CHANGE-THIS", "pw"))
    return {name: mariadb.url("reader", f"rbh_{name}") for name in ("scratch", "home")}


@pytest.fixture(scope="module")
def site(prometheus, databases, sqlite_of_module):
    settings = {
        "prometheus_url": prometheus.url.removesuffix("/api/v1"), "prometheus_has": ("lustre", "libvirtd"),
        "robinhood_databases": databases, "robinhood_password": Secret("pw"),
    }  # fmt: skip
    with alone(sqlite_of_module, job_visibility=JobVisibility.OWN, **settings, **ROLES) as running:
        yield running


def test_file_systems_have_their_traffic_and_size(site):
    shown = site.client_of("bin").get("/storage?seconds=3600").body
    scratch = shown["file_systems"][1]
    assert [system["name"] for system in shown["file_systems"]] == ["home", "scratch"]
    assert scratch["read"] == pytest.approx(2700 * MIB, rel=0.2)
    assert scratch["operations"] == pytest.approx(12_000, rel=0.2)
    assert (scratch["capacity_bytes"], scratch["available_bytes"]) == (2e9 * 1024, 7.5e8 * 1024)
    [first, second] = shown["jobs"]
    assert (first["job"], first["user"], first["project"], first["file_system"]) == (11, "nobody", "vision", "scratch")
    assert [first["read"], first["written"], second["read"]] == pytest.approx(
        [200 * MIB, 50 * MIB, 100 * MIB], rel=0.02
    )
    assert [row["user"] for row in shown["users"]] == ["nobody", "daemon", "games"], "`cp` outside of a job as well"
    curves = site.client_of("daemon").get("/storage/series").body["curves"]
    assert {(curve["metric"], curve["name"]) for curve in curves} == {
        (metric, name) for metric in ("read", "written", "operations") for name in ("scratch", "home")
    }


def test_traffic_of_others_is_seen_as_totals_of_their_jobs_are(site):
    seen = {user: site.client_of(user).get("/storage").body for user in ("nobody", "sys", "games", "bin")}
    assert {user: [row["job"] for row in body["jobs"]] for user, body in seen.items()} == {
        "nobody": [11], "sys": [11], "games": [], "bin": [11, 12],
    }  # fmt: skip
    assert [body["own"] for body in seen.values()] == [True, True, True, False]
    assert site.client_at_port().get("/storage").status == 401


def test_space_is_told_by_group_from_both_versions_of_the_table(site):
    rows = site.client_of("bin").get("/storage/space").body["rows"]
    assert [(row["file_system"], row["group"], row["user"], row["used_bytes"], row["files"]) for row in rows[:2]] == [
        ("scratch", "vision", "nobody", 701 * GIB, 9400), ("scratch", "vision", "daemon", 200 * GIB, 120),
    ]  # fmt: skip
    assert {row["user"] for row in rows if row["group"] == "climate"} == {"root", "eve'; DROP TABLE x; --"}
    assert len(rows) == 2 * 4
    seen = {user: site.client_of(user).get("/storage/space").body["rows"] for user in ("daemon", "sys", "games")}
    assert {user: {(row["group"], row["user"]) for row in theirs} for user, theirs in seen.items()} == {
        "daemon": {("vision", "daemon")}, "sys": {("vision", "nobody"), ("vision", "daemon")}, "games": set(),
    }  # fmt: skip


@pytest.mark.parametrize("group", ["' OR 1=1 --", "vision'; DROP TABLE ACCT_STAT; --", "%", "a" * 200])
def test_no_group_is_more_than_a_name(site, group):
    from urllib.parse import quote

    assert site.client_of("bin").get(f"/storage/space?group={quote(group)}").body["rows"] == []
    assert signed_in(site, "bin").get(f"/storage?group={quote(group)}").status == 200
    assert len(site.client_of("bin").get("/storage/space?group=vision").body["rows"]) == 4


def test_the_account_reads_the_sums_and_nothing_else(databases, mariadb):
    mariadb.run("CREATE TABLE IF NOT EXISTS ENTRIES (id int)", "rbh_scratch")
    import pymysql

    connection = pymysql.connect(user="reader", password="pw", unix_socket=str(mariadb.socket), database="rbh_scratch")
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ACCT_STAT")
        for statement in ("SELECT * FROM ENTRIES", "DELETE FROM ACCT_STAT", "CREATE TABLE x (y int)"):
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                cursor.execute(statement)


@pytest.mark.parametrize("name", ["a`b", "a'b", "", "a b", "x" * 61])
def test_a_grant_has_plain_names_only(name):
    with pytest.raises(ConfigRefused):
        grant(database=name, account="oarlock", host="localhost")


def test_machines_are_shown_to_members_and_leaders_of_their_project(site):
    shown = site.client_of("bin").get("/cloud").body["machines"]
    build = next(machine for machine in shown if machine["name"] == "build")
    assert [(machine["project"], machine["name"], machine["state"]) for machine in shown] == [
        ("climate", "<b>db</b>", "off"), ("vision", "build", "running"), ("vision", "web", "running"),
    ]  # fmt: skip
    assert (build["cpus"], build["memory_bytes"], build["memory_used_bytes"]) == (4, 8 * GIB, 5 * GIB)
    assert build["cpus_working"] == pytest.approx(4 * 0.7, rel=0.4)
    seen = {user: site.client_of(user).get("/cloud").body["machines"] for user in ("sys", "nobody")}
    assert {user: {machine["project"] for machine in machines} for user, machines in seen.items()} == {
        "sys": {"vision"}, "nobody": set(),
    }  # fmt: skip
    one = site.client_of("sys").get("/cloud/series?uuid=5e2d-01").body["curves"]
    assert {curve["name"] for curve in one} == {"vision"}
    assert len(one) == 8
    assert site.client_of("sys").get("/cloud/series?uuid=5e2d-03").body == {"curves": []}
    assert site.client_of("sys").get('/cloud/series?uuid=x"}').status == 400


def test_pages_show_what_the_verbs_say(site):
    staff, member = signed_in(site, "bin"), signed_in(site, "nobody")
    storage = staff.get("/storage").text
    assert 'href="/jobs/12"' in storage
    assert "901 GiB" in storage
    assert 'id="plot-operations"' in storage
    assert 'href="/jobs/12"' not in member.get("/storage").text
    cloud = staff.get("/cloud").text
    assert "&lt;b&gt;db&lt;/b&gt;" in cloud
    assert 'id="plot-cpu"' in cloud
    assert "No virtual machine of a project of yours is known." in member.get("/cloud").text
    assert "<h1>build</h1>" in staff.get("/cloud?vm=5e2d-02").text
    health = {source.name: source.answers for source in site.core.facilities.health}
    assert health == dict.fromkeys(
        ("Prometheus: Lustre", "Prometheus: libvirtd", "Robinhood: scratch", "Robinhood: home"), True
    )


def test_a_source_that_is_away_costs_its_cards_alone(sqlite_path):
    away = {"prometheus_url": f"http://127.0.0.1:{free_port()}", "robinhood_databases": {
        "scratch": f"mysql://x@127.0.0.1:{free_port()}/rbh"}}  # fmt: skip
    with alone(sqlite_path, prometheus_has=("lustre",), **away, **ROLES) as running:
        visitor = signed_in(running, "bin")
        page, other = visitor.get("/storage"), visitor.get("/cloud")
        assert (page.status, other.status) == (200, 404)
        assert "File systems cannot be shown. Prometheus has no answer: [Errno 111]" in page.text
        assert "127.0.0.1" not in page.text
        assert "Space cannot be shown. Robinhood&#39;s database of scratch does not answer" in page.text
        assert ('href="/storage"' in page.text, 'href="/cloud"' in page.text) == (True, False)
        assert running.client_of("bin").get("/cloud").status == 404
