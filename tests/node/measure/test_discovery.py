import threading
from pathlib import Path

import pytest

from oarlock.measure.options import all_layouts, select_layouts
from oarlock.node.measure import discovery, inotify
from oarlock.node.measure.discovery import CgroupFinder
from oarlock.node.measure.layout import OARLOCK
from oarlock.node.sources.files import UNIFIED, Hierarchy, mounted_hierarchies, parse_hierarchies
from tests.monitoring import needs_cgroups, real_groups

ALL = select_layouts("auto")


@pytest.fixture
def groups():
    with real_groups() as made:
        yield made


@pytest.fixture
def look_at():
    """Make finders that are closed at the end."""
    finders = []

    def make(hierarchies, **options):
        finders.append(CgroupFinder(ALL, lambda: hierarchies, **options))
        return finders[-1]

    yield make
    for finder in finders:
        finder.close()


def plain(folder, *controllers):
    """Give hierarchies made of plain directories."""
    for name in controllers:
        (folder / name).mkdir(parents=True, exist_ok=True)
    return [Hierarchy(str(folder / name), (name,)) for name in controllers]


def jobs(finder, now):
    return sorted(key[2] for key in finder.look(now))


def test_the_hierarchies_of_a_machine_are_read_from_its_mounts():
    text = (
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:29 / /dev/cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "35 31 0:35 / /mnt/a\\040b rw shared:9 - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert parse_hierarchies(text) == [
        Hierarchy("/sys/fs/cgroup/cpu,cpuacct", ("cpu", "cpuacct")),
        Hierarchy("/mnt/a b", ("memory",)),
        Hierarchy("/sys/fs/cgroup/unified", (UNIFIED,)),
    ]


def test_a_job_is_found_in_all_its_hierarchies(tmp_path, look_at):
    trees = plain(tmp_path, "cpuacct", "memory", "pids")
    for name in ("cpuacct", "memory"):
        (tmp_path / name / "oar" / "ada_7").mkdir(parents=True)
    [found] = look_at(trees).look(0).values()
    assert found.identity.job == "7"
    assert found.directories == {name: str(tmp_path / name / "oar" / "ada_7") for name in ("cpuacct", "memory")}


def test_a_resource_manager_may_start_after_us(tmp_path, look_at):
    finder = look_at(plain(tmp_path, "cpuacct"))
    assert jobs(finder, 0) == []
    (tmp_path / "cpuacct" / "oar" / "ada_7").mkdir(parents=True)
    assert jobs(finder, 1) == ["7"]
    (tmp_path / "cpuacct" / "oar" / "ada_8").mkdir()
    assert jobs(finder, 2) == ["7", "8"]


def test_a_hierarchy_that_is_mounted_after_us_is_found_by_the_rescan(tmp_path, look_at):
    trees = []
    finder = look_at(trees)
    assert jobs(finder, 0) == []
    (tmp_path / "cpuacct" / "oar" / "ada_7").mkdir(parents=True)
    trees += plain(tmp_path, "cpuacct")
    assert jobs(finder, 29) == []
    assert jobs(finder, 31) == ["7"]


def test_jobs_below_a_parent_that_nobody_foretold_are_found_by_the_rescan(tmp_path, look_at):
    finder = look_at(plain(tmp_path, "cpuacct"))
    finder.look(0)
    (tmp_path / "cpuacct" / "user.slice" / "mine" / "oar" / "ada_7").mkdir(parents=True)
    assert jobs(finder, 1) == []
    assert jobs(finder, 31) == ["7"]
    (tmp_path / "cpuacct" / "user.slice" / "mine" / "oar" / "ada_8").mkdir()
    assert jobs(finder, 32) == ["7", "8"]


