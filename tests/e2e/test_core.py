"""The core in this process, with real nodes of this machine: wishes about running jobs, and questions."""

import asyncio
import os
import signal
import socket
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from oarlock.config import Config
from oarlock.job import queue_states
from oarlock.job.reactor.steps import Periodic
from oarlock.lang import request as requests
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, Job, JobState, Reservation
from oarlock.model.snapshot import Queue
from oarlock.server import instance, serve
from oarlock.server.core import REQUEST_SECONDS, ServerCore
from oarlock.server.process.clock import RealClock
from oarlock.settings.kinds import NodeTransport
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.planning import plans
from oarlock.store.queries.site import administration
from oarlock.store.queries.users import user_records
from tests import bed
from tests.bed import needs_root, script, site_directory
from tests.server.post_office import post_office
from tests.waiting import wait_until

pytestmark = needs_root

NODE = f"c{os.getpid()}n"  # other tests have jobs of the same numbers at the same time


@pytest.fixture
def scripts():
    with site_directory() as path:
        yield path


class Site:
    def __init__(self, core, user, home):
        self.core, self.user, self.home = core, user, home

    def new(self, command, asked="/resource_id=1,walltime=1", **fields):
        known = {"user": self.user, "queue": "default", "directory": str(self.home), "submitted": int(time.time())}
        job = Job(id=0, state=JobState.WAITING, command=command, **{**known, **fields})
        return new_jobs.NewJob(job, requests.parse([asked]))

    async def submit(self, *args, **fields):
        new = self.new(*args, **fields)
        [job] = await self.core.write(lambda tx: new_jobs.add(tx, [new]))
        self.core.wake_scheduler()
        return job.id

    async def until(self, job, state):
        async with asyncio.timeout(40):
            while (await self.job(job)).state is not state:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def until_states(self, states):
        async with asyncio.timeout(40):
            while {one.properties["state"] for one in await self.core.read(resources.listed)} != states:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def job(self, job):
        return await self.core.read(lambda tx: jobs.get(tx, job))

    async def story(self, job):
        return [str(state) for state, *_ in await self.core.read(lambda tx: jobs.state_history(tx, job))]

    async def events(self, job):
        return [str(one.event.type) for one in await self.core.read(lambda tx: events.of_jobs(tx, [job]))]


@asynccontextmanager
async def site(workspace, user, *, node=NODE, cpus=(0, 1), clock=None, **settings):
    given = {"node_transport": NodeTransport.LOCAL, "watch_frequency": 1, "jobdel_softwalltime": 2, **settings}
    config = Config(**given)
    home = workspace / "home"
    home.mkdir()
    home.chmod(0o777)
    try:
        with instance.open_instance(workspace / "state", config) as database:
            rows = [{"network_address": node, "cpuset": cpu} for cpu in cpus]
            database.write(lambda tx: resources.add(tx, rows, at=int(time.time())))
            core = ServerCore(
                workspace / "state", config, database, clock or RealClock(), instance.attempt_key(database)
            )
            running = asyncio.create_task(serve.run(core))
            yield Site(core, user, home)
            core.stopping.set()
            await running
            await core.close()
    finally:
        bed.remove_roots(node)


@pytest.mark.manual(64, 66, 68, 153)
def test_a_running_job_is_suspended_resumed_signalled_and_killed(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0]) as here:
            job = await here.submit("trap 'echo caught > caught' USR1; while :; do sleep 0.05; done")
            await here.until(job, JobState.RUNNING)
            [held] = await here.core.hold([job], by="root", running=True)
            assert held.done
            await here.until(job, JobState.SUSPENDED)
            await here.core.resume([job], by="root")
            await here.until(job, JobState.RUNNING)
            await here.core.signal([job], 10, by="root")
            await asyncio.to_thread(wait_until, (here.home / "caught").exists)
            [killed] = await here.core.kill([job], by="root")
            assert killed.done
            await here.until(job, JobState.ERROR)
            assert (await here.story(job))[3:] == [
                "Running", "Suspended", "Resuming", "Running", "Finishing", "Error",
            ]  # fmt: skip
            assert (await here.events(job))[-1] == "SWITCH_INTO_ERROR_STATE"

    asyncio.run(story())


