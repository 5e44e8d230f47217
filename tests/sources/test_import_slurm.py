"""`oarlock import-slurm`: nodes and partitions of slurm.conf, history of sacct's output and of slurmdbd."""

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from oarlock.cli.oarlock import main
from oarlock.lang.sacct import WANTED
from oarlock.lang.slurm_conf import parse_conf
from oarlock.store.engine.opening import open_database

SHARED = next((p / "shared" for p in Path(__file__).resolve().parents[3:5] if (p / "shared").is_dir()), None)
CONF = """\
# slurm.conf
ClusterName=peer
Include /etc/slurm/more.conf
NodeName=DEFAULT Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=16000 State=UNKNOWN
NodeName=n[1-3]  Feature=ib,fast   # three
NodeName=gpu1 CPUs=8 RealMemory=64000 Gres=gpu:a100:2 \\
    Feature=fast,bad-name
PartitionName=DEFAULT State=UP
PartitionName=main Nodes=ALL Default=YES MaxTime=2-00:00:00
partitionname=gpu nodes=gpu1 PriorityTier=10 State=DOWN
"""
HEAD = "|".join(WANTED)
ROW = {
    "JobIDRaw": "7", "JobID": "7", "User": "ada", "UID": "1001", "State": "COMPLETED", "ExitCode": "0:0",
    "Submit": "1790000000", "Start": "1790000010", "End": "1790000070", "NCPUS": "6", "NodeList": "n[1-2]",
    "Partition": "main", "JobName": "first", "Account": "science", "TimelimitRaw": "10", "WorkDir": "/home/ada",
    "NNodes": "2", "SubmitLine": "sbatch run.sh",
}  # fmt: skip


def line(**fields):
    return "|".join((ROW | fields)[name] for name in WANTED) + "\n"


HISTORY = HEAD + "\n" + "".join(
    (
        line(),
        line(JobIDRaw="8", JobID="8_3", State="FAILED", ExitCode="3:0", NodeList="gpu1", NCPUS="2", Partition="gpu"),
        line(JobIDRaw="9", JobID="9", State="CANCELLED by 1001", NodeList="None assigned", Start="Unknown"),
        line(JobIDRaw="10", JobID="10", State="RUNNING", End="Unknown"),
        line(JobIDRaw="7.batch", JobID="7.batch", User=""),
        line(JobIDRaw="11", JobID="11", State="TIMEOUT", ExitCode="0:15", NodeList="gone9", NCPUS="1"),
        line(JobIDRaw="12", JobID="12", SubmitLine="sbatch --wrap=a|b"),
    )
)  # fmt: skip


@pytest.fixture
def oarlock(capsys, tmp_path):
    (tmp_path / "empty.conf").touch()
    state = tmp_path / "state"

    def run(*words):
        code = main([*map(str, words), "--state", str(state), "--config", str(tmp_path / "empty.conf")])
        out, err = capsys.readouterr()
        return code, out, err

    def rows(query):
        with open_database(state / "oarlock.db") as database, database.read() as tx:
            return [tuple(row) for row in tx.execute(text(query))]

    run.rows = rows
    return run


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    conf, history = tmp_path / "slurm.conf", tmp_path / "sacct.txt"
    conf.write_text(CONF)
    history.write_text(HISTORY)
    return conf, history


def test_nodes_and_partitions_of_slurm_conf(oarlock, files, tmp_path):
    code, out, err = oarlock("import-slurm", "--conf", files[0], "--rules", tmp_path / "rules.toml")
    assert code == 0, err
    nodes = oarlock.rows(
        "SELECT network_address, count(*), min(mem), count(distinct gpu), min(fast), min(ib), min(partition_gpu) "
        "FROM resources GROUP BY network_address ORDER BY 1"
    )
    assert nodes == [
        ("gpu1", 8, 62, 2, "YES", None, "YES"),
        *((name, 4, 16, 0, "YES", "YES", "NO") for name in ("n1", "n2", "n3")),
    ]  # fmt: skip
    new = oarlock.rows("SELECT queue_name, priority, state FROM queues WHERE queue_name IN ('main', 'gpu') ORDER BY 1")
    assert new == [
        ("gpu", 10, "notActive"), ("main", 1, "Active"),
    ]  # fmt: skip
    assert "`bad-name` cannot be the name of a property" in out
    assert "partition main: maxtime=2-00:00:00" in out
    assert "/etc/slurm/more.conf that it includes was not read" in out
    assert "add_constraint = \"partition_gpu = 'YES'\"" in (tmp_path / "rules.toml").read_text()


