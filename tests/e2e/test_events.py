"""Events of the manual, each by its cause, on a live server with real nodes."""

import ast
import asyncio
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oarlock.client import Client
from oarlock.job.reactor import effect_runner
from oarlock.job.run.reports import BadReport
from oarlock.model.errors import NodeRefused
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, JobState
from oarlock.store.engine.opening import MemoryDatabase
from oarlock.store.queries.cluster import events
from tests.bed import needs_root, needs_v1, open_node, script, site_directory
from tests.e2e.instance import instance
from tests.e2e.terminal import job_of, piped
from tests.scenarios.cluster import Cluster
from tests.server.post_office import post_office
from tests.waiting import wait_until

pytestmark = needs_root

_LAUNCH_BYTES = 300  # more than any other request that waits in a pipe


@pytest.fixture
def site(workspace, two_users):
    """An instance of one node."""
    with instance(workspace, two_users[0], f"v{os.getpid()}n", nodes=1) as made:
        yield made


@pytest.mark.manual(139)
def test_a_checkpoint_on_a_node_that_is_away_is_an_error(site):
    job = site.submit("sleep 600")
    site.serve()
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    spool = site.state / "spool" / site.nodes[0]
    spool.chmod(0o777)  # others could write it, so that the next node program refuses to work here
    [program] = site.node_programs()
    os.kill(program, signal.SIGKILL)
    [answer] = Client(str(site.state / "server.sock")).delete({"ids": [job], "checkpoint": True})
    assert answer["done"]
    site.until(lambda: "CHECKPOINT_ERROR" in site.events(job))
    spool.chmod(0o700)
    site.delete(job)


@pytest.mark.manual(148)
def test_a_deploy_job_without_a_host_for_it_has_no_node(site):
    job = site.submit("true", types=("deploy",))
    site.serve()
    site.until(site.all_over)
    assert (site.story(job)[-1], site.events(job)) == ("Error", ["RESERVATION_NO_NODE"])


@pytest.mark.manual(142)
@needs_v1
def test_a_group_that_cannot_be_removed_is_a_clean_error(site):
    job = site.submit("sleep 600")
    site.serve()
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    group = Path(f"/sys/fs/cgroup/memory/oarlock/{site.nodes[0]}/{site.user}_{job}")
    with subprocess.Popen(["sleep", "600"]) as stranger:  # put there by somebody else who is root
        (group / "cgroup.procs").write_text(str(stranger.pid))
        try:
            site.delete(job)
            site.until(lambda: "CPUSET_CLEAN_ERROR" in site.events(job))
        finally:
            stranger.kill()
    wait_until(lambda: (group / "cgroup.procs").read_text() == "")
    group.rmdir()


@pytest.mark.manual(147)
def test_a_launch_that_never_arrived_is_made_again(site):
    first, job = site.submit("true"), site.submit("echo ran", state=JobState.HOLD)
    site.serve()
    site.until(lambda: site.job(first).state is JobState.TERMINATED)
    [program] = site.node_programs()
    os.kill(program, signal.SIGSTOP)
    Client(str(site.state / "server.sock")).resume({"ids": [job]})
    site.until(lambda: site.job(job).state is JobState.LAUNCHING)
    wait_until(lambda: _unread(program) > _LAUNCH_BYTES, what="the launch in the pipe")
    os.kill(program, signal.SIGKILL)
    site.until(site.all_over)
    assert "LAUNCHING_OAREXEC_TIMEOUT" in site.events(job)
    assert site.story(job)[-1] == "Terminated", "on the same node, which is not suspected"


def _unread(pid):
    """Give how many bytes wait in the fullest pipe that a process reads."""
    counts = [0]
    for path in Path(f"/proc/{pid}/fd").iterdir():
        if str(path.readlink()).startswith("pipe:"):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            counts.append(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])
            os.close(fd)
    return max(counts)