@pytest.mark.manual(173, 191)
def test_the_sites_scripts_run_after_suspend_and_before_resume(workspace, two_users, scripts):
    state = f"$(cat /sys/fs/cgroup/*/oarlock/{NODE}/*_$1/cgroup.freeze)"
    scripts = {
        "just_after_suspend_exec_file": Path(script(scripts / "after", f"echo after $1 {state} >> {workspace}/told")),
        "just_before_resume_exec_file": Path(script(scripts / "before", f"echo before $1 {state} >> {workspace}/told")),
    }

    async def story():
        async with site(workspace, two_users[0], **scripts) as here:
            job = await here.submit("sleep 600")
            await here.until(job, JobState.RUNNING)
            await here.core.hold([job], by="root", running=True)
            await here.until(job, JobState.SUSPENDED)
            await here.core.resume([job], by="root")
            await here.until(job, JobState.RUNNING)
            assert (workspace / "told").read_text().splitlines() == [f"after {job} 1", f"before {job} 1"]
            await here.core.kill([job], by="root")
            await here.until(job, JobState.ERROR)

    asyncio.run(story())


def test_a_suspend_script_that_takes_too_long_ends_the_job(workspace, two_users, scripts):
    slow = Path(script(scripts / "slow", "sleep 600"))

    async def story():
        settings = {"just_after_suspend_exec_file": slow, "suspend_resume_script_timeout": 1}
        async with site(workspace, two_users[0], **settings) as here:
            job = await here.submit("sleep 600")
            await here.until(job, JobState.RUNNING)
            await here.core.hold([job], by="root", running=True)
            await here.until(job, JobState.ERROR)
            assert (await here.events(job))[:2] == ["HOLD_RUNNING_JOB", "SUSPEND_ERROR"]

    asyncio.run(story())


def test_a_real_node_with_a_cpu_number_that_it_does_not_have_is_suspected(workspace, two_users):
    async def story():
        async with site(
            workspace, two_users[0], node="localhost", cpus=(4095,), node_transport=NodeTransport.AUTO
        ) as here:
            job = await here.submit("true")
            await here.until_states({"Suspected"})
            assert await here.events(job) == ["CPUSET_ERROR"]
            assert await here.story(job) == ["Waiting", "toLaunch", "Launching", "Waiting"]

    asyncio.run(story())


def test_a_pretended_node_takes_cpu_numbers_modulo_the_cpus_there_are(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0], cpus=(4095,)) as here:
            job = await here.submit("true")
            await here.until(job, JobState.TERMINATED)

    asyncio.run(story())


def test_a_job_whose_spawner_was_killed_ends_and_its_node_serves_on(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0]) as here:
            job = await here.submit("echo $PPID > parent.new; mv parent.new parent; sleep 600")
            await asyncio.to_thread(wait_until, (here.home / "parent").exists)
            os.kill(int((here.home / "parent").read_text()), signal.SIGKILL)
            await here.until(job, JobState.ERROR)
            assert "EXIT_VALUE_OAREXEC" in await here.events(job)
            assert {one.properties["state"] for one in await here.core.read(resources.listed)} == {"Alive"}
            await here.until(await here.submit("true"), JobState.TERMINATED)

    asyncio.run(story())


def test_a_user_who_kills_all_their_processes_takes_no_node_out(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0]) as here:
            attack = await here.submit("touch attacks; while :; do kill -9 -1; done")
            await asyncio.to_thread(wait_until, (here.home / "attacks").exists)
            for _ in range(12):
                job = await here.submit("sleep 600")
                async with asyncio.timeout(40):
                    while (await here.job(job)).state not in FINAL:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            assert (await here.job(attack)).state is JobState.RUNNING
            assert {one.properties["state"] for one in await here.core.read(resources.listed)} == {"Alive"}

    asyncio.run(story())