def test_history_of_sacct_with_and_without_nodes_that_are_here(oarlock, files):
    code, out, err = oarlock("import-slurm", "--conf", files[0], "--sacct", files[1], "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["copied"]["jobs"], "job 10 is RUNNING; import again when it is over." in report["no_place"]) == (
        5,
        True,
    )
    jobs = oarlock.rows("SELECT job_id, state, job_user, job_uid, project, queue_name, exit_code, start_time, "
                        "stop_time, array_id, array_index, accounted, command FROM jobs ORDER BY job_id")  # fmt: skip
    begun, ended = 1790000010, 1790000070
    assert jobs == [
        (7, "Terminated", "ada", 1001, "science", "main", 0, begun, ended, 7, 1, "NO", "sbatch run.sh"),
        (8, "Terminated", "ada", 1001, "science", "gpu", 768, begun, ended, 8, 3, "NO", "sbatch run.sh"),
        (9, "Error", "ada", 1001, "science", "main", None, 0, ended, 9, 1, "YES", "sbatch run.sh"),
        (11, "Error", "ada", 1001, "science", "main", 15, begun, ended, 11, 1, "YES", "sbatch run.sh"),
        (12, "Terminated", "ada", 1001, "science", "main", 0, begun, ended, 12, 1, "NO", "sbatch --wrap=a|b"),
    ]
    held = oarlock.rows("SELECT network_address, count(*) FROM assigned_resources JOIN resources USING (resource_id) "
                        "WHERE moldable_job_id = 7 GROUP BY 1 ORDER BY 1")  # fmt: skip
    assert held == [("n1", 3), ("n2", 3)]


def test_a_second_run_doubles_nothing_and_other_jobs_are_refused(oarlock, files):
    words = ("import-slurm", "--conf", files[0], "--sacct", files[1], "--json")
    assert oarlock(*words)[0] == 0
    before = oarlock.rows("SELECT * FROM resources"), oarlock.rows("SELECT * FROM jobs")
    code, out, _ = oarlock(*words)
    assert (code, json.loads(out)["present"]["jobs"], json.loads(out)["copied"]["jobs"]) == (0, 5, 0)
    assert (oarlock.rows("SELECT * FROM resources"), oarlock.rows("SELECT * FROM jobs")) == before
    files[1].write_text(HISTORY.replace("ada", "bob"))
    code, _, err = oarlock(*words)
    assert (code, "of ada is here already, and Slurm's is of bob." in err) == (2, True)


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        (HISTORY[:-20], "Line 8 of the output of sacct is cut off."),
        (HISTORY.replace("NodeList", "Hosts", 1), "The output of sacct has no field NodeList."),
        ("", "The output of sacct has no field JobIDRaw."),
        (HISTORY.replace("1790000000", "yesterday"), "`yesterday` is not a date of sacct."),
    ],
)
def test_bad_output_is_refused_and_nothing_taken(oarlock, files, tmp_path, history, sentence):
    files[1].write_text(history)
    code, _, err = oarlock("import-slurm", "--sacct", files[1])
    assert (code, sentence in err) == (2, True), err
    assert not (tmp_path / "state" / "oarlock.db").exists()


def test_what_a_real_slurm_printed_is_read(oarlock, tmp_path):
    if SHARED is None:
        pytest.skip("the recorded output of Slurm is not here")
    recorded = (SHARED / "data/slurm-golden/sacct_P_allfields.txt").read_text().splitlines(keepends=True)
    history = tmp_path / "sacct.txt"
    history.write_text("".join(row for row in recorded if "|" in row))
    code, out, err = oarlock("import-slurm", "--sacct", history, "--json")
    assert code == 0, err
    assert json.loads(out)["copied"]["jobs"] == len(oarlock.rows("SELECT * FROM jobs")) > 0
    assert oarlock.rows("SELECT job_user, project, queue_name FROM jobs WHERE job_name = 'hi' LIMIT 1") == [
        ("alice", "science", "main")
    ]


def test_an_empty_file_declares_nothing():
    assert parse_conf("") == ("", (), (), ())
