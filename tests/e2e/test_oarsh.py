"""oarsh and oarcp: commands and files on the nodes of a job, from where the server can be reached."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from oarlock.cli.jobs.oarsh import parse
from oarlock.client import RequestRefused
from oarlock.model.job import JobState
from tests.bed import needs_root
from tests.e2e.instance import SOURCE, Instance
from tests.e2e.terminal import job_of, piped

pytestmark = needs_root


@pytest.fixture(scope="module")
def running(shop, users):
    """A job on both nodes that runs for as long as the tests of this module."""
    job = job_of(piped(shop, users[0], "-l", "/network_address=2/core=1,walltime=1", "sleep 3600")[1].encode())
    shop.until(lambda: shop.job(job).state is JobState.RUNNING)
    yield job
    shop.delete(job)


def run(
    site: Instance, user: str, programs: Path, *words: str, job: object = "", stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    account = pwd.getpwnam(user)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(site.home), "PYTHONPATH": str(SOURCE),
        "OARLOCK_SERVER": str(site.state / "server.sock"), "OAR_JOB_ID": str(job),
    }  # fmt: skip
    return subprocess.run(
        list(words), env=environment, cwd=site.home, user=account.pw_uid, group=account.pw_gid, extra_groups=[],
        input=stdin, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.manual(89, 90)
def test_a_command_runs_on_the_node_in_the_jobs_group(shop, users, programs, running):
    shows = ["id -un; cat; echo $OAR_JOB_ID; cat /proc/self/cgroup", ";", "exit", "3"]
    ran = run(shop, users[0], programs, "oarsh", shop.nodes[1], *shows, job=running, stdin=b"in\n")
    lines = ran.stdout.decode().splitlines()
    assert (ran.returncode, lines[:3]) == (3, [users[0], "in", str(running)]), ran.stderr
    assert any(line.endswith(f"/{shop.nodes[1]}/{users[0]}_{running}") for line in lines)


def test_ten_megabytes_come_through_whole_with_errors_apart(shop, users, programs, running):
    count = "head -c 10000000 /dev/zero; echo done >&2"
    ran = run(shop, users[0], programs, "oarsh", "-n", shop.nodes[0], count, job=running)
    assert (ran.returncode, len(ran.stdout), ran.stderr) == (0, 10_000_000, b"done\n")


def test_files_are_copied_both_ways(shop, users, programs, running):
    source, back = shop.home / "copied.in", shop.home / "copied.back"
    source.write_bytes(os.urandom(300_000))
    source.chmod(0o644)
    there = f"{shop.nodes[1]}:{shop.home}/copied.there"
    ran = run(shop, users[0], programs, "oarcp", "-q", str(source), there, job=running)
    assert ran.returncode == 0, ran.stderr
    assert run(shop, users[0], programs, "oarcp", "-q", there, str(back), job=running).returncode == 0
    assert back.read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["elsewhere", "true"], 6, "elsewhere is not a node of job"),
        ([], 7, "oarsh needs the name of a node."),
        (["-Z", "x"], 7, "There is no option -Z."),
        (["", "true"], 7, "oarsh needs the name of a node."),
        (["x", "echo \udcff"], 7, "`echo \\udcff` is not valid UTF-8."),
        (["x", *["y" * 100_000] * 6], 7, "The command is too long: 6"),
    ],
)
def test_what_cannot_be_is_refused_with_oars_numbers(shop, users, programs, running, words, code, says):
    ran = run(shop, users[0], programs, "oarsh", *words, job=running)
    assert (ran.returncode, says in ran.stderr.decode(), ran.stdout) == (code, True, b""), ran.stderr


@pytest.mark.parametrize(("job", "code"), [("", 6), ("x", 6), ("999999", 255)])
def test_a_job_that_is_not_there_is_refused(shop, users, programs, job, code):
    assert run(shop, users[0], programs, "oarsh", shop.nodes[0], "true", job=job).returncode == code


def test_another_user_does_not_enter_the_job(shop, users, programs, running):
    ran = run(shop, users[1], programs, "oarsh", shop.nodes[0], "true", job=running)
    assert (ran.returncode, users[0] in ran.stderr.decode(), ran.stdout) == (255, True, b"")


def test_what_oarsh_started_ends_with_the_job(shop, users, programs):
    job = job_of(piped(shop, users[0], "-l", "/network_address=2/core=1,walltime=1", "sleep 600")[1].encode())
    shop.until(lambda: shop.job(job).state is JobState.RUNNING)
    ran = run(shop, users[0], programs, "oarsh", shop.nodes[1], "nohup sleep 987 >/dev/null 2>&1 & echo $!", job=job)
    pid = int(ran.stdout)
    assert Path(f"/proc/{pid}").exists()
    shop.delete(job)
    shop.until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.manual(91)
@pytest.mark.parametrize(
    ("words", "host", "command", "terminal"),
    [
        (["node1"], "node1", None, True),
        (["node1", "ls", "-l", "a b"], "node1", "ls -l a b", False),
        (["-tq", "node1", "-v", "top"], "node1", "top", True),
        (["-T", "node1"], "node1", None, False),
        (["-x", "-oA=b", "-l", "eve", "-i", "key", "--", "eve@node1", "scp", "-t", "."], "node1", "scp -t .", False),
        (["-p22", "-F", "file", "node1", "--", "ls"], "node1", "ls", False),
    ],
)
def test_options_are_read_as_ssh_does_and_dropped(words, host, command, terminal):
    remote = parse(words)
    assert (remote.host, remote.command, remote.terminal) == (host, command, terminal)


def test_an_option_without_its_value_is_refused():
    with pytest.raises(RequestRefused, match="-l needs a value"):
        parse(["-l"])
