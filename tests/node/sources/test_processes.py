import os
import subprocess
import sys

import pytest

from oarlock.node.sources.job.processes import MOST_EXECUTABLES, ProcessSource, ProcessStat, io_values, owner
from tests.monitoring import job_at, needs_cgroups, real_groups, recorded
from tests.waiting import wait_until

STAT = "{pid} ({name}) {state} {parent} 1 1 0 -1 0 0 0 0 0 {cpu} 1 {children} 2 20 0 {threads} 0 9 0 {pages} 1"
IO = "rchar: {0}\nwchar: {0}\nsyscr: {0}\nsyscw: {0}\nread_bytes: {0}\nwrite_bytes: {0}\ncancelled_write_bytes: 0\n"


class World:
    """A recorded /proc with one job, changed between samples."""

    def __init__(self, folder):
        self.folder = folder
        self.pids = {}
        (folder / "job").mkdir()
        self.probe = ProcessSource(proc=str(folder / "proc"), scratch=["/lustre/scratch"]).open(
            job_at({"cpuacct": folder / "job"})
        )

    def put(self, pid, name="app", *, parent=1, cpu=0, children=0, io=0, state="S", threads=1, pages=10):
        times = {"cpu": cpu - 1, "children": children - 2}  # one and two more are system time
        stat = STAT.format(pid=pid, name=name, state=state, parent=parent, threads=threads, pages=pages, **times)
        recorded(self.folder / "proc" / str(pid), {"stat": stat, "io": IO.format(io)})
        exe = self.folder / "proc" / str(pid) / "exe"
        exe.unlink(missing_ok=True)
        exe.symlink_to(f"/opt/bin/{name}")
        self.pids[pid] = True

    def links(self, pid, *targets):
        folder = self.folder / "proc" / str(pid) / "fd"
        folder.mkdir(exist_ok=True)
        for number, target in enumerate(targets):
            (folder / str(number)).symlink_to(target)

    def end(self, pid):
        del self.pids[pid]

    def read(self):
        (self.folder / "job" / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in self.pids))
        values = {}
        self.probe.beat()
        self.probe.read(values, thorough=True)
        self.probe.read_costly(values)
        return values


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.probe.close()


def cpu(values):
    return {key.split('"')[1]: value for key, value in values.items() if key.startswith("process_cpu")}


def test_a_name_may_hold_brackets_and_spaces():
    fields = {"name": "a) R (b", "state": "D", "parent": 3, "cpu": 2, "children": 5, "threads": 5, "pages": 6}
    stat = ProcessStat(STAT.format(pid=7, **fields).encode())
    assert (stat.name, stat.state, stat.parent, stat.own, stat.children, stat.threads, stat.pages) == (
        b"a) R (b", "D", 3, 3, 7, 5, 6,
    )  # fmt: skip


def test_io_is_read_line_by_line():
    text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"
    assert io_values(text) == [1, 2, 3, 4, 5, 6]


def test_a_jobs_processes_are_added_up(world):
    world.put(10, "app", cpu=300, io=5, pages=2, state="R")
    world.put(11, "app", cpu=100, io=6, pages=3)
    world.links(10, "/home/ada/data", "/dev/null", "socket:[7]", "/home/ada/data")
    world.links(11, "/home/ada/data", "/home/ada/other")
    page = os.sysconf("SC_PAGE_SIZE")
    assert world.read() == {
        "processes": 2, "resident_bytes": 5 * page, 'threads{state="running"}': 1, 'threads{state="sleeping"}': 1,
        "user_processes": 2, 'user_threads{state="running"}': 1, 'user_threads{state="sleeping"}': 1,
        'process_threads{exe="app"}': 2, 'process_cpu_seconds_total{exe="app"}': 4.0, "open_files": 2,
        "uses_scratch": 0,
        "read_characters_bytes_total": 11, "written_characters_bytes_total": 11, "read_calls_total": 11,
        "write_calls_total": 11, "read_bytes_total": 11, "written_bytes_total": 11,
    }  # fmt: skip


def test_scratch_is_used_when_a_file_on_it_is_open(world):
    world.put(10)
    world.links(10, "/lustre/scratch/ada/x")
    assert world.read()["uses_scratch"] == 1


def test_what_an_ended_process_did_is_remembered(world):
    world.put(10, "solver", cpu=500, io=9)
    world.read()
    world.end(10)
    values = world.read()
    assert cpu(values) == {"solver": 5.0}
    assert values["read_bytes_total"] == 9
    assert values["processes"] == 0


def test_a_childs_work_is_not_counted_again_at_its_parent(world):
    world.put(10, "bash", cpu=1)
    world.put(11, "solver", parent=10, cpu=500, io=9)
    world.read()
    world.end(11)
    assert cpu(world.read()) == {"bash": 0.01, "solver": 5.0}, "it ended; the parent has not waited for it yet"
    world.put(10, "bash", cpu=2, children=510, io=10)
    values = world.read()
    assert cpu(values) == {"bash": 0.12, "solver": 5.0}, "what it did unseen before its end stands at its parent"
    assert values["read_bytes_total"] == 10


def test_children_too_short_to_be_seen_stand_at_their_parent(world):
    world.put(10, "make", cpu=1)
    world.read()
    world.put(10, "make", cpu=2, children=300)
    assert cpu(world.read()) == {"make": 3.02}


