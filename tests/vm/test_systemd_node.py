"""The node program on machines with systemd as PID 1 and the unified cgroup tree, reached by ssh."""

import asyncio
import os
import signal

import pytest

from oarlock.model.errors import NodeRefused
from oarlock.node.measure.wire import SampleDecoder
from oarlock.node.wire.messages import EXITED, KILLED, LOST, OTHER, REBOOTED, CgroupLimits
from oarlock.server.nodes import AttemptMissing, ConnectionLost, Exited, NodeReachable
from tests.bed import needs_root, run_async
from tests.vm.guest import guest
from tests.waiting import wait_until

pytestmark = [
    needs_root,
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.component("qemu"),
    pytest.mark.component("qemu-img"),
    pytest.mark.component("debootstrap"),
    pytest.mark.component("busybox"),
    pytest.mark.component("mke2fs"),
]

HOG = "python3 -c \"x = []\nfor _ in range(200): x.append(b'x' * (1 << 20))\""
# One parent whose children only sleep.
FORKS = """python3 -c "
import os, time
for _ in range(50):
  try:
    if os.fork() == 0: break
  except OSError: pass
time.sleep(60)
" """


@run_async
async def test_the_node_has_the_unified_tree_and_limits_everything(shared):
    async with guest(shared) as post:
        hello = await post.node.hello()
        assert (hello.cgroups, hello.missing, hello.cpus, hello.uid) == ("v2", (), 2, 0)


@run_async
async def test_jobs_live_in_a_scope_that_systemd_leaves_to_us(shared):
    async with guest(shared) as post:
        await post.node.launch(post.launch(13, "echo $OAR_CPUSET; sleep 600", limits=CgroupLimits(pids=30)))
        await post.printed(13, "scope")
        unit = f"oarlock-{post.settings.node}.scope"
        assert post.out(13) == f"/oarlock.slice/{unit}/alice_13\n"
        asked = f"systemctl show {unit} -p ActiveState -p Delegate -p TasksMax"
        assert shared.run(asked) == "Delegate=yes\nTasksMax=infinity\nActiveState=active\n"
        await post.node.kill(13, 1)
        await post.report(13)


@run_async
async def test_jobs_are_measured_where_systemd_put_them(shared):
    async with guest(shared, sample_period=1) as post:
        samples = []
        decoder = SampleDecoder()
        post.node.on_samples = lambda data: samples.append(decoder.decode(data).jobs)
        await post.node.launch(post.launch(15, "sleep 600"))
        await post.started(15)
        await asyncio.to_thread(wait_until, lambda: any(15 in jobs for jobs in samples), what="a sample of the job")
        assert samples[-1][15]["memory_usage_bytes"] > 0
        await post.node.kill(15, 1)
        await post.report(15)


@run_async
async def test_without_systemds_help_a_group_made_by_hand_holds_as_well(shared):
    shared.run("chmod -x /usr/bin/systemd-run")
    try:
        async with guest(shared) as post:
            hello = await post.node.hello()
            assert (hello.cgroups, hello.missing) == ("v2", ())
            await post.node.launch(post.launch(14, "nproc; echo $OAR_CPUSET; sleep 5", limits=CgroupLimits(cpus=(0,))))
            await post.started(14)
            os.killpg(post.node._channel._process.pid, signal.SIGKILL)
            report = await post.report(14)
            assert (report.status, post.out(14)) == (0, f"1\n/oarlock/{post.settings.node}/alice_14\n")
    finally:
        shared.run("chmod +x /usr/bin/systemd-run")


@run_async
async def test_a_memory_hog_dies_in_its_group_and_the_report_tells(shared):
    async with guest(shared) as post:
        report = await post.run(1, HOG, limits=CgroupLimits(memory=64 << 20))
        assert (report.outcome, report.status) in [(EXITED, 9), (EXITED, 137 << 8)]
        assert report.counters["memory_oom_kills_total"] == 1
        assert 32 << 20 < report.counters["memory_peak_bytes"] <= 64 << 20


@run_async
async def test_a_denied_device_cannot_be_opened_below_systemds_own_filters(shared):
    async with guest(shared) as post:
        tries = "for one in zero full null; do (: < /dev/$one) 2> /dev/null && echo $one; done"
        await post.run(16, tries, limits=CgroupLimits(deny_devices=("/dev/zero", "/dev/none-such")))
        assert post.out(16) == "full\nnull\n"