@pytest.mark.manual(121, 162)
def test_a_node_that_the_sites_check_calls_bad_is_suspected(workspace, two_users, scripts):
    bad = workspace / "bad"
    bad.touch()
    check = script(scripts / "check", f"test ! -e {bad} || printf '%s\\n' \"$@\" >&2")

    async def story():
        async with site(workspace, two_users[0], pingchecker_generic_command=(check,)) as here:
            await here.core.check()
            await here.until_states({"Suspected"})
            bad.unlink()
            await here.core.check()
            await here.until_states({"Alive"})

    asyncio.run(story())


@pytest.mark.manual(140, 168)
def test_a_failing_server_epilogue_stops_the_queues_and_jobs_say_why(workspace, two_users, scripts):
    epilogue = scripts / "epilogue"
    epilogue.write_text(f"#!/bin/sh\necho $1 >> {workspace}/ended\nexit 1\n")
    epilogue.chmod(0o755)

    async def story():
        async with site(workspace, two_users[0], server_epilogue_exec_file=epilogue) as here:
            job = await here.submit("true")
            await here.until(job, JobState.TERMINATED)
            assert (workspace / "ended").read_text() == f"{job}\n"
            assert await here.events(job) == ["SERVER_EPILOGUE_EXIT_CODE_ERROR", "SWITCH_INTO_TERMINATE_STATE"]
            other = await here.submit("true")
            assert "is stopped" in (await here.core.why(other)).says

    asyncio.run(story())


def _start_queues(here):
    here.core.forget_failures()
    return here.core.write(lambda tx: queue_states.start(tx, None, by="root", now=int(time.time())))


async def _until_stopped(here):
    async with asyncio.timeout(40):
        while any(queue.active for queue in await here.core.read(administration.all_queues)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("transport", [NodeTransport.LOCAL, NodeTransport.AUTO])
def test_a_wrong_path_stops_the_queues_and_suspects_nobody(workspace, two_users, scripts, transport):
    """With `local` the server sees it when it starts, else when the node is first reached."""
    path = scripts / "prologue"
    node = f"{NODE}p" if transport is NodeTransport.LOCAL else socket.gethostname()

    async def story():
        async with site(workspace, two_users[0], node=node, node_transport=transport, prologue_exec_file=path) as here:
            job = await here.submit("true")
            await _until_stopped(here)
            await here.until(job, JobState.WAITING)
            says = (await here.core.why(job)).says
            assert "is stopped: PROLOGUE_EXEC_FILE" in says
            assert f"{path} cannot be opened: No such file or directory" in says
            assert "`oarnotify -E` starts them again" in says
            assert {one.properties["state"] for one in await here.core.read(resources.listed)} == {"Alive"}
            script(path, "true")
            await _start_queues(here)
            here.core.wake_scheduler()
            await here.until(job, JobState.TERMINATED)

    asyncio.run(story())


@pytest.mark.manual(141, 168)
def test_a_prologue_holds_a_job_or_stops_the_queues(workspace, two_users, scripts):
    path = Path(script(scripts / "prologue", "exit 3"))

    async def story():
        async with site(workspace, two_users[0], prologue_exec_file=path) as here:
            mine = await here.submit("true")
            await here.until(mine, JobState.HOLD)
            assert f"{path} ended with exit 3; `oarresume {mine}` tries again" in (await here.job(mine)).message
            theirs = await here.submit("true", user=two_users[1])
            await _until_stopped(here)
            await here.until(mine, JobState.WAITING)
            assert {one.properties["state"] for one in await here.core.read(resources.listed)} == {"Alive"}
            script(path, "true")
            await _start_queues(here)
            here.core.wake_scheduler()
            for job in (mine, theirs):
                await here.until(job, JobState.TERMINATED)

    asyncio.run(story())


def test_a_program_of_the_server_that_another_user_owns_is_not_run_as_root(workspace, two_users, scripts):
    prologue = Path(script(scripts / "prologue", f"touch {workspace}/ran"))
    os.chown(prologue, 4242, 4242)

    async def story():
        async with site(workspace, two_users[0], server_prologue_exec_file=prologue) as here:
            await _until_stopped(here)
            job = await here.submit("true")
            await _start_queues(here)
            here.core.wake_scheduler()
            await _until_stopped(here)
            await here.until(job, JobState.WAITING)
            assert "SERVER_PROLOGUE_ERROR" in await here.events(job)
            assert f"`chown root {prologue}`" in (await here.core.why(job)).says
            assert not (workspace / "ran").exists()

    asyncio.run(story())


def test_jobs_that_never_start_say_so_as_oar_does(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0]) as here:
            failed = await here.submit("exit 3")
            await here.until(failed, JobState.TERMINATED)
            big = await here.submit("true", "/resource_id=9,walltime=1")
            new = new_jobs.NewJob(here.new("true").job, requests.parse(["/resource_id=1,walltime=1"]), (failed,))
            [dependant] = await here.core.write(lambda tx: new_jobs.add(tx, [new]))
            here.core.wake_scheduler()
            told = {
                big: "No enough matching resources (no_matching_slot)",
                dependant.id: f"Cannot determine scheduling time due to dependency with the job {failed}",
            }
            await asyncio.to_thread(wait_until, lambda: here.core.hopeless == told)
            rows = [{"network_address": NODE, "cpuset": 0}] * 7
            await here.core.write(lambda tx: resources.add(tx, rows, at=int(time.time())))
            here.core.wake_scheduler()
            await here.until(big, JobState.TERMINATED)
            assert big not in here.core.hopeless

    asyncio.run(story())


