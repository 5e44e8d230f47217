"""oarsh, oarcp and oarprint in jobs: from one node of a job to another, through the channels of the nodes."""

import os
import pwd
import signal
import subprocess
from pathlib import Path

import pytest

from oarlock.client import Client
from oarlock.model.job import JobState
from tests.bed import needs_root
from tests.e2e.cluster import cluster
from tests.e2e.instance import Instance
from tests.e2e.terminal import job_of, piped, terminal

pytestmark = needs_root

BOTH = "/network_address=2/core=1,walltime=1"


def submitted(site: Instance, user: str, command: str, asked: str = BOTH) -> int:
    """Submit a job and return its number."""
    return job_of(piped(site, user, "-l", asked, command)[1].encode())


def on_node(site: Instance, node: str, user: str, *words: str, job: int) -> "subprocess.CompletedProcess[bytes]":
    """Run a command of jobs as a process of a user on a pretended node."""
    account = pwd.getpwnam(user)
    runtime = site.state / "run" / node
    environment = {"PATH": "/usr/bin:/bin", "OARSH_SOCKET": f"{runtime}/oarsh.sock", "OAR_JOB_ID": str(job)}
    return subprocess.run(
        [f"{runtime}/bin/{words[0]}", *words[1:]], env=environment, cwd=site.home, user=account.pw_uid,
        group=account.pw_gid, extra_groups=[], capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def running(shop, users):
    """A job of the first user on both nodes that runs for as long as the tests of this module."""
    job = submitted(shop, users[0], "sleep 3600")
    shop.until(lambda: shop.job(job).state is JobState.RUNNING)
    yield job
    shop.delete(job)


@pytest.mark.manual(87, 88)
def test_a_job_runs_commands_on_its_other_node(shop, users):
    script = """
        echo in | oarsh {0} 'cat; id -un; echo $OAR_JOB_ID; grep -o "/[^/]*/[^/]*$" /proc/self/cgroup | tail -1
        echo bad >&2; exit 7'; echo $?
        oarsh elsewhere true; echo $?
        oarsh -n {1} 'oarsh {0} echo from there'
        echo copied > mine.$OAR_JOB_ID; oarcp -q mine.$OAR_JOB_ID {0}:there.$OAR_JOB_ID && cat there.$OAR_JOB_ID
        oarprint network_address"""
    first, second = shop.nodes
    job = submitted(shop, users[0], script.format(second, first))
    shop.until(lambda: shop.job(job).state is JobState.TERMINATED)
    output = (shop.home / f"OAR.{job}.stdout").read_text().splitlines()
    errors = (shop.home / f"OAR.{job}.stderr").read_text()
    group = f"/{second}/{users[0]}_{job}"
    assert output == ["in", users[0], str(job), group, "7", "6", "from there", "copied", first, second], errors
    assert errors.startswith("bad\n")
    assert f"elsewhere is not a node of job {job}." in errors


def test_what_oarsh_starts_counts_in_the_cpu_time_of_the_job(shop, users):
    busy = "timeout 2 sh -c 'while :; do :; done'"
    jobs = [submitted(shop, users[0], f'oarsh {shop.nodes[1]} "{what}"') for what in (busy, "true")]
    shop.until(lambda: {shop.job(job).state for job in jobs} == {JobState.TERMINATED})
    used = {row["job_id"]: row["cpu_seconds"] for row in Client(str(shop.state / "server.sock")).usage(jobs)}
    assert used[jobs[0]] > used[jobs[1]] + 0.3  # of two seconds, on a machine that others use, too


def test_megabytes_pass_whole_both_ways_between_nodes(shop, users):
    count = f"head -c 3000000 /dev/zero | oarsh {shop.nodes[1]} cat | oarsh {shop.nodes[0]} cat | wc -c"
    job = submitted(shop, users[0], count)
    shop.until(lambda: shop.job(job).state is JobState.TERMINATED)
    assert (shop.home / f"OAR.{job}.stdout").read_text() == "3000000\n"


def test_another_user_on_the_node_does_not_enter_the_job(shop, users, running):
    ran = on_node(shop, shop.nodes[0], users[1], "oarsh", shop.nodes[0], "id", job=running)
    assert (ran.returncode, ran.stdout) == (255, b"")
    assert f"Job {running} belongs to {users[0]}" in ran.stderr.decode()


def test_a_node_opens_no_job_that_is_not_on_it(shop, users, running):
    elsewhere = submitted(shop, users[0], "sleep 600", f"{{network_address='{shop.nodes[1]}'}}/core=1,walltime=1")
    shop.until(lambda: shop.job(elsewhere).state is JobState.RUNNING)
    ran = on_node(shop, shop.nodes[0], users[0], "oarsh", shop.nodes[1], "id", job=elsewhere)
    assert (ran.returncode, ran.stdout) == (6, b"")
    assert f"{shop.nodes[0]} is not a node of job {elsewhere}." in ran.stderr.decode()
    assert on_node(shop, shop.nodes[1], users[0], "oarsh", shop.nodes[1], "true", job=elsewhere).returncode == 0
    shop.delete(elsewhere)


def test_nobody_but_root_can_write_the_commands(shop, running):
    assert shop.job(running).state is JobState.RUNNING
    folder = shop.state / "run" / shop.nodes[0] / "bin"
    assert sorted(path.name for path in folder.iterdir()) == [".path", "oarcp", "oarprint", "oarsh", "oarx11", "slurm"]
    assert sorted(path.name for path in (folder / "slurm").iterdir()) == ["scontrol", "srun"]
    assert {(path.stat().st_uid, path.stat().st_mode & 0o022) for path in (folder, *folder.rglob("*"))} == {(0, 0)}


def test_what_oarsh_started_on_another_node_ends_with_the_job(shop, users):
    job = submitted(shop, users[0], f"oarsh {shop.nodes[1]} 'echo $$ > $OAR_JOB_ID; exec sleep 987'")
    process = started_process(shop, job)
    shop.delete(job)
    shop.until(lambda: not process.exists())


def test_a_client_that_is_killed_ends_what_it_started(shop, users):
    command = f"oarsh {shop.nodes[1]} 'echo $$ > $OAR_JOB_ID; exec sleep 987' & echo $! > client; wait; sleep 600"
    job = submitted(shop, users[0], command)
    process = started_process(shop, job)
    os.kill(int((shop.home / "client").read_text()), signal.SIGKILL)
    shop.until(lambda: not process.exists())
    assert shop.job(job).state is JobState.RUNNING
    shop.delete(job)


def started_process(site: Instance, job: int) -> Path:
    """Wait for the process whose number a job wrote; return its folder in /proc."""
    written = site.home / str(job)
    site.until(lambda: written.exists() and written.read_text().endswith("\n"))
    return Path("/proc") / written.read_text().strip()


@pytest.mark.parametrize("shell_of", ["users", "two_users"], ids=["bash", "sh"])
def test_the_shell_of_an_interactive_job_finds_the_commands(shop, request, shell_of):
    user = request.getfixturevalue(shell_of)[0]
    with terminal(shop, user, "-I", "-l", BOTH) as shell:
        shell.until("$ ")
        shell.type(f"oarsh {shop.nodes[1]} echo th''ere; exit\n")
        shell.until("there")


def test_a_shell_that_reads_stdin_finds_the_commands_after_a_profile(shop, users):
    (shop.home / ".bash_profile").write_text("PATH=/usr/bin:/bin\n")
    asked = b"type -t oarsh oarcp oarprint\nnosuchword\nexit 3\n"
    code, out, err = piped(shop, users[0], "-I", "-l", BOTH, stdin=asked)
    (shop.home / ".bash_profile").unlink()
    assert (code, out.split().count("file"), "line 2: nosuchword" in err) == (0, 3, True), (out, err)


def test_a_command_goes_on_while_the_server_is_killed_and_started(own, users):
    say = "(until [ -e say ]; do sleep 0.1; done; echo over; touch said)"
    there = "touch began; until [ -e go ]; do sleep 0.1; done; cat; exit 5"
    command = f"{say} | oarsh $(head -1 $OAR_NODEFILE) '{there}'; echo $?"
    job = submitted(own, users[0], command, "/network_address=1/core=1,walltime=1")
    own.until((own.home / "began").exists)
    own.process.send_signal(signal.SIGSTOP)  # what is said from now on is lost with it, and has to be said again
    (own.home / "say").touch()
    own.until((own.home / "said").exists)
    own.kill()
    (own.home / "go").touch()
    own.start()
    own.until(lambda: own.job(job).state is JobState.TERMINATED)
    errors = (own.home / f"OAR.{job}.stderr").read_text()
    assert (own.home / f"OAR.{job}.stdout").read_text() == "over\n5\n", errors


@pytest.mark.manual(87, 89)
@pytest.mark.component("sshd")
@pytest.mark.component("ip")
def test_nodes_behind_sshd_that_do_not_reach_each_other_run_commands(workspace, users):
    with cluster(workspace, users[0], ("", "", "")) as site:
        _, second, third = site.nodes
        chain = f"echo in | oarsh {second} 'cat; hostname; oarsh -n {third} hostname; exit 4'; echo $?"
        job = site.submit(chain, "/network_address=3/core=1,walltime=1")
        site.start()
        site.until(site.all_over)
        errors = (site.home / f"OAR.{job}.stderr").read_text()
        assert (site.home / f"OAR.{job}.stdout").read_text().split() == ["in", second, third, "4"], errors


@pytest.mark.component("mpirun")
def test_mpirun_starts_on_all_nodes_of_a_job_with_no_option(shop, users):
    # Both daemons run on this one machine, where OpenMPI's own making of the directory of its sessions is a race that
    # neither of two real machines has: whoever loses it ends, and mpirun is started again.
    folder = (
        'install -d -m 700 "$PWD/ompi.$(hostname -s).$(id -u)" && export TMPDIR=$PWD OMPI_MCA_orte_tmpdir_base=$PWD'
    )
    shows = """sh -c 'echo $OMPI_COMM_WORLD_RANK $(grep -o "/[^/]*/[^/]*$" /proc/self/cgroup | tail -1)'"""
    job = submitted(shop, users[0], f"{folder} && for turn in 1 2 3 4 5; do mpirun {shows} && break; done | sort")
    shop.until(lambda: shop.job(job).state is JobState.TERMINATED)
    output = (shop.home / f"OAR.{job}.stdout").read_text().splitlines()
    errors = (shop.home / f"OAR.{job}.stderr").read_text()
    assert output == [f"{rank} /{node}/{users[0]}_{job}" for rank, node in enumerate(shop.nodes)], errors


@pytest.mark.component("mpiexec.hydra")
def test_mpich_starts_on_all_nodes_even_of_a_translated_script(shop, users):
    shows = """sh -c 'echo $PMI_RANK $(grep -o "/[^/]*/[^/]*$" /proc/self/cgroup | tail -1)'"""
    slurm = 'export SLURM_JOB_ID=$OAR_JOB_ID SLURM_JOBID=$OAR_JOB_ID SLURM_NNODES=2 SLURM_NODELIST="a,b"'
    job = submitted(shop, users[0], f"{slurm}; mpiexec.hydra {shows} | sort")
    shop.until(lambda: shop.job(job).state is JobState.TERMINATED)
    output = (shop.home / f"OAR.{job}.stdout").read_text().splitlines()
    errors = (shop.home / f"OAR.{job}.stderr").read_text()
    assert output == [f"{rank} /{node}/{users[0]}_{job}" for rank, node in enumerate(shop.nodes)], errors