@run_async
async def test_forks_above_the_limit_are_refused_and_counted(shared):
    async with guest(shared) as post:
        await post.node.launch(post.launch(2, FORKS, limits=CgroupLimits(pids=20), grace=1))
        await post.started(2)
        [group] = await asyncio.to_thread(post.groups)
        events = f"grep -c 'max [1-9]' {group}/pids.events"
        await asyncio.to_thread(
            wait_until, lambda: shared.run(events, check=False).strip() == "1", what="refused forks"
        )
        assert int(shared.run(f"cat {group}/pids.current")) <= 20
        await post.node.kill(2, 1)
        report = await post.report(2)
        assert (report.outcome, report.counters["tasks_refused_total"] >= 31) == (KILLED, True)


@run_async
async def test_a_job_sees_only_its_cpus(shared):
    async with guest(shared) as post:
        await post.run(3, "nproc; grep Cpus_allowed_list /proc/self/status", limits=CgroupLimits(cpus=(1,)))
        assert post.out(3) == "1\nCpus_allowed_list:\t1\n"


@run_async
async def test_systemd_takes_no_controller_away_from_a_running_job(shared):
    async with guest(shared) as post:
        limits = CgroupLimits(cpus=(1,), memory=64 << 20, pids=30)
        await post.node.launch(post.launch(4, "sleep 600", limits=limits))
        await post.started(4)
        [group] = await asyncio.to_thread(post.groups)
        shown = f"cd {group}; cat cpuset.cpus.effective memory.max pids.max; wc -l < cgroup.procs"
        before = await asyncio.to_thread(shared.run, shown)
        for disturbance in (
            "systemctl daemon-reload",
            "systemd-run --wait --quiet -p AllowedCPUs=0 true",  # a unit that wanted the cpuset, and is gone
            "systemctl daemon-reexec",
            "systemctl restart ssh systemd-logind",
        ):
            await asyncio.to_thread(shared.run, disturbance)
            assert await asyncio.to_thread(shared.run, shown) == before == "1\n67108864\n30\n1\n", disturbance
        await post.node.kill(4, 1)
        assert (await post.report(4)).outcome == KILLED


@run_async
async def test_nothing_of_a_job_is_left_at_its_end(shared):
    async with guest(shared) as post:
        report = await post.run(5, "setsid sleep 600 & (setsid nohup sleep 600 &); echo started")
        assert (report.outcome, report.events, post.out(5)) == (EXITED, (), "started\n")
        assert (post.groups(), post.processes()) == ([], [])


@run_async
async def test_a_suspended_job_stands_still_until_it_is_resumed(shared):
    async with guest(shared) as post:
        await post.node.launch(post.launch(6, "while :; do echo x; sleep 0.1; done"))
        await post.printed(6, "x")
        await post.node.suspend(6, 1)
        [group] = await asyncio.to_thread(post.groups)
        before = await asyncio.to_thread(post.out, 6)
        assert "frozen 1" in shared.run(f"sleep 1; cat {group}/cgroup.events")
        assert post.out(6) == before
        await post.node.resume(6, 1)
        await asyncio.to_thread(wait_until, lambda: len(post.out(6)) > len(before), what="going on")
        await post.node.suspend(6, 1)
        await post.node.kill(6, 1)
        assert (await post.report(6)).outcome == KILLED


@run_async
async def test_a_job_outlives_its_login_though_logind_kills_the_rest(shared):
    stray = shared.login("root", "setsid sleep 600 > /dev/null 2>&1 < /dev/null & echo $!").strip()
    async with guest(shared) as post:
        await post.node.launch(post.launch(7, "sleep 8; echo alive; exit 3"))
        await post.started(7)
        os.killpg(post.node._channel._process.pid, signal.SIGKILL)
        await post.until(lambda event: isinstance(event, ConnectionLost))
        report = await post.report(7)
        assert (report.outcome, report.status, post.out(7)) == (EXITED, 3 << 8, "alive\n")
    gone = f"test -d /proc/{stray} || echo gone"
    wait_until(lambda: shared.run(gone) == "gone\n", what="the end of what a login left")


