"""Slurm's commands against a real server with real jobs: what the corpus of scripts (tests/slurm) does not show."""

import os
import pwd
import subprocess
import sys

import pytest

from oarlock.model.job import FINAL
from oarlock.model.nodeset import fold
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, Instance

pytestmark = needs_root


class SlurmUser:
    """A user of the instance who types Slurm's commands."""

    def __init__(self, shop: Instance, user: str) -> None:
        self.shop, self.user, self.home = shop, user, shop.home / f"slurm-{user}"
        self.home.mkdir()
        account = pwd.getpwnam(user)
        os.chown(self.home, account.pw_uid, account.pw_gid)
        self._ids = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def run(self, command: str, *words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        code = f"import sys; from oarlock.cli.slurm.{command} import main; sys.exit(main())"
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "USER": self.user, "PYTHONPATH": str(SOURCE),
            "OARLOCK_SERVER": str(self.shop.state / "server.sock"), **variables,
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, "-c", code, *words], env=environment, cwd=self.home, input=stdin, capture_output=True,
            text=True, timeout=60, check=False, **self._ids,
        )  # fmt: skip

    def ok(self, command: str, *words: str, **variables: str) -> str:
        ran = self.run(command, *words, **variables)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def script(self, name: str, text: str) -> str:
        (self.home / name).write_text(text)
        return name

    def over(self, *ids: int) -> None:
        self.shop.until(lambda: all(self.shop.job(number).state in FINAL for number in ids))

    def file(self, name: str) -> str:
        return (self.home / name).read_text()


@pytest.fixture(scope="module")
def ada(shop, users) -> SlurmUser:
    return SlurmUser(shop, users[0])


def test_a_script_runs_with_its_lines_arguments_and_slurms_variables(ada: SlurmUser):
    script = ada.script(
        "job.sh",
        """#!/bin/sh
#SBATCH --job-name=first --time=10
#SBATCH -N 2 --ntasks-per-node=1  # both nodes
#SBATCH --output=out-%j-%x.txt
echo "arguments: $1|$2"
echo "$SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_JOB_NUM_NODES $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE"
echo "$SLURM_JOB_NODELIST $SLURM_SUBMIT_DIR $SLURM_JOB_USER $SLURM_JOB_PARTITION ${OARLOCK_SLURM_SCRIPT-none}"
echo to-stderr >&2
env | grep -c '^EXPORTED=yes$'
exit 3
""",
    )
    (ada.home / "tmp").mkdir(mode=0o777)
    (ada.home / "tmp").chmod(0o777)
    printed = ada.ok("sbatch", "--time=5", script, "a b", "$c", EXPORTED="yes", TMPDIR=str(ada.home / "tmp"))
    (ada.home / "job.sh").write_text("changed afterwards")
    number = int(printed.removeprefix("Submitted batch job "))
    ada.over(number)
    assert ada.file(f"out-{number}-first.txt").splitlines() == [
        "arguments: a b|$c",
        f"{number} first 2 2 1(x2) 1(x2)",
        f"{fold(ada.shop.nodes)} {ada.home} {ada.user} default none",
        "to-stderr",
        "1",
    ]
    line = ada.ok("sacct", "-n", "-P", "-j", str(number), "-o", "JobID,JobName,State,ExitCode,NNodes,Timelimit,User")
    assert line == f"{number}|first|FAILED|3:0|2|00:05:00|{ada.user}\n"
    shown = ada.ok("scontrol", "show", "job", str(number))
    assert "JobState=FAILED" in shown
    assert f"WorkDir={ada.home}" in shown
    assert list((ada.home / "tmp").iterdir()) == []


def test_srun_runs_tasks_on_all_nodes_and_ends_with_the_highest_code(ada: SlurmUser):
    script = ada.script(
        "step.sh",
        """#!/bin/bash
#SBATCH -N 2 -n 4 -t 5 -o step.out
export MINE="two words"
srun -l sh -c 'echo "$SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $MINE $PWD"' | sort
srun -n 3 sh -c 'exit $SLURM_PROCID'; echo "ended with $?"
srun -n 99 true; echo "ended with $?"
srun no-such-program; echo "ended with $?"
""",
    )
    number = int(ada.ok("sbatch", "--parsable", script))
    ada.over(number)
    assert ada.file("step.out").splitlines() == [
        f"0: 0 0 0 4 two words {ada.home}",
        f"1: 1 1 0 4 two words {ada.home}",
        f"2: 2 0 1 4 two words {ada.home}",
        f"3: 3 1 1 4 two words {ada.home}",
        "ended with 2",
        "srun: 99 tasks of 1 cores do not fit: there is room for 4.",
        "  Ask for fewer with -N, -n or -c.",
        "ended with 1",
        "srun: no-such-program: No such file or directory.",
        "  Look at the path.",
        "ended with 1",
    ]


def test_a_job_is_held_released_shown_and_cancelled(ada: SlurmUser):
    number = int(ada.ok("sbatch", "--parsable", "-H", "-J", "held", "-t", "1-0", "--wrap", "sleep 600"))
    assert ada.ok("squeue", "--me", "-n", "held").splitlines() == [
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
        f"{number:>18}   default     held {ada.user[:8]:>8} PD       0:00      1 (JobHeldUser)",
    ]
    ada.ok("scontrol", "release", str(number))
    ada.shop.until(lambda: ada.ok("squeue", "-h", "-j", str(number), "-o", "%T") == "RUNNING\n")
    assert ada.ok("squeue", "-h", "-j", str(number), "-o", "%l %N") == f"1-00:00:00 {ada.shop.nodes[0]}\n"
    assert ["default", "up", "1", "mix", ada.shop.nodes[0]] in [row.split() for row in ada.ok("sinfo").splitlines()]
    assert "CPUAlloc=1 CPUTot=2" in ada.ok("scontrol", "show", "node", ada.shop.nodes[0])
    ada.ok("scancel", "--me", "-n", "held")
    ada.over(number)
    assert ada.ok("sacct", "-nP", "-o", "JobName,State", "-j", str(number)) == "held|CANCELLED\n"
    assert ada.ok("squeue", "-h", "-j", str(number)) == ""


def test_sbatch_waits_and_ends_as_the_job_did(ada: SlurmUser):
    assert ada.run("sbatch", "-W", "-t", "5", "--wrap", "exit 7").returncode == 7


def test_nobody_cancels_the_job_of_another(ada: SlurmUser, shop: Instance, users: list[str]):
    number = int(ada.ok("sbatch", "--parsable", "-H", "-t", "5", "--wrap", "true"))
    ran = SlurmUser(shop, users[1]).run("scancel", str(number))
    assert ran.returncode == 1
    assert "scancel: " in ran.stderr
    ada.ok("scancel", str(number))