def test_questions_are_answered_before_and_after_a_submission(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0]) as here:
            long = await here.submit("sleep 600", "/resource_id=2,walltime=1")
            await here.until(long, JobState.RUNNING)
            dry = await here.core.when(here.new("true", "/resource_id=1,walltime=0:10:0"))
            assert 3590 < dry.start - time.time() < 3610
            waits = await here.submit("true")
            assert (await here.core.why(waits)).start == dry.start
            date = int(time.time()) + 60
            refused = await here.submit("true", reservation=Reservation.TO_SCHEDULE, start=date)
            answer = await here.core.answered(refused)
            assert (answer.accepted, "the date is taken" in answer.says) == (False, True)
            await here.core.kill([long], by="root")
            await here.until(waits, JobState.TERMINATED)

    asyncio.run(story())


@pytest.mark.manual(166)
def test_a_server_prologue_that_stops_the_queues_is_mailed(workspace, two_users, scripts, monkeypatch):
    monkeypatch.setattr("oarlock.server.steps.ALERT_SECONDS", 0.1)
    broken = Path(script(scripts / "prologue", "echo the licence server is away >&2; exit 3"))

    async def story(post):
        told = {"mail_smtp_server": post.place, "mail_recipient": ("root@lab.org",)}
        async with site(workspace, two_users[0], server_prologue_exec_file=broken, **told) as here:
            job = await here.submit("true")
            await here.until(job, JobState.ERROR)
            await asyncio.to_thread(wait_until, lambda: post.mails)
            return job

    with post_office() as post:
        job = asyncio.run(story(post))
    assert f"SERVER_PROLOGUE_EXIT_CODE_ERROR (job {job})" in post.mails[0]
    assert "the licence server is away" in post.mails[0]
    assert "All queues were stopped" in post.mails[0]