def ipc(user: str) -> str:
    """List the shared memory of a user: segments, and files in /dev/shm."""
    return f"(ipcs -m | grep -w {user}; find /dev/shm -user {user}) | wc -l"


@run_async
async def test_a_job_keeps_its_shared_memory_when_its_user_logs_in_and_out(shared):
    async with guest(shared) as post:
        make = "ipcmk -M 4096 > /dev/null; echo kept > /dev/shm/of-$USER"
        await post.node.launch(post.launch(8, f"{make}; echo ready; sleep 600"))
        await post.printed(8, "ready")
        await asyncio.to_thread(shared.login, "alice", "true")
        await asyncio.to_thread(shared.login, "bob", make)
        await asyncio.to_thread(
            wait_until, lambda: shared.run(ipc("bob")) == "0\n", seconds=60, what="logind's care of what bob left"
        )
        assert shared.run(ipc("alice")) == "2\n"
        await post.node.kill(8, 1)
        await post.report(8)
        assert shared.run("ls /var/lib/systemd/linger") == ""
    shared.run("rm -f /dev/shm/of-alice; ipcrm --all=shm")


FILES = "find / -xdev \\( -path /var/spool/oarlock -o -path /var/log -o -path /proc \\) -prune -o -print | sort"


@run_async
async def test_a_node_is_left_as_it_was_found(shared):
    before = shared.run(FILES)
    async with guest(shared) as post:
        report = await post.run(9, "ls > /dev/null; python3 -c 'import json'", stdout="", stderr="")
        assert (report.status, report.events) == (0, ())
        await post.node.forget([(9, 1)])
        assert shared.run(FILES) == before
    left = f"find /sys/fs/cgroup /run/systemd/transient -name '*{post.settings.node}*'"
    wait_until(lambda: shared.run(left) == "", what="the end of the supervisors' group")
    assert shared.run("systemctl --failed --no-legend") == ""


@run_async
async def test_a_job_on_two_machines_has_a_place_on_both(shared, fresh):
    async with guest(shared) as one, guest(fresh) as two:
        launch = one.launch(10, "cat $OAR_NODEFILE", nodes=("n1", "n2"))
        assert one.boot != two.boot
        await two.node.launch(launch._replace(role=OTHER, command="", boot=two.boot))
        await two.started(10)
        assert len(two.groups()) == 1
        await one.node.launch(launch)
        assert (await one.report(10)).status == 0
        await two.node.end(10, launch.attempt)
        await two.report(10)
        assert (one.out(10), two.groups()) == ("n1\nn2\n", [])


@run_async
async def test_after_a_power_cut_nothing_runs_twice_and_the_truth_is_told(fresh):
    async with guest(fresh) as post:
        settled = post.launch(11, "echo ran >> ran.11; sync; echo ready; sleep 600")
        await post.node.launch(settled)
        await post.printed(11, "ready")
        await asyncio.to_thread(fresh.run, "sync")
        hasty = post.launch(12, "echo ran >> ran.12; sleep 600")
        await post.node.launch(hasty)
        await post.started(12)
        mark = len(post.events)
        fresh.cut_power()
        await post.until(lambda event: isinstance(event, ConnectionLost))
        await asyncio.to_thread(fresh.start, saved=False)
        back = await post.until(
            lambda event: isinstance(event, NodeReachable) and post.events.index(event) > mark, seconds=90
        )
        report = await post.report(11)
        assert (report.outcome, report.status, report.says) == (LOST, None, "the node was started again while it ran")
        assert (back.hello.boot == post.boot, report.boot) == (False, back.hello.boot)
        # The disk need not know of an attempt that began a moment before the cut; the server must be told all the same.
        await post.until(lambda event: (isinstance(event, AttemptMissing) and event.job == 12) or is_lost(event, 12))
        for launch in (settled, hasty):
            with pytest.raises(NodeRefused) as refusal:
                await post.node.launch(launch)
            assert refusal.value.word == REBOOTED
        assert fresh.run("cat /home/alice/ran.11; cat /home/alice/ran.12 || echo ran") == "ran\nran\n"
        assert (post.groups(), post.processes()) == ([], [])
        assert fresh.run("ls /var/lib/systemd/linger") == ""


def is_lost(event: object, job: int) -> bool:
    return isinstance(event, Exited) and (event.report.job, event.report.outcome) == (job, LOST)
