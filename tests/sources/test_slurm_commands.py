"""A Slurm cluster without an account of its database: sinfo, squeue and sacct."""

import asyncio
import os
import threading
import time

import pytest

from oarlock.lang import slurm
from oarlock.lang.sacct import read_separated
from oarlock.model.errors import ConfigRefused
from oarlock.model.job import JobState
from oarlock.model.source import SourceAway
from oarlock.node.commands import CommandFailed, output
from oarlock.server.sources import slurm_commands
from oarlock.server.sources.accounted import AccountedUsages
from oarlock.server.sources.slurm_commands import accounted_job, open_commands
from oarlock.web.pages.overview import overview
from tests.measure.test_real_slurm import NODE, Slurm
from tests.measure.test_real_slurm import slurm as real_slurm  # noqa: F401  (a fixture)
from tests.monitoring import needs_cgroups
from tests.sources.oar_cluster import NOW
from tests.sources.slurm_commands import PlayedSlurm, ended, live, step
from tests.sources.test_oar import Portal
from tests.sources.test_slurm import RECORDED
from tests.waiting import wait_until

BOB = ("bob", 1002)


def test_the_portal_shows_what_slurms_commands_tell(tmp_path):
    played = PlayedSlurm()
    played.live = [
        live(2, "RUNNING", user=BOB, cpus=3, nodes=2, S=str(NOW - 600), N="n[1-2]"),
        live(3, "PENDING", cpus=8, r="(Resources)", S=str(NOW + 900)),
        live(4, "PENDING", Q="0", r="(JobHeldUser)"),
        live(6, "COMPLETING", S=str(NOW - 300), N="n1"),
        live(7, "CONFIGURING", cpus=1, S=str(NOW - 5), N="n2", F="7", K="4"),
    ]
    played.ended = [
        ended(1, "COMPLETED", NOW - 4000, NOW - 3000),
        ended(5, "TIMEOUT", NOW - 3900, NOW - 300, ExitCode="0:15", JobID="5_7"),
        ended(6, "CANCELLED by 1001", NOW - 300, NOW - 1),
        ended(8, "CANCELLED by 0", 0, NOW - 50, nodes="None assigned", Start="Unknown", Submit=str(NOW - 60)),
    ]

    async def story():
        portal = Portal(tmp_path, played.source(), source_history=1)
        try:
            await portal.core.follower.look()
            assert [health.says for health in portal.core.follower.health] == [""] * 4
            everything = ["Running", "Waiting", "Hold", "Terminated", "Error"]
            jobs = (await portal.ask("jobs.list", states=everything)).jobs
            assert [(job.id, job.state, job.owner, job.walltime, job.start, job.stop) for job in jobs] == [
                (1, "Terminated", "ann", 3600, NOW - 4000, NOW - 3000),
                (2, "Running", "bob", 3600, NOW - 600, 0),
                (3, "Waiting", "ann", 3600, 0, 0),
                (4, "Hold", "ann", 3600, 0, 0),
                (5, "Error", "ann", 3600, NOW - 3900, NOW - 300),
                (6, "Error", "ann", 3600, NOW - 300, NOW - 1),
                (7, "Running", "ann", 3600, NOW - 5, 0),
                (8, "Error", "ann", 3600, 0, NOW - 50),
            ]
            assert [(await portal.ask("jobs.show", id=number)).message for number in (3, 5, 6)] == [
                "Slurm: Resources", "Slurm: TIMEOUT", "Slurm: CANCELLED",
            ]  # fmt: skip
            why = await portal.core.why(3)
            assert (why.says, why.start) == ("Slurm: Resources", NOW + 900)
            overview = await portal.ask("overview")
            assert [(node.name, node.state, node.cores, node.held) for node in overview.nodes] == [
                ("n1", "alive", 4, 2), ("n2", "alive", 4, 2), ("n3", "suspected", 2, 0)
            ]  # fmt: skip
            assert [(queue.name, queue.active) for queue in overview.queues] == [("main", True), ("night", False)]
            played.live, played.clock = [], 61
            played.ended.append(ended(2, "COMPLETED", NOW - 600, NOW + 20, nodes="n[1-2]", user=BOB, cpus=3))
            await portal.core.follower.look()
            assert (await portal.ask("jobs.show", id=2)).state == "Terminated"
            assert (await portal.ask("jobs.show", id=3)).state == "Error", "Slurm does not have it any more"
        finally:
            await portal.close()

    asyncio.run(story())


