"""Batch scripts of Slurm run by our commands do what a real Slurm was seen to do with them."""

import json
import os
import pwd
import shutil
from contextlib import ExitStack

import pytest
from sqlalchemy import update

from oarlock.model.job import JobState
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.tables import jobs as jobs_table
from tests.bed import accounts, needs_root
from tests.e2e.instance import instance
from tests.slurm import corpus
from tests.slurm.real import NODES, RealSlurm

pytestmark = needs_root


@pytest.fixture(scope="module")
def ada():
    """An account with a shell, and what a process needs to become it."""
    with accounts(shell="/bin/bash", names=tuple(f"oarsc{os.getpid() % 10000}{x}" for x in "ab")) as (name, _):
        account = pwd.getpwnam(name)
        yield name, {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@pytest.fixture
def home(workspace, ada):
    folder = workspace / "typed"
    folder.mkdir()
    shutil.chown(folder, ada[0], ada[0])
    return folder


def like_slurms_nodes(tx):
    """Give the nodes memory, a GPU each and a feature, as those of the real Slurm have them."""
    for name, kind in (("mem", int), ("gpu", int), ("gpudevice", int), ("ib", str)):
        properties.add(tx, name, kind)
    for number in range(1, 5):
        given = {"mem": 2, "gpu": (number + 1) // 2, "gpudevice": 0, "ib": "YES"}
        resources.set_properties(tx, [number], given, at=1)


def begin_numbers(made):
    """Let the next job have a number that stands for nothing else in a text."""
    number = made.submit("true", state=JobState.TERMINATED)
    made.database.write(
        lambda tx: tx.execute(
            update(jobs_table).where(jobs_table.c.job_id == number).values(job_id=corpus.FIRST_NUMBER - 1)
        )
    )


def play_ours(workspace, home, ada, chosen):
    """Run cases with our commands on two nodes of our own."""
    with instance(workspace, ada[0], f"c{os.getpid()}x0n", nodes=2) as made:
        made.database.write(like_slurms_nodes)
        begin_numbers(made)
        made.serve()
        environment = {"OARLOCK_SERVER": str(made.state / "server.sock"), "USER": ada[0]}
        return corpus.play("oarlock", home, made.nodes, chosen, account=ada[1], environment=environment)


def compare(ours, recorded, chosen):
    """Return what differs, case by case."""
    found = {case["name"]: corpus.differences(case, ours[case["name"]], recorded[case["name"]]) for case in chosen}
    return {name: lines for name, lines in found.items() if lines}


def test_scripts_do_what_a_real_slurm_did(workspace, home, ada):
    chosen = corpus.cases(soak=False)
    ours = play_ours(workspace, home, ada, chosen)
    assert compare(ours, json.loads(corpus.RECORDED.read_text()), chosen) == {}


@pytest.mark.soak
@pytest.mark.component("slurmd")
@pytest.mark.component("slurmctld")
@pytest.mark.component("munged")
@pytest.mark.timeout(900)
def test_scripts_do_the_same_on_a_real_slurm_beside_ours(workspace, home, ada):
    """With OARLOCK_RECORD set, what the real one does is written down."""
    chosen = corpus.cases(soak=True)
    theirs = workspace / "slurm"
    theirs.mkdir()
    (theirs / "typed").mkdir()
    shutil.chown(theirs / "typed", ada[0], ada[0])
    with ExitStack() as stack:
        slurm = RealSlurm(theirs, stack)
        environment = {**slurm.environment, "USER": ada[0], "PATH": "/usr/local/bin:/usr/bin:/bin"}
        real = corpus.play("slurm", theirs / "typed", NODES, chosen, account=ada[1], environment=environment)
    if os.environ.get("OARLOCK_RECORD"):
        corpus.record(real)
    ours = play_ours(workspace, home, ada, chosen)
    assert compare(ours, real, chosen) == {}
