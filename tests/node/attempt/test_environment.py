"""What a job finds: OAR's variables and files."""

import re
from pathlib import Path

import pytest

from oarlock.node.attempt.user.environment import (
    LONGEST,
    EnvironmentTooLarge,
    JobFiles,
    node_file,
    property_file,
    variables,
)
from oarlock.node.wire.messages import CgroupLimits, Launch

GOLDEN = Path(__file__).resolve().parents[4] / "shared/data/oar2-golden/job_env.txt"
JOB = Launch(
    job=66,
    attempt=1,
    secret="",
    boot="",
    user="alice",
    command="./env.sh",
    directory="/home/alice",
    stdout="OAR.envjob.66.stdout",
    stderr="OAR.envjob.66.stderr",
    walltime=180,
    name="envjob",
    project="pp",
    key="generated",
    nodes=("node1", "node3", "node3"),
    resources=({"host": "node1", "cpu": 1, "drain": None}, {"host": "node3", "cpu": 5}),
)
FILES = JobFiles("/var/lib/oar/66", "/var/lib/oar/66_resources", "/run/66.key")


def made(job=JOB):
    return variables(job, home="/home/alice", shell="/bin/bash", files=FILES, cpuset="/oarlock/n/alice_66")


@pytest.mark.manual(45, 46)
@pytest.mark.skipif(not GOLDEN.exists(), reason="the shared data of a real OAR is not here")
def test_every_variable_of_a_real_oar_job_has_the_same_value():
    theirs = dict(line.split("=", 1) for line in GOLDEN.read_text().splitlines() if re.match(r"OAR_\w+=", line))
    ours = {name: value for name, value in made().items() if name.startswith("OAR_")}
    assert ours == {**theirs, "OAR_CPUSET": "/oarlock/n/alice_66", "OAR_JOB_KEY_FILE": "/run/66.key"}


def test_the_environment_is_made_from_nothing(monkeypatch):
    monkeypatch.setenv("LEAK", "root's own")
    names = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "OARSH_SOCKET"}
    mpi = re.compile("OAR_|OMPI_MCA_|PRTE_MCA_|HYDRA_")
    assert {name for name in made() if not mpi.match(name)} == names


def test_a_users_own_choice_for_mpi_is_stronger_than_ours():
    brought = {"HYDRA_LAUNCHER": "fork", "OMPI_MCA_plm_rsh_agent": "ssh"}
    found = made(JOB._replace(environment=brought))
    assert [found[name] for name in (*brought, "HYDRA_HOST_FILE")] == ["fork", "ssh", "/var/lib/oar/66"]


def test_a_user_brings_variables_but_not_ours():
    brought = {"PATH": "/opt/bin", "LD_PRELOAD": "mine.so", "HOME": "/", "OAR_JOB_ID": "1", "BAD-NAME": "x", "A=B": "x"}
    found = made(JOB._replace(environment=brought))
    assert [found.get(name) for name in brought] == [
        "/var/lib/oar/bin:/opt/bin",
        "mine.so",
        "/home/alice",
        "66",
        None,
        None,
    ]


def test_too_many_variables_are_refused_with_their_size():
    with pytest.raises(EnvironmentTooLarge, match=str(LONGEST)):
        made(JOB._replace(environment={"A": "x" * LONGEST}))


@pytest.mark.parametrize(
    ("own", "others", "denied", "cuda"),
    [
        ((0, 2), (), (), "0,2"),
        ((2, 3), (0, 1), ("/dev/nvidia0", "/dev/nvidia1"), "0,1"),
        ((3,), (2,), ("/dev/nvidia2",), "2"),
        ((2, 3), (0, 1), (), "2,3"),
        ((), (0, 1), (), ""),
    ],
)
def test_gpus_are_named_to_cuda_as_it_counts_those_that_it_can_open(own, others, denied, cuda):
    job = JOB._replace(gpus=own, other_gpus=others, limits=CgroupLimits(deny_devices=denied), environment={"X": "1"})
    found = made(job)
    assert (found["CUDA_VISIBLE_DEVICES"], found["OAR_JOB_GPUS"]) == (cuda, ",".join(map(str, own)))


def test_where_there_are_no_gpus_what_the_user_brought_stays():
    assert made(JOB._replace(environment={"CUDA_VISIBLE_DEVICES": "7"}))["CUDA_VISIBLE_DEVICES"] == "7"


@pytest.mark.manual(47, 48, 49, 161)
def test_node_and_property_files_have_a_line_a_resource():
    assert node_file(JOB) == "node1\nnode3\nnode3\n"
    assert property_file(JOB) == " cpu = '1' , drain = '' , host = 'node1' \n cpu = '5' , host = 'node3' \n"


def test_a_value_with_a_newline_does_not_become_a_second_resource():
    assert property_file(JOB._replace(resources=({"a": "x\ny = 'z'"},))) == " a = 'x y = 'z'' \n"