def test_the_chart_has_when_nodes_were_away_as_slurmdbd_knows(tmp_path):
    played = PlayedSlurm()
    down, drained = str(1), str(1 << 9)
    played.node_events = [
        ("n1", down, str(NOW - 5000), str(NOW - 4000)), ("n3", down, str(NOW - 900), "Unknown"),
        ("n2", drained, str(NOW - 5000), "0"), ("gone", down, str(NOW - 5000), "0"), ("", "0", str(NOW - 9000), "0"),
    ]  # fmt: skip

    async def story():
        portal = Portal(tmp_path, played.source(), source_history=1)
        try:
            await portal.core.follower.look()
            cores = {row["resource_id"]: row["network_address"] for row in
                     (await portal.ask("resources.list")).resources}  # fmt: skip
            chart = await portal.ask("gantt", since=NOW - 6000, until=NOW + 100)
            away = {(cores[bar.resource], bar.state, bar.start, bar.stop) for bar in chart.states}
            assert away == {("n1", "Dead", NOW - 5000, NOW - 4000), ("n3", "Dead", NOW - 900, NOW + 100)}
            assert len(chart.states) == 4 + 2, "all cores of the two nodes"
            played.broken, played.clock = {"sacctmgr"}, 61
            await portal.core.follower.look()
            assert [health.says for health in portal.core.follower.health] == [""] * 4, "nothing else is missing"
        finally:
            await portal.close()

    asyncio.run(story())


def test_jobs_that_nobody_measures_have_what_slurm_counted(tmp_path):
    played = PlayedSlurm()
    played.ended = [
        ended(1, "COMPLETED", NOW - 4000, NOW - 3000), ended(2, "COMPLETED", NOW - 4000, NOW - 3000, nodes="n[1-2]"),
        ended(3, "FAILED", NOW - 2000, NOW - 1000),
    ]  # fmt: skip
    most = "cpu=00:08:20,mem=500M,fs/disk=3M"
    played.steps = [
        step(1, TotalCPU="00:08:20.000"), step(1, "batch", TRESUsageInTot="mem=4M"),
        step(1, "0", TRESUsageInTot=most, TRESUsageOutTot="fs/disk=1M"), step(2, TotalCPU="00:01:40.000"), step(3),
    ]  # fmt: skip

    async def story():
        portal = Portal(tmp_path, played.source(), source_history=1)
        accounted = portal.core.accounted = AccountedUsages(portal.core, portal.core.follower._source)
        try:
            await portal.core.follower.look()
            assert (await accounted.look(), await accounted.look()) == (3, 0)
            first = await portal.ask("jobs.usage", id=1)
            assert (first.cpu_seconds, first.cpus, first.memory_own_peak_bytes, first.memory_limit_bytes) == (
                500.0, 2, 500 << 20, 1000 << 20,
            )  # fmt: skip
            assert (first.read_bytes, first.written_bytes, first.samples, first.coverage) == (3 << 20, 1 << 20, 0, 0)
            report = (await portal.ask("jobs.report", id=1)).text
            assert any("0.5 of 2 busy" in line for line in report)
            assert any("500 MiB of 1000 MiB" in line for line in report)
            assert "  Not sampled: counted once, when the job ended." in report
            found = [finding.id for finding in (await portal.ask("jobs.findings", id=1)).findings]
            assert found == ["time.short"], "what wants samples is not found without them"
            second, third = [await portal.ask("jobs.usage", id=number) for number in (2, 3)]
            assert (second.cpu_seconds, second.memory_own_peak_bytes) == (100.0, None)
            assert third.cpu_seconds is None, "not zero"
            days = (await portal.ask("usage.days", user="ann", since=NOW - 9000)).rows
            assert sum(row.usage.core_busy_seconds for row in days) == pytest.approx(600, rel=0.01)
            assert {health.name: health.answers for health in portal.core.source_health}["Slurm's commands: usage"]
        finally:
            await portal.close()

    asyncio.run(story())


def test_a_job_that_ended_since_squeue_was_asked_stays_over(tmp_path):
    played = PlayedSlurm()
    played.live = [live(1, "RUNNING", S=str(NOW - 600), N="n1")]

    async def story():
        portal = Portal(tmp_path, played.source(), source_history=1)
        try:
            await portal.core.follower.look()
            assert (await portal.ask("jobs.show", id=1)).state == "Running"
            played.clock, played.ended = 70, [ended(1, "COMPLETED", NOW - 600, NOW + 69)]
            await portal.core.follower.look()  # squeue has it still; sacct, asked later, has its end
            played.clock, played.ran = 100, []
            await portal.core.follower.look()
            assert (await portal.ask("jobs.show", id=1)).state == "Terminated"
            assert played.ran == [], "it is less than a minute ago"
            assert portal.core.follower.seen_until == NOW
            portal.core.clock.now = lambda: NOW + 200
            played.clock, played.broken = 200, {"sacct"}
            await portal.core.follower.look()
            assert portal.core.follower.seen_until == NOW, "who held what since is not known"
        finally:
            await portal.close()

    asyncio.run(story())