def test_steps_and_tasks_belong_to_their_job_and_are_no_jobs(tmp_path, look_at):
    job = tmp_path / "cpuacct" / "slurm" / "uid_7" / "job_9"
    (job / "step_0" / "task_0").mkdir(parents=True)
    finder = look_at(plain(tmp_path, "cpuacct"))
    [found] = finder.look(0).values()
    assert found.process_directories == [str(job), str(job / "step_0"), str(job / "step_0" / "task_0")]
    (job / "step_1").mkdir()
    [found] = finder.look(1).values()
    assert found.process_directories[-1] == str(job / "step_1")


@needs_cgroups
@pytest.mark.parametrize("first", ["cpuacct", "memory"])
def test_the_steps_of_a_real_job_are_seen_by_inotify_in_every_hierarchy(groups, look_at, first):
    """Slurm makes a job with its steps at once, in one hierarchy after the other; no rescan is due meanwhile."""
    groups.make("slurm/uid_1000")
    finder = look_at(groups.hierarchies)
    finder.look(0)
    made = groups.make("slurm/uid_1000/job_9/step_batch/task_0", first)
    finder.look(1)
    made |= groups.make("slurm/uid_1000/job_9/step_batch/task_0")
    [found] = finder.look(2).values()
    assert found.directories == {name: str(path.parent.parent) for name, path in made.items()}
    task = made["cpuacct"]
    assert found.process_directories == [str(task.parent.parent), str(task.parent), str(task)]
    later = groups.make("slurm/uid_1000/job_9/step_0/task_0")
    [found] = finder.look(3).values()
    assert set(found.process_directories[1:]) == {str(path) for path in (task, task.parent, later["cpuacct"],
                                                                           later["cpuacct"].parent)}  # fmt: skip


@needs_cgroups
def test_steps_that_are_made_while_we_look_are_not_missed(groups, look_at):
    groups.make("slurm/uid_1000", "cpuacct", "memory")
    finder = look_at(groups.hierarchies)
    finder.look(0)
    over = threading.Event()

    def start_jobs():
        for number in range(60):
            groups.make(f"slurm/uid_1000/job_{number}/step_batch/task_0", "cpuacct", "memory")
        over.set()

    thread = threading.Thread(target=start_jobs)
    thread.start()
    while not over.is_set():
        finder.look(1)
    thread.join()
    assert {len(found.process_directories) for found in finder.look(1).values()} == {3}
    assert len(finder.jobs) == 60


def test_a_job_ends_with_the_first_of_its_directories(tmp_path, look_at):
    finder = look_at(plain(tmp_path, "cpuacct", "memory"))
    for name in ("cpuacct", "memory"):
        (tmp_path / name / "oar" / "ada_7").mkdir(parents=True)
    assert jobs(finder, 0) == ["7"]
    (tmp_path / "memory" / "oar" / "ada_7").rmdir()
    assert jobs(finder, 1) == []
    assert jobs(finder, 31) == [], "what is left of it is not a new job"
    (tmp_path / "memory" / "oar" / "ada_7").mkdir()
    [again] = finder.look(32).values()
    assert sorted(again.directories) == ["cpuacct", "memory"], "a new attempt takes up the old directory"


def test_a_new_attempt_of_a_job_is_another_job_to_measure(tmp_path, look_at):
    finder = look_at(plain(tmp_path, "cpuacct"))
    path = tmp_path / "cpuacct" / "oar" / "ada_7"
    path.mkdir(parents=True)
    [first] = finder.look(0).values()
    path.rmdir()
    path.mkdir()
    [second] = finder.look(1).values()
    assert second is not first


def test_ends_of_jobs_we_do_not_know_change_nothing(tmp_path, look_at):
    finder = look_at(plain(tmp_path, "cpuacct"))
    for name in ("oar/user_10", "oar/user_20", "invalid/job"):
        (tmp_path / "cpuacct" / name).mkdir(parents=True)
    assert jobs(finder, 0) == ["10", "20"]
    for name in ("oar/user_10", "invalid/job"):
        (tmp_path / "cpuacct" / name).rmdir()
    finder.forget(("oar2", "", "30"))
    assert jobs(finder, 1) == ["20"]


