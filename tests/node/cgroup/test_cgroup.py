"""The fences of this kernel, with real processes in real groups."""

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from oarlock.measure.metrics import catalogue
from oarlock.node.cgroup import base, drivers
from oarlock.node.cgroup.base import CgroupError, CgroupMounts, select_cpus
from oarlock.node.cgroup.drivers import detect, detect_driver, mounts
from oarlock.node.cgroup.processes import ProcessTreeDriver
from oarlock.node.cgroup.v1 import Freezer, V1Driver
from oarlock.node.cgroup.v2 import V2Cgroup, V2Driver
from oarlock.node.measure.stream import make_node_sampler
from oarlock.node.sources.probe import split
from oarlock.node.wire.messages import CgroupLimits
from tests.bed import needs_root, needs_v1, remove_roots
from tests.waiting import wait_until

# One parent, a bounded number of children, none of which forks: where no limit holds it, it must do no harm.
FORK_BOMB = """
import os, time
for _ in range(100):
    try:
        if os.fork() == 0:
            break
    except OSError:
        pass
time.sleep(60)
"""
DAEMON = (
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    time.sleep(600)\ntime.sleep(600)"
)
_GPUS = {"ada_12": "/dev/zero", "ada_13": "/dev/full"}
HOG = "x = []\nwhile True: x.append(b'x' * (1 << 20))"

MOUNTINFO = """\
24 30 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 24 0:28 / /mnt/memory rw - cgroup cgroup rw,memory
34 24 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
35 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_mounts_are_read_by_controller():
    found = mounts(MOUNTINFO)
    assert found.v2 == "/sys/fs/cgroup/unified"
    assert {name: found.v1[name] for name in ("cpu", "cpuacct", "memory", "name=systemd")} == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory",
        "name=systemd": "/sys/fs/cgroup/systemd",
    }


def test_cpu_numbers_of_pretended_nodes_are_taken_modulo():
    assert select_cpus((1, 3, 9), [0, 1, 2, 5], pretended=True) == [1, 5]
    assert select_cpus((), [4, 5], pretended=True) == [4, 5]


def test_a_real_node_refuses_cpu_numbers_that_it_does_not_have():
    assert select_cpus((5, 1), [0, 1, 2, 5], pretended=False) == [1, 5]
    assert select_cpus((), [4, 5], pretended=False) == [4, 5]
    with pytest.raises(CgroupError, match="name CPU 3,6-7, but this node has CPU 0-2,5 for jobs"):
        select_cpus((7, 6, 3, 0), [0, 1, 2, 5], pretended=False)


def test_without_a_hierarchy_the_fence_is_the_tree_of_processes():
    assert detect("n1", CgroupMounts({}, None)).kind == "processes"


def test_a_hierarchy_that_cannot_be_written_is_none(tmp_path):
    (tmp_path / "file").touch()
    assert (
        detect("n1", CgroupMounts({"memory": f"{tmp_path}/file", "cpuset": f"{tmp_path}/file"}, None)).kind
        == "processes"
    )


@pytest.fixture
def node():
    name = f"t{secrets.token_hex(4)}"
    yield name
    remove_roots(name)


def available_drivers():
    """Every kind of driver that this machine can show: as it is, the freezer alone, the cgroup2 tree alone."""
    found = mounts(Path("/proc/self/mountinfo").read_text())
    kinds = [pytest.param(lambda _: ProcessTreeDriver("n"), id="processes")]
    if os.geteuid() == 0 and found.v1:
        kinds.append(pytest.param(lambda node: V1Driver(found, node), id="hybrid"))
        kinds.append(pytest.param(lambda node: V1Driver(CgroupMounts(found.v1, None), node), id="freezer"))
    if os.geteuid() == 0 and found.v2:
        kinds.append(pytest.param(lambda node: V2Driver(found.v2 or "", node), id="v2"))
    return kinds


def inside(group, code):
    """Start Python code in a group, as a child of ours."""
    return subprocess.Popen([sys.executable, "-c", code], preexec_fn=group.join)


@pytest.fixture(params=available_drivers())
def driver(request, node):
    made = request.param(node)
    yield made
    made.leave()
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # this process asked for orphans; the next test has its own


def test_kills_for_memory_are_counted_in_the_files_of_the_cgroup2_tree(tmp_path):
    recorded = {
        "cpu.stat": "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
        "memory.events": "low 0\nhigh 0\nmax 381\noom 2\noom_kill 2\noom_group_kill 0\n",
        "memory.max": "67108864\n",
        "memory.peak": "67108864\n",
    }
    for name, text in recorded.items():
        (tmp_path / name).write_text(text)
    counters = V2Cgroup(str(tmp_path), "").counters()
    assert (counters["memory_oom_kills_total"], counters["memory_limit_bytes"]) == (2.0, float(64 << 20))


def test_a_group_with_a_cpu_that_is_not_there_is_not_made(driver):
    with pytest.raises(CgroupError, match="CPU 4095"):
        driver.create("ada_3", CgroupLimits(cpus=(0, 4095)))
    assert list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{Path(driver._root).name}/ada_3")) == []


def test_everything_in_a_group_is_killed_daemons_and_bombs_included(driver):
    for code in (DAEMON, FORK_BOMB):
        group = driver.create("ada_1", CgroupLimits(pids=100))
        child = inside(group, code)
        wait_until(lambda group=group: len(group.pids()) >= 2, what="the second process")
        group.kill()
        assert group.wait_empty(10)
        assert group.pids() == []
        child.wait()
        reap()
        group.remove()


def test_processes_that_have_their_kill_are_not_frozen_again(tmp_path):
    group = Freezer(str(tmp_path), "/ada_1")
    group.make()
    os.mkfifo(f"{group.at}/freezer.state")
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # there, and never gone while nobody collects it
    Path(group.procs_files[0]).write_text(f"{dead.pid}\n")
    states = os.open(f"{group.at}/freezer.state", os.O_RDWR)
    group.kill()
    assert not group.wait_empty(0.1)
    assert os.read(states, 4096) == b"FROZENTHAWED"
    os.close(states)
    dead.wait()


def reap():
    """Collect the dead orphans that this process asked to be given; children that live are somebody else's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def test_a_frozen_group_stands_still_and_goes_on(driver, tmp_path):
    beat = tmp_path / "beat"
    group = driver.create("ada_2", CgroupLimits())
    child = inside(group, f"import time\nwhile True: open({str(beat)!r}, 'a').write('.'); time.sleep(0.001)")
    wait_until(lambda: beat.exists() and beat.stat().st_size > 3)
    group.freeze()
    size = wait_until(lambda: still(beat), what="standing still")
    group.thaw()
    wait_until(lambda: beat.stat().st_size > size, what="going on")
    group.kill()
    assert group.wait_empty(10)
    child.wait()
    group.remove()