def test_pages_do_not_wait_for_a_source_that_hangs(tmp_path):
    played, goes_on, asked = PlayedSlurm(), threading.Event(), threading.Event()
    played.live = [live(1, "RUNNING", S=str(NOW - 600), N="n1")]

    async def story():
        portal = Portal(tmp_path, played.source(), source_history=1)
        try:
            await portal.core.follower.look()
            played.clock = 61
            answers = played.run

            def hang(command):
                asked.set()
                goes_on.wait(30)
                return answers(command)

            portal.core.follower._source._run = hang
            looking = asyncio.create_task(portal.core.follower.look())
            assert await asyncio.to_thread(asked.wait, 10)
            assert (await portal.ask("jobs.show", id=1)).state == "Running"
            assert "n1" in await portal.page(overview)
            assert not looking.done(), "the source still has not answered"
            goes_on.set()
            await looking
        finally:
            goes_on.set()
            await portal.close()

    asyncio.run(story())


@pytest.mark.skipif(RECORDED is None, reason="no output of a real sacct was recorded here")
def test_what_a_real_sacct_printed_is_understood():
    lines = (RECORDED / "sacct_P_allfields.txt").read_text().splitlines()[1:]
    jobs = {job.id: job for job in map(accounted_job, read_separated("\n".join(lines), "|"))}
    done = jobs[3]
    began = int(time.mktime((2026, 11, 15, 18, 18, 9, 0, 0, -1)))
    assert (done.state, done.user, done.uid, done.project, done.queue) == (
        JobState.TERMINATED, "alice", 1001, "science", "main",
    )  # fmt: skip
    assert (done.start, done.stop, done.places, done.choices[0].walltime) == (began, began + 33, (("vm", 2),), 300)
    never = jobs[6]
    assert (never.state, never.message, never.start, never.places, never.exit_code) == (
        JobState.ERROR, "Slurm: CANCELLED", 0, (), None,
    )  # fmt: skip
    assert jobs[27].message == "Slurm: OUT_OF_MEMORY"
    assert (jobs[24].array_id, jobs[24].array_index, jobs[24].exit_code) == (19, 1, 256)
    assert jobs[29].exit_code == 11, "a signal"


def test_the_name_of_a_job_forges_no_other_job():
    played = PlayedSlurm()
    line = "|".join(ended(99, "FAILED", NOW - 50, NOW - 40, user=("root", 0)).values())
    names = [f"x\n{line}", "a|b|c", "<script>", "'; DROP TABLE jobs; --", "\x1b[2J"]
    played.ended = [ended(1 + at, "COMPLETED", NOW - 90, NOW - 80, JobName=name) for at, name in enumerate(names)]
    played.live = [live(50 + at, "PENDING", name=name) for at, name in enumerate(names)]
    source = played.source()
    answer = source.ended((NOW - 300, 0), 1000)
    assert {job.id: job.name for job in answer.jobs} == dict(enumerate(["x", *names[1:]], 1))
    assert {job.id: job.name for job in source.live()} == dict(enumerate(["x", *names[1:]], 50))


def test_what_was_said_holds_for_a_minute_and_so_does_a_failure():
    played = PlayedSlurm()
    source = played.source()
    for _ in range(2):
        source.live()
        source.nodes(since=0)
        source.ended((NOW - 60, 0), 10)
    assert played.ran == ["squeue", "sinfo", "sacctmgr", "sacct"]
    played.clock, played.broken, played.ran = 61, {"squeue"}, []
    for _ in range(2):
        with pytest.raises(SourceAway, match="Slurm's commands does not answer: squeue: slurm_load_jobs error"):
            source.live()
    assert played.ran == ["squeue"]
    played.clock, played.broken = 122, set()
    assert source.live() == []


