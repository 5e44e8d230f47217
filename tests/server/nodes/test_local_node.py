"""The life of an attempt on a node behind a pipe: real processes, real groups."""

# ruff: noqa: ASYNC220, ASYNC240 - nobody else waits for the loop of a test

import asyncio
import contextlib
import hashlib
import json
import os
import pwd
import re
import select
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.node.attempt import spool
from oarlock.node.attempt.user.output import OutputRequest
from oarlock.node.wire.messages import (
    CLEANED,
    EXITED,
    FAILED,
    KILLED,
    LOST,
    OTHER,
    REBOOTED,
    SEEN,
    UNKNOWN,
    WALLTIME,
    CgroupLimits,
    NodeSettings,
    SiteHooks,
)
from oarlock.server.nodes import (
    AttemptMissing,
    BadReport,
    ConnectionLost,
    ConnectionSlots,
    Exited,
    NodeClient,
    Started,
    Timeouts,
    file_transfer,
    local,
)
from oarlock.server.nodes.command import NodeCommand
from tests.bed import PYTHON, QUICK, needs_root, needs_v1, open_node, run_async, script
from tests.waiting import wait_until

pytestmark = needs_root

NINE = Path("/root/.pyenv/versions/3.9.18/bin/python3.9")


@pytest.mark.manual(17, 189)
@run_async
async def test_a_job_runs_as_its_user_in_its_directory_and_its_group(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        shown = "id -un; pwd; echo $OAR_JOB_ID; cat $OAR_NODEFILE; grep pids /proc/self/cgroup | cut -d: -f3"
        report = await post.run(7, f"{shown}; echo oops >&2; exit 3", nodes=("n1", "n1"))
        assert (report.outcome, report.status, report.node) == (EXITED, 3 << 8, post.settings.node)
        assert post.out(7).splitlines() == [
            two_users[0],
            str(post.home),
            "7",
            "n1",
            "n1",
            f"/oarlock/{post.settings.node}/{two_users[0]}_7",
        ]
        assert post.err(7) == "oops\n"


@run_async
async def test_nothing_is_left_when_a_job_is_over_and_forgotten(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.run(1, "sleep 600 & setsid sleep 600 & true")
        await post.node.forget([(1, 1)])
        assert await post.status() == []
        assert sorted(path.name for path in Path(post.settings.runtime).iterdir()) == ["bin", "oarsh.sock"]
        assert sorted(path.name for path in Path(post.settings.spool).iterdir()) == ["highest", "lock"]
        assert list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{post.settings.node}/*_1")) == []


@run_async
async def test_two_users_at_once_each_get_their_own_identity(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        post.home.chmod(0o777)
        for job in range(1, 21):
            await post.node.launch(post.launch(job, "id -un", user=two_users[job % 2]))
        await asyncio.gather(*(post.report(job) for job in range(1, 21)))
        assert [post.out(job).strip() for job in range(1, 21)] == [two_users[job % 2] for job in range(1, 21)]


@run_async
async def test_an_attempt_that_was_seen_is_refused_and_runs_once(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        launch = post.launch(1, "echo ran")
        await post.node.launch(launch)
        await post.report(1)
        with pytest.raises(NodeRefused) as again:
            await post.node.launch(launch)
        await post.node.forget([(1, 1)])
        with pytest.raises(NodeRefused) as after_forgetting:
            await post.node.launch(launch)
        assert (again.value.word, after_forgetting.value.word, post.out(1)) == (SEEN, SEEN, "ran\n")


@run_async
async def test_a_launch_for_another_boot_is_refused(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        with pytest.raises(NodeRefused) as refusal:
            await post.node.launch(post.launch(1, "true", boot="00000000-before"))
        assert refusal.value.word == REBOOTED


@pytest.mark.manual(192)
@run_async
async def test_a_job_is_told_to_end_and_ends(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"))
        await post.printed(1, "ready")
        await post.node.kill(1, 1)
        report = await post.report(1)
        assert (report.outcome, report.status, post.out(1)) == (KILLED, 5 << 8, "ready\nbye\n")
        wait_until(lambda: re.search(r"^## OAR \[[0-9: -]{19}\] Job 1 KILLED ##$", post.err(1), re.MULTILINE))


@run_async
async def test_a_job_that_does_not_listen_is_killed_as_a_whole_after_the_grace(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        deaf = "trap '' TERM; (setsid sleep 600 &) ; echo ready; while :; do sleep 0.01; done"
        await post.node.launch(post.launch(1, deaf, grace=1))
        await post.printed(1, "ready")
        begin = time.monotonic()
        await post.node.kill(1, 1)
        report = await post.report(1)
        assert (report.outcome, report.status) == (KILLED, signal.SIGKILL)
        assert 0.9 <= time.monotonic() - begin < 10
        assert report.events == ()


@run_async
async def test_the_node_itself_ends_a_job_at_its_walltime(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(1, "sleep 600", walltime=1, grace=1)
        assert (report.outcome, report.events) == (WALLTIME, (("WALLTIME", "the walltime of 1 s is over"),))
        assert 1.0 <= report.ran < 8
        wait_until(lambda: "Job 1 KILLED" in post.err(1))


@run_async
async def test_the_walltime_can_be_changed_while_a_job_runs(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "sleep 600", walltime=500))
        await post.started(1)
        await post.node.walltime(1, 1, 1)
        assert (await post.report(1)).outcome == WALLTIME


@pytest.mark.manual(14, 15, 139, 195)
@run_async
async def test_the_checkpoint_signal_comes_before_the_end(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        saving = "trap 'echo saved; exit 0' USR1; while :; do sleep 0.01; done"
        report = await post.run(1, saving, walltime=60, checkpoint=58, checkpoint_signal=signal.SIGUSR1)
        assert (report.outcome, report.status, post.out(1)) == (EXITED, 0, "saved\n")
        wait_until(lambda: "Job 1 CHECKPOINTED with signal 10 ##" in post.err(1))
        assert report.events == (("CHECKPOINT_SUCCESS", "signal 10 was sent"),)


@run_async
async def test_a_signal_reaches_the_program_below_the_shell_and_not_the_shell(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        code = "import signal, sys; signal.signal(12, lambda *_: sys.exit(9)); print(1, flush=True); signal.pause()"
        await post.node.launch(post.launch(1, f"{PYTHON} -c '{code}'; echo after $?"))
        await post.printed(1, "1")
        await post.node.signal(1, 1, 12)
        report = await post.report(1)
        assert (report.status, post.out(1)) == (0, "1\nafter 9\n")


@pytest.mark.manual(68)
@run_async
async def test_a_suspended_job_stands_still_and_its_walltime_with_it(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done", walltime=2))
        await post.started(1)
        await post.node.suspend(1, 1)
        [about] = await post.status()
        before = post.out(1)
        await asyncio.sleep(2.5)  # longer than the walltime: time itself is what is tested
        assert (about["state"], post.out(1)) == ("suspended", before)
        await post.node.resume(1, 1)
        report = await post.report(1)
        assert (report.outcome, post.out(1)) == (EXITED, "1\n2\n3\n4\n5\n6\n")
        assert 2.4 < report.suspended < 4


@pytest.mark.manual(173)
@run_async
async def test_the_sites_own_program_suspends_in_place_of_the_freezer(workspace, two_users, site):
    program = script(site / "pause", f'echo "$1" >> {site}/asked; cat >> {site}/asked; echo >> {site}/asked')
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(
            post.launch(1, "while :; do echo on; sleep 0.02; done", hooks=SiteHooks(suspend=program))
        )
        await post.started(1)
        await post.node.suspend(1, 1)
        [about] = await post.status()
        assert about["state"] == "suspended"
        printed = len(post.out(1))  # the program stops nothing, so the job goes on
        await asyncio.to_thread(wait_until, lambda: len(post.out(1)) > printed)
        await post.node.resume(1, 1)
        await post.node.kill(1, 1)
        assert (await post.report(1)).outcome == KILLED
    verb, body, last, _ = (site / "asked").read_text().splitlines()
    job = json.loads(body)
    assert (verb, last, job["job"], job["action"], len(job["pids"]) > 0) == ("suspend", "resume", 1, "suspend", True)


@run_async
async def test_a_job_that_the_sites_program_cannot_resume_still_ends(workspace, two_users, site):
    program = script(site / "pause", '[ "$1" = suspend ]')
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "sleep 600", hooks=SiteHooks(suspend=program)))
        await post.started(1)
        await post.node.suspend(1, 1)
        with pytest.raises(NodeRefused) as refusal:
            await post.node.resume(1, 1)
        assert (refusal.value.word, "ended with exit 1" in str(refusal.value)) == ("RESUME_ERROR", True)
        await post.node.kill(1, 1)
        report = await post.report(1)
        assert (report.outcome, report.events[0][0]) == (KILLED, "RESUME_ERROR")


@run_async
async def test_a_suspended_job_can_be_killed(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "sleep 600"))
        await post.started(1)
        await post.node.suspend(1, 1)
        await post.node.kill(1, 1)
        assert (await post.report(1)).outcome == KILLED


@run_async
async def test_verbs_for_an_attempt_that_is_not_there_are_refused(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        with pytest.raises(NodeRefused) as refusal:
            await post.node.kill(99, 1)
        assert refusal.value.word == UNKNOWN


@pytest.mark.manual(122, 124, 127, 132, 133)
@pytest.mark.parametrize(
    ("change", "event", "says"),
    [
        ({"user": "nobody-of-that-name"}, "USER_UNKNOWN", "not known on this node"),
        ({"user": "daemon"}, "USER_SHELL", "uid 1000 or above"),
        ({"uid": 4242}, "USER_SHELL", "has uid 4242 on the server"),
        ({"directory": "/root"}, "WORKING_DIRECTORY", "/root: Permission denied"),
        ({"directory": "/no/such/place"}, "WORKING_DIRECTORY", "/no/such/place: No such file"),
        ({"stdout": "/etc/shadow"}, "OUTPUT_FILES", "/etc/shadow"),
        ({"stderr": "/dev/zero"}, "OUTPUT_FILES", "not a regular file"),
        ({"environment": {"A": "x" * (1 << 18)}}, "USER_SHELL", "bytes of variables"),
        ({"hooks": SiteHooks(prologue="/root/absent-xyz")}, "PROLOGUE_ERROR", "cannot be opened"),
    ],
)
def test_what_fails_before_the_users_code_is_an_event_of_the_manual(workspace, two_users, change, event, says):
    async def story():
        async with open_node(workspace, two_users[0]) as post:
            report = await post.run(1, "echo ran", **change)
            assert (report.outcome, report.event, report.status, report.started) == (FAILED, event, None, None)
            assert says in report.says
            assert not (post.home / "1.out").exists() or post.out(1) == ""

    asyncio.run(story())


@contextlib.contextmanager
def small_disk(path):
    """A file system of 64 KiB."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(disk):
    """Leave no byte on a disk."""
    with (disk / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


@run_async
async def test_a_spool_that_is_gone_refuses_the_launch(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.run(1, "true")
        Path(post.settings.spool).rename(workspace / "moved")
        with pytest.raises(NodeRefused) as refusal:
            await post.node.launch(post.launch(2, "echo ran"))
        assert refusal.value.word == "CANNOT_CREATE_TMP_DIRECTORY"


@pytest.mark.manual(126)
@run_async
async def test_a_full_spool_refuses_the_launch_and_the_next_one_runs(workspace, two_users):
    with small_disk(workspace / "spool") as disk:
        async with open_node(workspace, two_users[0]) as post:
            for job, command in ((1, "true"), (2, "echo ran")):  # the first of a node, and one after others
                fill(disk)
                with pytest.raises(NodeRefused) as refusal:
                    await post.node.launch(post.launch(job, command))
                assert refusal.value.word == "CAN_NOT_WRITE_PID_FILE"
                (disk / "filling").unlink()
                assert (await post.run(job, command)).status == 0


@pytest.mark.manual(125)
@run_async
async def test_a_full_runtime_directory_fails_the_launch(workspace, two_users):
    with small_disk(workspace / "run") as disk:
        async with open_node(workspace, two_users[0]) as post:
            fill(disk)
            report = await post.run(1, "echo ran", nodes=("n1",))
            assert (report.outcome, report.event) == (FAILED, "CAN_NOT_WRITE_NODE_FILE")
            assert "No space left" in report.says


@pytest.mark.manual(167)
@run_async
async def test_prologue_and_epilogue_have_nothing_of_the_users(workspace, two_users, site):
    log = site / "log"
    hooks = SiteHooks(
        prologue=script(site / "p", f"echo before $@ >> {log}; env >> {log}"),
        epilogue=script(site / "e", f"echo after >> {log}"),
    )
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(4, "true", hooks=hooks, environment={"LD_PRELOAD": "/evil.so", "BASH_ENV": "/evil"})
        lines = log.read_text().splitlines()
        assert (report.outcome, lines[0], lines[-1]) == (
            EXITED,
            f"before 4 {two_users[0]} {post.settings.runtime}/4.1.nodes 60",
            "after",
        )
        assert "evil" not in log.read_text()


@run_async
async def test_after_a_failed_prologue_the_epilogue_still_runs(workspace, two_users, site):
    hooks = SiteHooks(prologue=script(site / "p", "exit 4"), epilogue=script(site / "e", f"touch {site}/cleaned"))
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(1, "echo ran", hooks=hooks)
        assert (report.outcome, report.event, report.causes) == (FAILED, "PROLOGUE_ERROR", {"PROLOGUE_ERROR": "exit"})
        assert report.says.endswith("/p ended with exit 4")
        assert ((site / "cleaned").exists(), (post.home / "1.out").exists()) == (True, False)


@pytest.mark.manual(167)
@run_async
async def test_a_prologue_that_hangs_is_ended_with_its_daemons(workspace, two_users, site):
    hooks = SiteHooks(prologue=script(site / "p", f"setsid sleep 600 & echo $! > {site}/pid; sleep 600"), timeout=1)
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "echo ran", hooks=hooks))
        assert (await post.run(2, "true")).outcome == EXITED
        assert not any(isinstance(event, Exited) and event.report.job == 1 for event in post.events)
        report = await post.report(1)
        assert (report.event, "did not end within 1 s" in report.says) == ("PROLOGUE_ERROR", True)
        daemon = Path("/proc") / (site / "pid").read_text().strip()
        wait_until(lambda: not daemon.exists(), what="the burial of the daemon")


@pytest.mark.manual(130)
@run_async
async def test_a_job_can_be_killed_during_its_prologue(workspace, two_users, site):
    hooks = SiteHooks(prologue=script(site / "p", f"touch {site}/begun; sleep 600"))
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "echo ran", hooks=hooks))
        await asyncio.to_thread(wait_until, (site / "begun").exists)
        await post.node.kill(1, 1)
        report = await post.report(1)
        assert (report.outcome, report.status, (post.home / "1.out").exists()) == (KILLED, None, False)


@pytest.mark.manual(123)
@run_async
@pytest.mark.parametrize("text", ["exit 1", "sleep 600"])
async def test_an_epilogue_that_fails_or_hangs_leaves_the_exit_code_alone(workspace, two_users, site, text):
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(1, "exit 7", hooks=SiteHooks(epilogue=script(site / "e", text), timeout=1))
        assert (report.outcome, report.status, report.events[0][0]) == (EXITED, 7 << 8, "EPILOGUE_ERROR")


@run_async
async def test_a_vanished_site_program_is_reported_with_the_exit_code(workspace, two_users, site):
    body = f"rm {site}/m; echo '{{}}'"
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(1, "exit 7", hooks=SiteHooks(manager=script(site / "m", body)))
        assert (report.outcome, report.status) == (EXITED, 7 << 8)
        assert report.events[0][0] == "CPUSET_CLEAN_ERROR"
        assert report.causes == {"CPUSET_CLEAN_ERROR": "unusable"}


@run_async
async def test_a_node_says_at_once_which_programs_of_the_site_it_cannot_run(workspace, two_users, site):
    good, bad = script(site / "p", "true"), f"{site}/absent"
    async with open_node(workspace, two_users[0], check=(good, bad)) as post:
        assert (await post.node.hello()).unusable == {bad: f"{bad} cannot be opened: No such file or directory"}


@pytest.mark.manual(174)
@run_async
async def test_a_sites_own_program_may_take_the_place_of_the_cgroup_step(workspace, two_users, site):
    group = "/sys/fs/cgroup/pids/oarlock-site-test"
    body = (
        f'case $1 in init) mkdir {group}; echo \'{{"join": ["{group}/cgroup.procs"], "path": "/oarlock-site-test"}}\';;'
        f" clean) rmdir {group};; esac; echo $1 >> {site}/log; cat >> {site}/log; echo >> {site}/log"
    )
    async with open_node(workspace, two_users[0]) as post:
        command = "grep pids /proc/self/cgroup | cut -d: -f3; echo $OAR_CPUSET; sleep 600 &"
        report = await post.run(1, command, hooks=SiteHooks(manager=script(site / "m", body)))
        assert (report.outcome, report.events) == (EXITED, ())
        assert post.out(1) == "/oarlock-site-test\n/oarlock-site-test\n"
        assert [line for line in (site / "log").read_text().splitlines() if line.isalpha()] == ["init", "clean"]
        assert not Path(group).exists()


@run_async
async def test_that_a_job_began_is_told_before_the_sites_own_program_cleans_up(workspace, two_users, site):
    slow = f'case $1 in clean) while [ ! -e {site}/told ]; do sleep 0.01; done;; esac; echo "{{}}"'
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "true", hooks=SiteHooks(manager=script(site / "m", slow))))
        await post.started(1)
        assert [event for event in post.events if isinstance(event, Exited)] == []
        (site / "told").touch()
        assert (await post.report(1)).outcome == EXITED


@needs_v1
@run_async
async def test_a_memory_hog_dies_and_its_neighbour_lives(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; done; echo alive"))
        hog = f"{PYTHON} -c \"x = []\nwhile True: x.append(b'x' * (1 << 20))\""
        report = await post.run(2, hog, limits=CgroupLimits(memory=64 << 20, pids=50))
        assert (report.counters["memory_oom_kills_total"], report.status) in [(1, 9), (1, 137 << 8)]
        says = "the kernel killed a process of the job for want of memory; the job reached its limit of 64 MiB"
        assert report.events == (("OUT_OF_MEMORY", says),)
        line = re.compile(rf"^## OAR \[[0-9: -]{{19}}\] Job 2 OUT OF MEMORY: {says} ##$", re.MULTILINE)
        await asyncio.to_thread(wait_until, lambda: line.search(post.err(2)), what="the line in its stderr")
        await post.report(1)
        assert post.out(1) == "alive\n"


@needs_v1
@run_async
async def test_a_fork_bomb_is_contained_and_the_node_still_answers(workspace, two_users):
    code = "import os, time\nfor _ in range(100):\n  try:\n    if os.fork() == 0: break\n  except OSError: pass\n"
    bomb = f'{PYTHON} -c "{code}time.sleep(60)"'
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, bomb, limits=CgroupLimits(pids=20), grace=1))
        await post.started(1)
        group = Path(f"/sys/fs/cgroup/pids/oarlock/{post.settings.node}/{two_users[0]}_1")
        await asyncio.to_thread(wait_until, lambda: "max 0" not in (group / "pids.events").read_text())
        await post.node.ping()
        assert int((group / "pids.current").read_text()) <= 20
        await post.node.kill(1, 1)
        assert (await post.report(1)).counters["tasks_refused_total"] > 0


@pytest.mark.manual(188)
@run_async
async def test_jobs_outlive_the_server_and_its_successor_reads_how_they_ended(workspace, two_users):
    """SIGKILL of the node program stands for the loss of server, ssh and program at once."""
    async with open_node(workspace, two_users[0]) as post:
        launches = {job: post.launch(job, f"echo ran; sleep {0.2 if job % 2 else 600}") for job in range(1, 11)}
        for launch in launches.values():
            await post.node.launch(launch)
        await asyncio.gather(*(post.started(job) for job in launches))
        mark = len(post.events)
        os.kill(post.node._channel._process.pid, signal.SIGKILL)
        await post.until(lambda event: isinstance(event, ConnectionLost))
        await post.back(after=mark)
        for job in launches:
            with pytest.raises(NodeRefused, match="was here before"):
                await post.node.launch(launches[job])
        odd = await asyncio.gather(*(post.report(job) for job in launches if job % 2))
        assert [(report.outcome, report.status) for report in odd] == [(EXITED, 0)] * 5
        for job in launches:
            if not job % 2:
                await post.node.kill(job, 1)
        even = await asyncio.gather(*(post.report(job) for job in launches if not job % 2))
        assert {report.outcome for report in even} == {KILLED}
        assert [post.out(job) for job in launches] == ["ran\n"] * 10


@run_async
async def test_a_newer_program_of_the_same_spool_ends_the_older(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "sleep 0.5; echo done"))
        await post.started(1)
        older = post.node._channel._process
        newer = NodeClient(post.settings, local(PYTHON), post.hear, ConnectionSlots(), QUICK)
        await newer.hello()
        assert await asyncio.wait_for(older.wait(), 10) == -signal.SIGTERM
        await newer.close()


@pytest.mark.manual(128)
@run_async
@pytest.mark.parametrize("who", ["spawner", "supervisor"])
async def test_a_killed_supervisor_or_spawner_is_reported(workspace, two_users, who):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "echo $PPID > parent; sleep 600"))
        parent = await asyncio.to_thread(
            wait_until, lambda: (post.home / "parent").exists() and (post.home / "parent").read_text().strip()
        )
        above = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(int(parent) if who == "spawner" else above, signal.SIGKILL)
        report = await post.report(1)
        assert (report.outcome, report.status, report.event) == ("lost", None, "EXIT_VALUE_OAREXEC")
        assert list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{post.settings.node}/*_1")) == []


@run_async
async def test_a_place_on_another_node_is_held_and_given_back(workspace, two_users):
    async with open_node(workspace, two_users[0]) as first, open_node(workspace / "b", two_users[0]) as second:
        job = first.launch(5, "true")
        await second.node.launch(job._replace(role=OTHER, command="", boot=second.boot))
        await second.started(5)
        groups = list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{second.settings.node}/{two_users[0]}_5/cgroup.procs"))
        guest = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: [group.write_text("0") for group in groups])
        assert (await first.run(5, "true")).outcome == EXITED
        await second.node.end(5, job.attempt)
        assert (await second.report(5)).outcome == CLEANED
        assert guest.wait() == -signal.SIGKILL


@run_async
async def test_a_node_that_refuses_its_place_is_named(workspace, two_users):
    async with open_node(workspace, two_users[0]) as first, open_node(workspace / "b", two_users[0]) as second:
        job = first.launch(5, "true")
        place = job._replace(role=OTHER, command="")
        with pytest.raises(NodeRefused) as refusal:
            await second.node.launch(place._replace(boot="another"))
        assert (refusal.value.node, refusal.value.word) == (second.settings.node, REBOOTED)
        await first.node.launch(place)
        await first.started(5)
        await first.node.end(5, job.attempt)
        assert (await first.report(5)).outcome == CLEANED


@run_async
async def test_a_place_on_another_node_ends_with_its_lease(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "", role=OTHER, walltime=1, grace=1))
        await post.started(1)
        await post.node.walltime(1, 1, 1)
        with pytest.raises(NodeRefused, match=r"ending|running"):
            await post.node.signal(1, 1, 10)
        await post.node.end(1, 1)
        assert (await post.report(1)).outcome == CLEANED


@run_async
async def test_a_place_whose_server_and_spool_are_gone_does_not_stay(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "", role=OTHER, walltime=3600))
        await post.started(1)
        supervisor = os.pidfd_open(supervisor_of(post, 1))
        Path(post.settings.spool, "1.1").unlink()
        await post.node.close()
        assert (await asyncio.to_thread(select.select, [supervisor], [], [], 30))[0] == [supervisor]
        os.close(supervisor)
        assert list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{post.settings.node}/*_1")) == []


@run_async
async def test_reports_that_nobody_awaits_or_signed_otherwise_change_nothing(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(1, "true")
        await post.run(2, "true")
        [body, other] = [about["report"] for about in await post.status()]
        count = len(post.events)
        post.node._reported(body)  # a duplicate
        assert post.events[count:] == []
        await post.node.forget([(1, 1)])
        post.node._reported(body)  # late
        post.node.expect(3, 1, "00" * 32)
        post.node._reported({**body, "job": 3})  # forged
        post.node._reported({**other, "job": 3})
        assert [type(event) for event in post.events[count:]] == [BadReport] * 3
        assert report.job == 1


@run_async
async def test_an_attempt_that_the_node_does_not_know_is_missing(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        post.node.expect(77, 1, "00" * 32)
        os.kill(post.node._channel._process.pid, signal.SIGKILL)
        missing = await post.until(lambda event: isinstance(event, AttemptMissing))
        assert missing == AttemptMissing(post.settings.node, 77, 1)


@run_async
async def test_the_end_of_an_output_is_read_as_its_user(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(8, "echo fine; echo more")
        path = str(post.home / "8.out")
        shown = await post.node.show_output(OutputRequest(two_users[0], path))
        missing = await post.node.show_output(OutputRequest(two_users[0], f"{path}.x"))
        assert (report.status, missing[2] != "") == (0, True)
        assert shown == ("fine\nmore\n", 10, "")


@pytest.mark.manual(85, 176)
@run_async
async def test_a_sensor_is_bounded_in_time_and_text_and_must_be_roots(workspace, two_users, site, monkeypatch):
    good = script(site / "good", "echo $1 $2; tr -d '{}\\n' | cut -c1-8; head -c 100000 /dev/zero | tr '\\0' x")
    slow = script(site / "slow", "echo early 1; sleep 600 & exec sleep 600")
    bad = script(site / "bad", "echo half 2; exit 3")
    theirs = script(site / "theirs", "echo 1")
    os.chown(theirs, 4242, 4242)
    async with open_node(workspace, two_users[0]) as post:
        text, says = await post.node.sense(good, 7, "ada_7")
        assert (text.splitlines()[:2], len(text), says) == (["7 ada_7", '"path": '], 16 << 10, "")
        assert await post.node.sense(bad, 7, "ada_7") == ("half 2\n", f"{bad} ended with exit 3")
        assert "chown root" in (await post.node.sense(theirs, 7, "ada_7"))[1]
        late = await post.node.sense(slow, 7, "ada_7", seconds=1)
        assert late == ("early 1\n", f"{slow} did not end within 1 s")
        with pytest.raises(NodeRefused, match="cannot be read"):
            await post.node.sense(good, 7, "../../x")
        assert (await post.run(8, "echo fine")).status == 0
    async with open_node(workspace, two_users[0], programs=(bad,)) as post:
        with pytest.raises(NodeRefused, match="not among the programs"):
            await post.node.sense(good, 7, "ada_7")


@pytest.mark.manual(160)
@run_async
async def test_in_debug_mode_a_supervisor_keeps_a_log_for_root_alone(workspace, two_users):
    async with open_node(workspace, two_users[0], debug=True) as post:
        launch = post.launch(1, "echo hidden; exec sleep 600", environment={"TOKEN": "classified"})
        await post.node.launch(launch)
        await post.started(1)
        await post.node.kill(1, 1)
        await post.report(1)
        await post.run(2, "true", directory="/nowhere")
        await post.node.forget([(1, 1), (2, 1)])
        spooled = Path(post.settings.spool)
        log = spooled / "1.1.log"
        steps = [re.sub(r" \w+=.*", "", line[24:]) for line in log.read_text().splitlines()]
        assert steps == [
            "launch", "cgroup made", "running", "request", "to be ended", "command ended", "cgroup removed", "reported",
        ]  # fmt: skip
        assert not [word for word in ("hidden", "classified", launch.secret) if word in log.read_text()]
        assert [oct(path.stat().st_mode & 0o777) for path in (log, spooled)] == ["0o600", "0o700"]
        assert 'cannot start event="WORKING_DIRECTORY"' in (spooled / "2.1.log").read_text()


@run_async
async def test_logs_of_supervisors_are_few_small_and_not_old(workspace, two_users):
    spooled = workspace / "spool"
    spooled.mkdir(mode=0o700)
    for number in range(1, 251):
        old = spooled / f"{number}.1.log"
        old.write_text("x")
        os.utime(old, (number + time.time() - 300,) * 2)
    os.utime(spooled / "250.1.log", (0, 0))
    (spooled / "999.1.log").write_bytes(b"x" * (256 << 10))  # of an attempt of the same number, full
    async with open_node(workspace, two_users[0], debug=True) as post:
        await post.run(999, "true")
        left = {path.name for path in spooled.glob("*.log")}
        assert left == {f"{number}.1.log" for number in (*range(52, 250), 999)}
        assert (spooled / "999.1.log").read_bytes()[256 << 10 :].endswith(b" the log is full\n")
    async with open_node(workspace, two_users[0]) as post:
        await post.run(1000, "true")
        assert not (spooled / "1000.1.log").exists()


@run_async
async def test_a_command_that_is_not_there_is_told_within_its_deadline(workspace, two_users):
    settings = NodeSettings("absent", str(workspace / "s"), str(workspace / "r"))
    node = NodeClient(settings, local("/bin/false"), lambda _: None, ConnectionSlots(), Timeouts(connect=5.0))
    with pytest.raises(NodeUnreachable, match="ended before python3 began") as problem:
        await node.hello()
    assert not problem.value.sent
    await node.close()


@run_async
async def test_an_idle_connection_is_closed_and_made_again_when_needed(workspace, two_users):
    patience = Timeouts(connect=15.0, first_retry=0.1, ping=0.05, idle=0.1)
    async with open_node(workspace, two_users[0], patience=patience) as post:
        await asyncio.wait_for(post.node._keeper, 10)
        assert post.node._channel is None
        assert (await post.run(1, "true")).status == 0


@run_async
async def test_a_program_that_hears_nothing_ends(workspace, two_users):
    patience = Timeouts(connect=15.0, first_retry=0.1, ping=100.0)
    async with open_node(workspace, two_users[0], patience=patience, silence=1) as post:
        assert await asyncio.wait_for(post.node._channel._process.wait(), 15) == 0


@pytest.mark.skipif(not NINE.exists(), reason="no Python 3.9 here")
@run_async
async def test_a_node_needs_only_python_3_9(workspace, two_users):
    async with open_node(workspace, two_users[0], way=local(str(NINE))) as post:
        assert (await post.run(1, "echo nine")).status == 0
        assert (await post.node.hello()).python.startswith("3.9.")


@run_async
async def test_the_secrets_of_a_job_are_in_no_argument_list(workspace, two_users):
    canary = "canary-7f3a"
    async with open_node(workspace, two_users[0]) as post:
        launch = post.launch(1, "sleep 0.5", environment={"TOKEN": canary})
        await post.node.launch(launch)
        await post.started(1)
        seen = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
        assert [line for line in seen if canary.encode() in line or launch.secret.encode() in line] == []
        await post.report(1)


@run_async
async def test_started_comes_before_exited(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.run(1, "true")
        kinds = [type(event) for event in post.events]
        assert kinds.index(Started) < kinds.index(Exited)


@run_async
async def test_a_plain_users_instance_runs_that_users_jobs_as_process_trees(workspace, two_users, caplog):
    ada = pwd.getpwnam(two_users[0])
    os.chown(workspace, ada.pw_uid, ada.pw_gid)
    ids = (f"--reuid={ada.pw_uid}", f"--regid={ada.pw_gid}", "--clear-groups")
    way = NodeCommand(("setpriv", *ids, *local(PYTHON).command), quoted=False)
    async with open_node(workspace, two_users[0], way=way) as post:
        hello = await post.node.hello()
        assert (hello.cgroups, hello.uid) == ("processes", ada.pw_uid)
        report = await post.run(1, "id -un; echo oops >&2; exit 1")
        assert (report.status, post.out(1), post.err(1)) == (1 << 8, f"{two_users[0]}\n", "oops\n")
        refused = await post.run(2, "echo ran", user=two_users[1])
        assert (refused.event, refused.says) == (
            "USER_SHELL",
            f"this node runs jobs of uid {ada.pw_uid} only, not of `{two_users[1]}`",
        )
        escaping = "setsid sh -c 'sleep 600 & echo $! > pid; sleep 600' & echo ready; sleep 600"
        await post.node.launch(post.launch(3, escaping, grace=1))
        await post.printed(3, "ready")
        pid = await asyncio.to_thread(
            wait_until, lambda: (post.home / "pid").exists() and (post.home / "pid").read_text()
        )
        await post.node.suspend(3, 1)
        assert " T " in Path(f"/proc/{pid.strip()}/stat").read_text()
        await post.node.kill(3, 1)
        assert (await post.report(3)).outcome == KILLED
        wait_until(lambda: not Path(f"/proc/{pid.strip()}").exists())
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.message for record in warnings] == ["no writable cgroups: jobs are process trees"]


@run_async
async def test_a_job_begins_with_plain_signals_and_no_terminal(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.run(
            1, "grep -E '^Sig(Blk|Ign)' /proc/self/status; umask; ps -o sid= -p $$; echo $$; exec ls /proc/self/fd"
        )
        *signals, umask, session, own, zero, one, two, listing = post.out(1).split()
        (blocked, ignored) = (int(signals[place], 16) for place in (1, 3))
        # The C library keeps 32 and 33 for itself: whoever started this may have left them ignored.
        assert (signals[0], blocked, signals[2], ignored & ~(0b11 << 31)) == ("SigBlk:", 0, "SigIgn:", 0)
        assert (umask, session, zero, one, two) == ("0022", own, "0", "1", "2")
        assert int(listing) == 3  # that of the listing itself


def supervisor_of(post, job):
    """The process that holds the file of an attempt locked as long as it lives."""
    [pid] = holders(f"{post.settings.spool}/{job}.1", "FLOCK")
    return pid


@run_async
async def test_a_supervisor_that_does_not_answer_holds_up_nobody(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "sleep 600"))
        supervisor = supervisor_of(post, 1)
        os.kill(supervisor, signal.SIGSTOP)
        mark = len(post.events)
        os.kill(post.node._channel._process.pid, signal.SIGKILL)
        await post.back(after=mark)
        assert (await post.run(2, "true")).outcome == EXITED
        os.kill(supervisor, signal.SIGCONT)
        async with asyncio.timeout(20):
            while True:
                try:
                    await post.node.kill(1, 1)
                except NodeRefused:
                    await post.node.ping()
                else:
                    break
        assert (await post.report(1)).outcome == KILLED


@run_async
async def test_a_supervisor_that_answers_late_reports_the_start(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        launch = post.launch(1, "sleep 600")
        await post.node.launch(launch)
        began = await post.started(1)
        supervisor = supervisor_of(post, 1)
        os.kill(supervisor, signal.SIGSTOP)
        await post.node.close()
        post.events.clear()
        later = NodeClient(post.settings, local(PYTHON), post.hear, ConnectionSlots(), QUICK)
        later.expect(1, 1, launch.secret)
        await post.back()
        os.kill(supervisor, signal.SIGCONT)
        assert await post.started(1) == began
        await later.kill(1, 1)
        await post.report(1)
        await later.close()


@run_async
async def test_a_launch_is_answered_although_its_supervisor_fails(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        report = await post.run(1, "sleep 600", start_timeout=10**400)  # more seconds than a clock can count
        assert (report.outcome, report.says.partition(":")[0]) == (LOST, "its supervisor failed")


@run_async
async def test_a_job_that_ended_while_nobody_listened_is_on_the_disk(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        launch = post.launch(1, "sleep 0.3; exit 6")
        await post.node.launch(launch)
        await post.started(1)
        await post.node.close()
        place = spool.open_entry(post.settings.spool, (1, 1))
        assert place is not None
        await asyncio.to_thread(wait_until, lambda: place.outcome() is not None)
        place.close()
        # A server that was started again asks at once: it does not wait as after a connection that failed.
        later = NodeClient(
            post.settings, local(PYTHON), post.hear, ConnectionSlots(), replace(QUICK, first_retry=600.0)
        )
        later.expect(1, 1, launch.secret)
        assert (await post.report(1)).status == 6 << 8
        await later.close()


@run_async
async def test_a_node_that_was_away_from_the_beginning_is_told_of_as_lost(workspace, two_users):
    events = []
    settings = NodeSettings("away", str(workspace / "spool"), str(workspace / "run"))
    node = NodeClient(settings, NodeCommand(("false",), quoted=False), events.append, ConnectionSlots(), QUICK)
    node.expect(1, 1, "secret")
    async with asyncio.timeout(20):
        while not events:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await node.close()
    assert events[0] == ConnectionLost("away", "the connection ended before python3 began")


def supervisors(node: str) -> list[int]:
    """Find the supervisors of a node: the children of the launcher that its program forked first."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    [program] = [pid for pid, parent in parents.items() if parent == os.getpid() and pid in holders(node, "POSIX")]
    [launcher] = [pid for pid, parent in parents.items() if parent == program]
    return [pid for pid, parent in parents.items() if parent == launcher]


def holders(path: str, kind: str) -> list[int]:
    """Find the processes that hold a file locked."""
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [int(words[4]) for words in held if words[1] == kind and words[5].endswith(f":{Path(path).stat().st_ino}")]


@run_async
async def test_supervisors_are_kept_for_a_while_and_a_few_for_good(workspace, two_users):
    async with open_node(workspace, two_users[0], idle=1, rest=2.0) as post:
        lock = f"{post.settings.spool}/lock"
        await asyncio.gather(*(post.node.launch(post.launch(job, "sleep 1")) for job in range(1, 5)))
        for job in range(1, 5):
            await post.report(job)
        assert len(supervisors(lock)) == 4
        begun = set(supervisors(lock))
        await post.run(5, "true")
        assert set(supervisors(lock)) == begun
        await asyncio.sleep(2.1)
        await post.node.ping()
        await asyncio.to_thread(wait_until, lambda: len(supervisors(lock)) == 1)
        assert (await post.run(6, "true")).outcome == EXITED


@run_async
async def test_a_file_arrives_once_and_one_that_stalls_is_a_timeout(workspace, two_users, monkeypatch):
    monkeypatch.setattr(file_transfer, "STALLED_SECONDS", 0.3)
    size = 1_000_000
    file = workspace / hashlib.sha256(bytes(size)).hexdigest()
    file.write_bytes(bytes(size))
    other, large = workspace / ("0" * 64), workspace / ("1" * 64)
    other.write_bytes(bytes(size))
    with large.open("wb") as empty:
        empty.truncate(1 << 30)
    async with open_node(workspace, two_users[0]) as post:
        there = Path(post.settings.spool) / "files"
        await asyncio.gather(*(post.node.put_file(file, size) for _ in range(3)))
        assert (there / file.name).stat().st_size == size
        with pytest.raises(NodeRefused, match="arrived on the node with another sum"):
            await post.node.put_file(other, size)
        with pytest.raises(NodeRefused, match="the node has no room for an archive of 1099511627776 MiB"):
            await post.node.put_file(large, 1 << 60)
        sending = asyncio.create_task(post.node.put_file(large, 1 << 30))
        await asyncio.to_thread(wait_until, lambda: any(path.stat().st_size for path in there.glob("new.*")))
        program = post.node._channel._process.pid
        os.kill(program, signal.SIGSTOP)
        with pytest.raises(NodeRefused, match="an archive did not go on for 0 s"):
            await sending
        os.kill(program, signal.SIGCONT)
        await post.node.ping()  # behind the request that ends the file
        assert [path.name for path in there.iterdir()] == [file.name]


@run_async
async def test_a_full_disk_of_a_user_is_seen_by_that_job_alone(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        with small_disk(post.home / "disk") as disk:
            os.chown(disk, *pwd.getpwnam(two_users[0])[2:4])
            fills = "head -c 1000000 /dev/zero; code=$?; echo $code > ../code; exit 7"
            full = await post.run(1, fills, directory=str(disk), stdout="out", stderr="../1.err")
            assert (full.outcome, os.waitstatus_to_exitcode(full.status), full.event) == (EXITED, 7, "")
            assert ((disk / "out").stat().st_size <= 64 << 10, (post.home / "code").read_text()) == (True, "1\n")
            assert "No space left on device" in post.err(1)
            assert (await post.run(2, "echo fine")).status == 0
            assert post.out(2) == "fine\n"


@needs_v1
@run_async
async def test_what_the_kernel_does_not_let_go_is_not_said_to_be_over(workspace, two_users):
    """What the freezer of version 1 holds takes no signal, not even SIGKILL, like what waits for a dead disk."""
    async with open_node(workspace, two_users[0]) as post:
        frozen = Path(f"/sys/fs/cgroup/freezer/{post.settings.node}")
        frozen.mkdir()
        try:
            await post.node.launch(post.launch(1, "echo $$ > number; exec sleep 600", grace=1))
            number = await asyncio.to_thread(wait_until, lambda: text_of(post.home / "number"))
            (frozen / "cgroup.procs").write_text(number)
            (frozen / "freezer.state").write_text("FROZEN")
            await post.node.kill(1, 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(post.report(1), 1.3)
            [about] = await post.status()
            assert about["job"] == 1
            (frozen / "freezer.state").write_text("THAWED")
            assert (await post.report(1)).outcome == KILLED
        finally:
            (frozen / "freezer.state").write_text("THAWED")
            await asyncio.to_thread(wait_until, lambda: not (frozen / "cgroup.procs").read_text())
            frozen.rmdir()


def text_of(path):
    """The text of a file, empty while it is not there."""
    return path.read_text().strip() if path.exists() else ""