@pytest.mark.manual(143, 166)
def test_a_mail_about_trouble_that_cannot_be_sent_is_an_event(workspace, two_users, scripts, monkeypatch):
    monkeypatch.setattr("oarlock.server.steps.ALERT_SECONDS", 0.1)
    broken = Path(script(scripts / "prologue", "exit 3"))

    async def story():
        told = {"mail_smtp_server": "127.0.0.1:9", "mail_recipient": ("root@lab.org",)}
        async with site(workspace, two_users[0], server_prologue_exec_file=broken, **told) as here:
            await here.submit("true")
            kinds = {EventType.MAIL_NOTIFICATION_ERROR}
            async with asyncio.timeout(40):
                while not (rows := await here.core.read(lambda tx: events.after(tx, 0, kinds, most=1))):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            return rows[0].event

    event = asyncio.run(story())
    assert (event.job, "root@lab.org could not be sent" in event.description) == (None, True), event


def test_a_date_that_was_told_is_kept_where_the_queue_keeps_dates(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0], scheduler_job_security_time=0) as there:
            await there.core.write(lambda tx: administration.add_queue(tx, Queue("kept", 5, "conservative")))
            asked = {"long": (1, 100), "short": (1, 40), "wide": (2, 50), "late": (1, 70), "small": (1, 55)}
            jobs_ = {
                name: await there.submit("sleep 200", f"/resource_id={count},walltime=0:0:{seconds}", queue="kept")
                for name, (count, seconds) in asked.items()
            }
            await there.until(jobs_["short"], JobState.RUNNING)
            told = await told_all(there, [jobs_["wide"], jobs_["late"], jobs_["small"]])
            assert told[jobs_["small"]] < told[jobs_["wide"]]
            await there.core.kill([jobs_["long"]], by="root")
            # If every pass planned anew, the wide job would take the small one's place now; both others would wait.
            await there.until(jobs_["late"], JobState.RUNNING)
            after = await told_all(there, [jobs_["wide"], jobs_["small"]])
            assert all(after[number] <= told[number] + SLIP for number in after)
            assert after[jobs_["small"]] < after[jobs_["wide"]]

    asyncio.run(story())


SLIP = 2  # seconds by which a real start may be late, and with it what was told of those behind it


async def told_all(there, numbers):
    """Wait until all these jobs are told a date; give the dates."""
    async with asyncio.timeout(40):
        while True:
            promised = await there.core.read(lambda tx: plans.promised(tx, "kept"))
            if promised.keys() >= set(numbers):
                return {number: promised[number].start for number in numbers}
            await asyncio.sleep(0.02)


class FastClock(RealClock):
    """A clock of the server that is a hundred seconds ahead of that of its nodes."""

    def now(self):
        return super().now() + 100


def test_a_node_whose_clock_differs_from_the_servers_is_named(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0], clock=FastClock()) as here:
            await here.until(await here.submit("true"), JobState.TERMINATED)
            noted = [row.event for row in await here.core.read(lambda tx: events.of_hosts(tx, [NODE]))]
            [clock] = [event for event in noted if event.type is EventType.NODE_CLOCK_WRONG]
            assert clock.description == f"the clock of {NODE} is 100 s behind the server's"

    asyncio.run(story())


def test_a_server_forgets_answers_to_requests_of_days_ago(workspace, two_users):
    async def story():
        async with site(workspace, two_users[0]) as here:
            now = int(time.time())
            for request_id, at in (("old", now - REQUEST_SECONDS - 1), ("new", now - REQUEST_SECONDS + 3600)):
                kept = {"user": "ada", "request_id": request_id, "verb": "v", "answer": "", "at": at}
                await here.core.write(partial(user_records.remember_answer, **kept))
            here.core.reactor.request(Periodic.FORGET_REQUESTS)
            keys = [("ada", "old"), ("ada", "new")]
            async with asyncio.timeout(40):
                while len(answers := await here.core.read(lambda tx: user_records.answered_keys(tx, keys))) > 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert answers == {("ada", "new")}

    asyncio.run(story())