def test_other_cgroups_are_given_on_demand(tmp_path, look_at):
    trees = plain(tmp_path, "cpuacct")
    for name in ("oar/ada_7", "system.slice/cron.service", "user.slice/user-9.slice"):
        (tmp_path / "cpuacct" / name).mkdir(parents=True)
    assert [found.identity.layout for found in look_at(trees).look(0).values()] == ["oar2"]
    everything = look_at(trees, others=True).look(0)
    assert ("cgroup", "", "system.slice/cron.service") in everything
    assert ("systemd-user", "", "9") in everything


def test_without_watches_jobs_are_found_by_scanning_more_often(tmp_path, look_at, monkeypatch, caplog):
    def exhausted(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(inotify.Inotify, "watch", exhausted)
    finder = look_at(plain(tmp_path, "cpuacct"))
    finder.look(0)
    (tmp_path / "cpuacct" / "oar" / "ada_7").mkdir(parents=True)
    assert jobs(finder, 1) == []
    assert jobs(finder, discovery.BLIND_RESCAN_SECONDS + 1) == ["7"]
    assert len(caplog.records) == 1


def test_lost_events_bring_a_scan_at_once(tmp_path, look_at):
    overflow = inotify._HEAD.pack(-1, inotify._OVERFLOW, 0, 0)
    assert [change.what for change in inotify.parse(overflow)] == [inotify.OVERFLOWN]
    finder = look_at(plain(tmp_path, "cpuacct"))
    finder.look(0)
    (tmp_path / "cpuacct" / "x" / "oar" / "ada_7").mkdir(parents=True)
    finder._apply(inotify.InotifyEvent(-1, "", inotify.OVERFLOWN))
    assert jobs(finder, 1) == ["7"]


@needs_cgroups
def test_real_jobs_appear_and_vanish_without_a_rescan_on_both_versions(groups, look_at):
    groups.make("oarlock/n1")
    finder = look_at(groups.hierarchies)
    finder.look(0)
    made = groups.make("oarlock/n1/ada_7")
    [found] = finder.look(1).values()
    assert found.directories == {name: str(path) for name, path in made.items()}
    assert UNIFIED in found.directories
    groups.remove("oarlock/n1/ada_7")
    assert jobs(finder, 2) == []


def test_the_first_job_of_a_new_scope_is_seen_without_a_rescan(tmp_path, look_at):
    finder = look_at(plain(tmp_path, UNIFIED))
    finder.look(0)
    made = tmp_path / UNIFIED / "oarlock.slice" / "oarlock-n1.scope"
    for at, path in enumerate((made.parent, made, made / "ada_7", made / "supervisors"), start=1):
        path.mkdir()
        finder.look(at)
    [found] = finder.jobs.values()
    assert (found.identity.host, found.identity.user, found.identity.job) == ("n1", "ada", "7")


@needs_cgroups
def test_cgroups_that_vanish_while_they_are_looked_at_do_no_harm(groups, look_at):
    groups.make("oarlock/n1", "cpuacct", "memory")
    finder = look_at(groups.hierarchies, rescan_seconds=0)
    over = threading.Event()

    def churn():
        for number in range(150):
            groups.make(f"oarlock/n1/ada_{number}/inner", "cpuacct", "memory")
            groups.remove(f"oarlock/n1/ada_{number}", "cpuacct", "memory")
        over.set()

    thread = threading.Thread(target=churn)
    thread.start()
    looks = seen = 0
    while not over.is_set():
        seen += len(finder.look(looks))
        looks += 1
    thread.join()
    assert looks > 10
    assert seen > 0
    assert jobs(finder, looks) == []


def test_this_machine_has_the_hierarchies_that_its_mounts_say():
    for hierarchy in mounted_hierarchies():
        assert Path(hierarchy.root).is_dir()
        assert hierarchy.controllers


def test_the_layout_that_travels_is_the_one_the_server_knows():
    assert all_layouts()["oarlock"] is OARLOCK