@pytest.mark.manual(144)
@pytest.mark.parametrize(("job", "is_forged"), [(99, False), (1, True)], ids=["BIPBIP_BAD_JOBID", "BIPBIP_CHALLENGE"])
def test_a_report_of_an_unknown_job_or_a_forged_one_is_noted(workspace, two_users, job, is_forged):
    async def bad_report():
        async with open_node(workspace, two_users[0]) as post:
            await post.run(7, "true")
            [about] = await post.status()
            if is_forged:  # a job that runs, and a report of another one that says that it ended well
                await post.node.launch(post.launch(job, "sleep 60"))
                await post.started(job)
                post.node._reported({**about["report"], "job": job})
            else:
                await post.node.forget([(7, 1)])
                post.node._reported({**about["report"], "job": job})
            return post.events[-1]

    refused = asyncio.run(bad_report())
    assert isinstance(refused, BadReport)
    cluster = Cluster(MemoryDatabase())
    cluster.submit("sleep 100")
    cluster.receive([refused])
    kind = EventType.BIPBIP_CHALLENGE if is_forged else EventType.BIPBIP_BAD_JOBID
    with cluster.database.read() as tx:
        [noted] = events.after(tx, 0, {kind}, most=10)
        assert (noted.event.job, noted.event.hosts) == (job if is_forged else None, (refused.node,))
    cluster.database.close()


@pytest.mark.manual(147)
def test_a_launch_that_the_node_cannot_read_is_a_bad_dump(workspace, two_users):
    async def refusal():
        async with open_node(workspace, two_users[0]) as post:
            sent = {**post.launch(1, "true").body(), "command": 7}
            with pytest.raises(NodeRefused) as refused:
                await post.node._ask("launch", sent)
            return refused.value

    assert effect_runner.launch_failure(asyncio.run(refusal())) is EventType.BAD_HASHTABLE_DUMP


def running(site, *words):
    """Submit a job as its user and wait until it runs."""
    code, out, err = piped(site, site.user, *words)
    assert code == 0, err
    job = job_of(out.encode())
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    return job


def until_event(site, job, *kinds):
    """Wait until a job has all these events."""
    site.until(lambda: set(kinds) <= set(site.events(job)))


@pytest.mark.manual(137, 138, 139, 145)
def test_jobs_that_make_room_are_checkpointed_or_deleted_have_events(site):
    site.serve()
    guest = running(site, "-t", "besteffort", "-t", "idempotent", "-l", "/core=2", "sleep 600")
    ready = site.home / "ready"
    loop = f"trap : USR2; touch {ready}; while :; do sleep 0.05; done"
    job = running(site, "-l", "/core=2,walltime=1", "--checkpoint", "10", loop)
    until_event(site, guest, "BESTEFFORT_KILL", "RESUBMIT_JOB_AUTOMATICALLY")
    site.until(ready.exists)
    Client(str(site.state / "server.sock")).delete({"ids": [job], "checkpoint": True})
    site.delete(job)
    until_event(site, job, "CHECKPOINT", "CHECKPOINT_SUCCESS", "FRAG_JOB_REQUEST", "SEND_KILL_JOB")
    site.delete(guest + 2)  # the copy of the first one


@pytest.mark.manual(131, 143)
def test_a_job_that_does_not_end_is_given_up_and_its_mail_is_not_sent(workspace, two_users):
    more = {"JOBDEL_SOFTWALLTIME": 1, "JOBDEL_WALLTIME": 2, "MAIL_SENDER": "oar@lab.org"}
    with (
        post_office(refuses=True) as office,
        instance(
            workspace, two_users[0], f"x{os.getpid()}n", nodes=1, more=more | {"MAIL_SMTP_SERVER": office.place}
        ) as site,
    ):
        site.serve()
        job = running(site, "--notify", "mail:ada@lab.org", "sleep 600")
        [program] = site.node_programs()
        os.kill(program, signal.SIGSTOP)
        site.delete(job)
        os.kill(program, signal.SIGCONT)
        until_event(site, job, "EXTERMINATE_JOB", "USER_MAIL_NOTIFICATION")
        assert site.job(job).state is JobState.ERROR