def test_ended_jobs_come_in_parts_and_windows():
    played = PlayedSlurm()
    played.ended = [ended(number, "COMPLETED", NOW - 90, NOW - 80) for number in range(1, 6)]
    source, cursor, seen, windows = played.source(), (NOW - 50_000, 0), [], 0
    complete = False
    while not complete:
        answer = source.ended(cursor, 2)
        seen += [job.id for job in answer.jobs]
        cursor, complete, windows = answer.cursor, answer.complete, windows + 1
    assert seen == [1, 2, 3, 4, 5] * 3, "this one tells all of them in each of three windows"
    assert windows == 9
    assert played.ran == ["sacct"] * 3, "parts of a window come from one answer"
    assert cursor == (NOW, 0)


def test_a_command_that_is_slow_is_ended(tmp_path, monkeypatch):
    program = tmp_path / "sacct"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm_commands, "_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(SourceAway, match=r"sacct gave no answer within 0\.2 s"):
        slurm_commands.SlurmCommands().jobs([1])
    assert time.monotonic() - began < 5


def test_a_command_gets_what_differs_from_our_environment():
    assert output(["sh", "-c", "echo $TZ $HOME"], environment={"TZ": "UTC0"}).startswith("UTC0 /")
    with pytest.raises(CommandFailed, match="ended with 3"):
        output(["sh", "-c", "exit 3"])


def test_without_commands_and_database_a_portal_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigRefused, match="SOURCE_DATABASE does not name the database of SLURM, and sinfo is not"):
        open_commands()


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("idle", ("Alive", False)), ("mixed-", ("Alive", False)), ("drained", ("Alive", True)),
        ("draining@", ("Alive", True)), ("down*", ("Dead", False)), ("drained*", ("Suspected", True)),
        ("idle~", ("Absent", False)), ("powering_down", ("Absent", False)), ("idle*", ("Suspected", False)),
    ],
)  # fmt: skip
def test_states_of_nodes_have_ours(word, state):
    assert slurm.node_state_of(word) == state


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10:00", 600), ("1:00:00", 3600), ("2-03:04:05", 183845), ("UNLIMITED", 0), ("NOT_SET", 0), ("", 0), ("-1", 0)],
)
def test_time_limits_are_seconds(text, seconds):
    assert slurm.limit_seconds(text) == seconds


@pytest.mark.soak
@pytest.mark.component("slurmd")
@pytest.mark.component("slurmctld")
@pytest.mark.component("munged")
@needs_cgroups
def test_a_real_slurm_is_read_by_its_commands(real_slurm: Slurm, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SLURM_CONF", str(real_slurm.folder / "slurm.conf"))
    submit = ["sbatch", "--parsable", "--output=/dev/null", "--time=1:30:00", "--uid=nobody"]
    began = int(time.time())
    runs = int(real_slurm.run(*submit, "--job-name=evil\n|name", "--ntasks=1", "--wrap", "sleep 300"))
    held = int(real_slurm.run(*submit, "--hold", "--wrap", "sleep 300"))
    waits = int(real_slurm.run(*submit, "--ntasks=2", "--wrap", "sleep 300"))
    several = int(real_slurm.run(*submit, "--array=1-3", "--ntasks=2", "--wrap", "sleep 300"))

    def seen():
        return {job.id: job for job in slurm_commands.SlurmCommands().live()}

    wait_until(lambda: seen()[runs].state is JobState.RUNNING and seen()[waits].message != "", "the jobs", 60)
    jobs = seen()
    assert set(jobs) == {runs, held, waits, several}
    assert (jobs[runs].user, jobs[runs].uid, jobs[runs].places, jobs[runs].name) == (
        "nobody", 65534, ((NODE, 1),), "evil",
    )  # fmt: skip
    assert began - 1 <= jobs[runs].submitted <= jobs[runs].start <= time.time()
    assert {job.choices[0].walltime for job in jobs.values()} == {5400}
    assert (jobs[held].state, jobs[held].message) == (JobState.HOLD, "Slurm: JobHeldUser")
    assert (jobs[waits].state, jobs[several].state) == (JobState.WAITING, JobState.WAITING)
    assert jobs[waits].message in {"Slurm: Resources", "Slurm: Priority"}
    assert jobs[several].array_id == several
    nodes = slurm_commands.SlurmCommands().nodes(since=0)
    assert [(node.name, node.cores, node.state, node.properties) for node in nodes.nodes] == [
        (NODE, 2, "Alive", {"memnode": 2000})
    ]  # fmt: skip
    assert [(queue.name, queue.active) for queue in nodes.queues] == [("main", True)]
    with pytest.raises(SourceAway, match="accounting storage"):
        slurm_commands.SlurmCommands().ended((began, 0), 10)