def test_a_parent_that_does_not_wait_loses_nothing_of_its_own(world):
    world.put(10, "daemon", cpu=1)
    world.put(11, "child", parent=10, cpu=500)
    world.read()
    world.end(11)
    world.put(10, "daemon", cpu=101)
    assert cpu(world.read()) == {"daemon": 1.01, "child": 5.0}


def test_a_process_that_executes_another_program_counts_for_both(world):
    world.put(10, "bash", cpu=100)
    world.read()
    world.put(10, "solver", cpu=350)
    assert cpu(world.read()) == {"bash": 1.0, "solver": 2.5}


def test_a_process_that_ends_between_two_looks_does_no_harm(world):
    world.pids[4_000_000] = True
    assert world.read()["processes"] == 0


def test_where_nothing_may_be_read_nothing_is_said(world):
    world.put(10)
    (world.folder / "proc" / "10" / "io").unlink()
    values = world.read()
    assert "read_bytes_total" not in values
    assert "open_files" not in values


def read_when_all_sleep(probe, *, threads):
    """Read everything; nothing as long as a thread is still on its way to where it sleeps."""
    values = {}
    probe.beat()
    probe.read(values, thorough=True)
    probe.read_costly(values)
    return values if values['threads{state="sleeping"}'] == threads else None


@needs_cgroups
def test_a_real_job_of_many_threads_and_open_files(tmp_path):
    program = (
        "import threading, time\n"
        f"f = open(r'{tmp_path}/scratch/data', 'wb', buffering=0)\nf.write(b'x' * 4096)\n"
        "for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('on', flush=True)\ntime.sleep(60)"
    )
    (tmp_path / "scratch").mkdir()
    with real_groups() as groups:
        made = groups.make("oar/ada_7")
        child = subprocess.Popen([sys.executable, "-c", program], stdout=-1)
        try:
            child.stdout.readline()
            groups.join(made, child.pid)
            probe = ProcessSource(scratch=[str(tmp_path / "scratch")]).open(job_at({"cpuacct": made["cpuacct"]}))
            values = wait_until(lambda: read_when_all_sleep(probe, threads=4), what="the sleep of all threads")
            probe.close()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
    assert values["uses_scratch"] == 1
    assert values["written_characters_bytes_total"] >= 4096
    assert values["write_calls_total"] >= 1
    assert values["resident_bytes"] > 1 << 20


@needs_cgroups
def test_the_owner_of_a_job_is_the_first_user_in_it_who_is_not_root():
    with real_groups() as groups:
        made = groups.make("job_9/step_0", "cpuacct")
        directories = [str(made["cpuacct"].parent), str(made["cpuacct"])]
        children = [subprocess.Popen(["sleep", "60"], user=user) for user in (0, 1234)]
        try:
            groups.join(made, children[0].pid)
            assert owner(directories) is None
            groups.join(made, children[1].pid)
            assert owner(directories) == 1234
        finally:
            for child in children:
                child.kill()
                child.wait()


@needs_cgroups
def test_processes_that_come_and_go_while_they_are_read_are_no_errors():
    with real_groups() as groups:
        made = groups.make("oar/ada_7", "cpuacct")
        script = "for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4 5 6; do /bin/true; done; done"
        child = subprocess.Popen(["sh", "-c", f"read x; {script}"], stdin=-1)
        probe = ProcessSource().open(job_at(made))
        reads, seconds = 0, []
        try:
            groups.join(made, child.pid)
            child.stdin.write(b"\n")
            child.stdin.close()
            while child.poll() is None:
                values = {}
                probe.beat()
                probe.read(values, thorough=True)
                probe.read_costly(values)
                seconds.append(sum(cpu(values).values()))
                reads += 1
        finally:
            child.kill()
            child.wait()
            probe.close()
        wait_until(lambda: not (made["cpuacct"] / "cgroup.procs").read_text(), "the job to be empty")
    assert reads > 1
    assert seconds == sorted(seconds), "what was counted never falls"


def test_a_job_cannot_make_series_without_end(world):
    for number in range(MOST_EXECUTABLES + 3):
        world.put(100 + number, f"app{number}", cpu=1, threads=1)
    values = world.read()
    assert len(cpu(values)) == MOST_EXECUTABLES + 1
    assert values['process_threads{exe="others"}'] == 3


def test_slurms_names_count_no_root_batch_script_or_zombies(world):
    for pid, name, uid, state in ((10, "slurmstepd", 0, "S"), (11, "slurm_script", 1000, "S"), (12, "app", 1000, "R"),
                                  (13, "app", 1000, "Z")):  # fmt: skip
        world.put(pid, name, state=state)
        recorded(world.folder / "proc" / str(pid), {"status": f"Name:\t{name}\nUid:\t{uid}\t0\t0\t0\n"})
    values = world.read()
    assert (values["processes"], values["user_processes"]) == (4, 1)
    counted = {key: value for key, value in values.items() if "threads{state" in key}
    assert counted == {
        'threads{state="running"}': 1, 'threads{state="sleeping"}': 2, 'threads{state="zombie"}': 1,
        'user_threads{state="running"}': 1,
    }  # fmt: skip


def test_a_process_of_root_that_becomes_the_users_program_counts_then(world):
    world.put(10, "slurmstepd")
    recorded(world.folder / "proc/10", {"status": "Name:\tslurmstepd\nUid:\t0\t0\t0\t0\n"})
    assert world.read()["user_processes"] == 0
    world.put(10, "app")
    recorded(world.folder / "proc/10", {"status": "Name:\tapp\nUid:\t1000\t1000\t1000\t1000\n"})
    assert world.read()["user_processes"] == 1