@pytest.mark.manual(136, 146)
def test_a_reservation_starts_late_and_without_a_node_that_is_away(workspace, two_users):
    more = {"RESERVATION_WAITING_RESOURCES_TIMEOUT": 1}
    with instance(workspace, two_users[0], f"r{os.getpid()}n", nodes=2, more=more) as site:
        site.serve()
        date = datetime.fromtimestamp(int(time.time()) + 3, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        code, out, err = piped(site, site.user, "-r", date, "-l", "/network_address=2,walltime=1", "sleep 600")
        assert code == 0, err
        job = job_of(out.encode())
        Client(str(site.state / "server.sock")).set_state({"nodes": [site.nodes[1]], "state": "Absent"})
        until_event(site, job, "SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION", "REDUCE_RESERVATION_WALLTIME")
        site.delete(job)


@pytest.mark.manual(140, 141)
def test_programs_of_the_server_that_fail_have_an_event_each(workspace, two_users):
    with site_directory() as folder:
        before, after = folder / "before", folder / "after"
        more = {
            "SERVER_PROLOGUE_EXEC_FILE": before, "SERVER_EPILOGUE_EXEC_FILE": after,
            "SERVER_PROLOGUE_EPILOGUE_TIMEOUT": 1,
        }  # fmt: skip
        script(before, "true")
        script(after, "true")
        with instance(workspace, two_users[0], f"s{os.getpid()}n", nodes=1, more=more) as site:
            site.serve()
            for path, text, event in [
                (before, "sleep 30", "SERVER_PROLOGUE_TIMEOUT"),
                (before, "exit 1", "SERVER_PROLOGUE_EXIT_CODE_ERROR"),
                (before, "", "SERVER_PROLOGUE_ERROR"),
                (after, "sleep 30", "SERVER_EPILOGUE_TIMEOUT"),
                (after, "exit 1", "SERVER_EPILOGUE_EXIT_CODE_ERROR"),
                (after, "", "SERVER_EPILOGUE_ERROR"),
            ]:
                go = site.home / event
                code, out, err = piped(site, site.user, "--hold", f"until [ -e {go} ]; do sleep 0.02; done")
                assert code == 0, err
                job = job_of(out.encode())
                script(path, text or "true")
                if not text:
                    path.chmod(0o644)
                client = Client(str(site.state / "server.sock"))
                client.start_queue(None)
                client.resume({"ids": [job]})
                go.touch()
                until_event(site, job, event)
                script(path, "true")
                if site.job(job).state not in FINAL:
                    site.delete(job)


MANUAL = tuple(EventType)[: tuple(EventType).index(EventType.CPUSET_ERROR)]
"""The event types that the manual lists."""

CAUSES = {
    "e2e/test_events.py": """
        CHECKPOINT_ERROR RESERVATION_NO_NODE CPUSET_CLEAN_ERROR LAUNCHING_OAREXEC_TIMEOUT BIPBIP_BAD_JOBID
        BIPBIP_CHALLENGE BAD_HASHTABLE_DUMP BESTEFFORT_KILL RESUBMIT_JOB_AUTOMATICALLY CHECKPOINT CHECKPOINT_SUCCESS
        FRAG_JOB_REQUEST SEND_KILL_JOB EXTERMINATE_JOB USER_MAIL_NOTIFICATION
        SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION REDUCE_RESERVATION_WALLTIME SERVER_PROLOGUE_TIMEOUT
        SERVER_PROLOGUE_EXIT_CODE_ERROR SERVER_PROLOGUE_ERROR SERVER_EPILOGUE_TIMEOUT SERVER_EPILOGUE_EXIT_CODE_ERROR
        SERVER_EPILOGUE_ERROR""",
    "e2e/test_core.py": "MAIL_NOTIFICATION_ERROR",
    "e2e/test_interactive.py": "CANNOT_NOTIFY_OARSUB",
    "e2e/test_notify.py": "USER_EXEC_NOTIFICATION_ERROR",
    "e2e/test_serve.py": "USER_SHELL USER_UNKNOWN WALLTIME",
    "e2e/test_ssh_nodes.py": "PING_CHECKER_NODE_SUSPECTED PROLOGUE_ERROR EXIT_VALUE_OAREXEC",
    "server/nodes/test_local_node.py": """
        EPILOGUE_ERROR CANNOT_CREATE_TMP_DIRECTORY CAN_NOT_WRITE_NODE_FILE CAN_NOT_WRITE_PID_FILE WORKING_DIRECTORY
        OUTPUT_FILES""",
}
"""Where each of them is produced by its cause, on a node of real processes."""


def test_every_event_of_the_manual_has_a_cause_or_a_line_in_differences():
    tests = Path(__file__).parents[1]
    caused = {}
    for file, names in CAUSES.items():
        of_tests = [
            node
            for node in ast.parse((tests / file).read_text()).body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        compared = " ".join(ast.unparse(node) for node in of_tests if "test_every_event" not in node.name)
        for name in names.split():
            assert re.search(rf"\b{name}\b", compared), f"{file} does not speak of {name}"
            caused[name] = file
    page = (tests.parent / "docs" / "reference" / "differences.md").read_text()
    differ = {name for name in MANUAL if f"| **{name}**: " in page}
    assert [name for name in MANUAL if name not in caused and name not in differ] == []
    assert set(caused) - set(MANUAL) == set()