def still(path):
    """The size of a file that does not grow any more."""
    before = path.stat().st_size
    time.sleep(0.05)
    return before if path.stat().st_size == before else 0


def test_a_frozen_group_can_be_killed(driver):
    group = driver.create("ada_3", CgroupLimits())
    child = inside(group, "import time; time.sleep(600)")
    wait_until(group.pids)
    group.freeze()
    group.kill()
    assert group.wait_empty(10)
    assert child.wait() == -signal.SIGKILL
    group.remove()


def test_cpu_time_is_counted(driver):
    group = driver.create("ada_4", CgroupLimits())
    child = inside(group, "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass")
    child.wait()
    assert group.wait_empty(10)
    assert 0.2 <= group.counters()["cpu_seconds_total"] < 5
    group.remove()


def test_final_counters_and_the_last_sample_agree_by_name_and_unit(driver, node):
    group = driver.create("ada_14", CgroupLimits(cpus=(0,), memory=64 << 20, pids=8))
    child = inside(group, "print('x' * (8 << 20), file=open('/dev/null', 'w'))\nimport time\ntime.sleep(600)")
    wait_until(lambda: group.counters().get("memory_peak_bytes", 8 << 20) >= 8 << 20)
    group.freeze()  # so that nothing is counted between the two readings
    final, sample = group.counters(), make_node_sampler(node).sample(0.0)
    group.kill()
    child.wait()
    assert group.wait_empty(10)
    group.remove()
    defined = {name for scope, name in catalogue() if scope == "job"}
    assert {"cpu_seconds_total", "cpu_user_seconds_total", "cpu_system_seconds_total"} <= final.keys() <= defined
    if driver.kind == "processes":
        return  # samples are taken of groups
    if "memory" not in driver.missing:
        assert {"cpus", "memory_peak_bytes", "memory_limit_bytes", "tasks_refused_total"} <= final.keys()
    [job] = sample.jobs.values()
    sums: dict[str, float] = {}
    for key, value in job.values.items():
        name, _ = split(key)  # devices are added up
        sums[name] = sums.get(name, 0.0) + value
    assert {name: sums.get(name, 0.0) for name in final} == final


