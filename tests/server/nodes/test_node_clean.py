"""What is left on a node when its server is gone: supervisors end by themselves, and the rest is found and ended."""

# ruff: noqa: ASYNC220, ASYNC240 - nobody else waits for the loop of a test

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from oarlock.cli.oarlock import main
from oarlock.node.cgroup.base import CgroupMounts
from oarlock.server.nodes import clean, leftovers
from tests.bed import needs_root, needs_v1, open_node, run_async
from tests.waiting import wait_until

pytestmark = needs_root


def family(pid: int) -> list[int]:
    """Return a process with its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *map(int, children)]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@run_async
async def test_a_supervisor_whose_spool_was_removed_ends_with_its_spawner(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        await post.node.launch(post.launch(1, "echo ready; while [ ! -e over ]; do sleep 0.01; done"))
        await post.printed(1, "ready")
        await post.node.close()
        spool = Path(post.settings.spool)
        await asyncio.to_thread(wait_until, (spool / "1.1.control").exists, what="a supervisor without a program")
        [supervisor] = [process for process in leftovers.list_supervisors() if process.spool == spool]
        processes = family(supervisor.pid)
        assert len(processes) == 2  # with its spawner
        shutil.rmtree(spool)
        shutil.rmtree(post.settings.runtime)
        (post.home / "over").touch()
        await asyncio.to_thread(wait_until, lambda: all(map(is_gone, processes)), what="the end of both")


async def running(post, job):
    """Launch a job that runs until it is ended; return its supervisor."""
    await post.node.launch(post.launch(job, "echo ready; sleep 600 & setsid sleep 600 & wait"))
    await post.printed(job, "ready")
    [process] = [process for process in leftovers.list_supervisors() if str(process.spool) == post.settings.spool]
    return process


def oarlock_node_clean(capsys, *arguments):
    code = main(["node", "clean", "--json", *map(str, arguments)])
    return code, json.loads(capsys.readouterr().out)


@run_async
async def test_clean_ends_a_job_whose_spool_was_removed_and_no_other(workspace, two_users, capsys):
    gone, there = workspace / "gone", workspace / "there"
    async with open_node(gone, two_users[0]) as lost, open_node(there, two_users[1]) as kept:
        orphan, living = await running(lost, 1), await running(kept, 1)
        processes = [orphan.pid, *leftovers.descendants(orphan.pid)]
        await lost.node.close()
        wait_until(lambda: (gone / "spool" / "1.1.control").exists(), what="a supervisor without a program")
        shutil.rmtree(gone / "spool")
        left = leftovers.find()
        mine = [process for process in left.supervisors if process.spool.is_relative_to(workspace)]
        assert ([(one.pid, one.key) for one in mine], left.living > 0) == ([(orphan.pid, (1, 1))], True)
        names = sorted(path.name for path in left.files if path.is_relative_to(workspace))
        assert names == ["1.1.nodes", "1.1.resources"]
        # Tests beside this one leave things for their own sake: only ours are ended.
        code, shown = await asyncio.to_thread(oarlock_node_clean, capsys, "--gone", gone)
        kinds = [thing["kind"] for thing in shown["left"]]
        assert (code, kinds, shown["problems"]) == (0, ["supervisor", "cgroup", "file", "file"], [])
        await asyncio.to_thread(wait_until, lambda: all(map(is_gone, processes)), what="the end of all of it")
        assert not list((gone / "run").glob("1.1.*"))
        assert not list(Path("/sys/fs/cgroup").glob(f"*/oarlock/{lost.settings.node}/*_1"))
        assert living in leftovers.list_supervisors()
        await kept.node.kill(1, 1)
        assert (await kept.report(1)).outcome == "killed"


@run_async
async def test_clean_ends_jobs_of_a_server_that_is_declared_gone(workspace, two_users, capsys):
    async with open_node(workspace, two_users[0]) as post:
        process = await running(post, 3)
        assert await asyncio.to_thread(main, ["node", "clean", "--gone", str(workspace)]) == 2
        assert "is connected: its jobs are alive" in capsys.readouterr().err
        await post.node.close()
        wait_until(lambda: (workspace / "spool" / "3.1.control").exists(), what="a supervisor without a program")
        _, dry = await asyncio.to_thread(oarlock_node_clean, capsys, "--dry-run", "--gone", workspace)
        assert (dry["ended"], is_gone(process.pid)) == (False, False)
        code, shown = await asyncio.to_thread(oarlock_node_clean, capsys, "--gone", workspace)
        assert (code, shown["left"]) == (0, dry["left"])
        await asyncio.to_thread(wait_until, lambda: is_gone(process.pid), what="its end")
        assert sorted(path.name for path in (workspace / "spool").iterdir()) == ["highest", "lock"]


@needs_v1
@run_async
async def test_clean_removes_a_group_that_no_supervisor_works_on(workspace, two_users):
    hierarchy = Path("/sys/fs/cgroup/pids")
    async with open_node(workspace, two_users[0]) as post:
        await running(post, 1)
        here = hierarchy / "oarlock" / post.settings.node
        stray = here / f"{two_users[0]}_987654321"
        stray.mkdir()
        with subprocess.Popen(["sleep", "600"]) as sleeper:
            (stray / "cgroup.procs").write_text(str(sleeper.pid))
            left = leftovers.find(mounts=CgroupMounts({"pids": str(hierarchy)}, None))
            groups = tuple(group for group in left.groups if post.settings.node in group.path)
            assert [group.places for group in groups] == [(stray,)]
            problems = clean.end(replace(left, supervisors=(), groups=groups, files=(), lingering=()))
            assert (problems, sleeper.wait(), stray.exists(), here.exists()) == ([], -9, False, True)


FORGED = """
import fcntl, os, sys
file = open(sys.argv[1], "w+b")
file.write(b"0" * 64 + b' {"job": 1, "attempt": 1, "user": "root"}')
file.flush()
fcntl.flock(file, fcntl.LOCK_EX)
os.unlink(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def test_clean_does_not_believe_a_process_of_a_user(workspace, two_users):
    place = workspace / "theirs"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    command = [sys.executable, "-c", FORGED, str(place / "1.1")]
    with contextlib.ExitStack() as stack:
        seen = []
        for user in (two_users[0], None):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "user": user}
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            assert process.stdout.readline() == b"ready\n"
            seen.append(leftovers.read_supervisor(process.pid) is not None)
        assert (seen, os.geteuid()) == ([False, True], 0)