@needs_root
def test_what_an_earlier_attempt_left_is_ended_and_made_anew(driver):
    if driver.kind == "processes":
        pytest.skip("without groups nothing is left to be found")
    left = driver.create("ada_5", CgroupLimits(pids=7))
    child = inside(left, "import time; time.sleep(600)")
    wait_until(left.pids)
    group = driver.create("ada_5", CgroupLimits())
    assert group.pids() == []
    assert child.wait() == -signal.SIGKILL
    group.remove()


@needs_root
def test_removing_leaves_nothing_in_any_hierarchy(driver, node):
    driver.create("ada_6", CgroupLimits(deny_devices=("/dev/zero", "/dev/none-such"))).remove()
    driver.leave()
    assert list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{node}")) == []


@needs_root
def test_roots_that_another_program_removed_are_made_again(driver):
    driver.leave()
    driver.create("ada_11", CgroupLimits(cpus=(0,))).remove()


@pytest.fixture
def real(node):
    if os.geteuid() != 0:
        pytest.skip("groups need root")
    return detect_driver(node)


@needs_root
@needs_v1
def test_a_memory_hog_dies_in_its_own_group(real):
    group = real.create("ada_7", CgroupLimits(memory=64 << 20))
    child = inside(group, HOG)
    assert child.wait() == -signal.SIGKILL
    found = group.counters()
    assert found["memory_oom_kills_total"] == 1
    assert 32 << 20 < found["memory_peak_bytes"] <= 64 << 20
    group.remove()


@needs_root
@needs_v1
def test_a_fork_bomb_is_stopped_by_its_limit(real):
    group = real.create("ada_8", CgroupLimits(pids=20))
    child = inside(group, FORK_BOMB)
    wait_until(lambda: group.counters()["tasks_refused_total"] >= 50, what="a refused fork")
    assert len(group.pids()) <= 20
    group.kill()
    assert group.wait_empty(10)
    child.wait()
    group.remove()


@needs_root
@needs_v1
def test_a_job_sees_only_its_cpus(real):
    group = real.create("ada_9", CgroupLimits(cpus=(1,)))
    code = "import os; os._exit(sum(1 << cpu for cpu in os.sched_getaffinity(0)))"
    assert inside(group, code).wait() == 1 << 1
    group.remove()


@needs_root
def test_denied_devices_cannot_be_opened_and_all_others_can(driver):
    if "devices" in driver.missing:
        pytest.skip(f"{driver.kind} limits no devices here")
    denied = ("/dev/none-such", "/etc/passwd", "/dev/zero", "/dev/full")
    group = driver.create("ada_10", CgroupLimits(deny_devices=denied))
    for path, status in (("/dev/zero", 1), ("/dev/full", 1), ("/dev/null", 0), ("/dev/urandom", 0)):
        code = f"import sys\ntry: open('{path}', 'rb')\nexcept PermissionError: sys.exit(1)"
        assert inside(group, code).wait() == status, path
    group.remove()


@needs_root
def test_one_job_is_not_denied_what_another_is(driver):
    if "devices" in driver.missing:
        pytest.skip(f"{driver.kind} limits no devices here")
    one, other = (driver.create(name, CgroupLimits(deny_devices=(path,))) for name, path in _GPUS.items())
    assert [inside(group, "open('/dev/zero')").wait() for group in (one, other)] == [1, 0]
    assert [inside(group, "open('/dev/full')").wait() for group in (one, other)] == [0, 1]
    for group in (one, other):
        group.remove()


@needs_root
def test_supervisors_leave_the_session_of_their_login(node):
    found = drivers.mounted()
    if found.v2 is None:
        pytest.skip("no cgroup2 tree here")
    child = os.fork()
    if child == 0:
        drivers.leave_login_session(node, found, systemd=False)
        stayed = node not in base.read("/proc/self/cgroup")
        drivers.leave_login_session(node, found, systemd=True)
        moved = f"0::/oarlock/{node}/supervisors\n" in base.read("/proc/self/cgroup")
        os._exit(0 if stayed and moved else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_a_vanished_supervisor_left_is_found_by_its_variable():
    driver = ProcessTreeDriver("n1")
    left = subprocess.Popen(["sleep", "600"], env={"OAR_CPUSET": "/n1/ada_1"}, start_new_session=True)
    stranger = subprocess.Popen(["sleep", "600"], env={"OAR_CPUSET": "/n1/ada_11"}, start_new_session=True)
    wait_until(lambda: b"OAR_CPUSET" in Path(f"/proc/{left.pid}/environ").read_bytes())
    wait_until(lambda: b"OAR_CPUSET" in Path(f"/proc/{stranger.pid}/environ").read_bytes())
    driver.create("ada_1", CgroupLimits())
    assert (left.wait(10), stranger.poll()) == (-signal.SIGKILL, None)
    stranger.kill()
    stranger.wait()
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
