"""The planning process: forked or started, it answers; one that dies is replaced."""

import asyncio
import time

import pytest
from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.reactor.passes import LEAST_DEPTH, MOST_DEPTH, PassSchedule
from oarlock.job.reactor.steps import Moment, QuickPass
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState, move
from oarlock.server.core import ServerCore
from oarlock.server.planning.client import PlannerGone, PlanningClient, fork, spawn
from oarlock.server.process.clock import RealClock
from oarlock.server.serve import run_reactor
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs, moves, new_jobs
from tests.clusters import add_nodes
from tests.store.cluster import add_job

NOW = 1_000_000


@pytest.mark.parametrize("begin", [fork, spawn])
def test_a_helper_plans_until_it_is_ended(sqlite_path, begin):
    helper = begin()

    async def story(database):
        planning = PlanningClient(database, Config(), helper)
        decisions = [await planning.whole(NOW), await planning.whole(NOW + 1)]
        assert [(one.now, one.whole) for one in decisions] == [(NOW, True), (NOW + 1, True)]
        await planning.close()
        await planning.close()

    with open_database(sqlite_path) as database:
        asyncio.run(story(database))
    assert helper.line.fileno() == -1


@pytest.mark.parametrize("begin", [fork, spawn])
def test_a_helper_ends_when_its_server_does(begin):
    helper = begin()
    helper.line.close()
    helper.wait()


@pytest.mark.parametrize("begin", [fork, spawn])
def test_a_helper_that_dies_is_replaced_by_the_next_call(sqlite_path, begin):
    helper = begin()

    async def story(database):
        planning = PlanningClient(database, Config(), helper)
        helper.kill()
        with pytest.raises(PlannerGone):
            await planning.whole(NOW)
        assert (await planning.whole(NOW)).whole
        await planning.close()

    with open_database(sqlite_path) as database:
        asyncio.run(story(database))


def test_a_whole_pass_that_is_still_to_come_ends_with_the_scheduler(sqlite_path, tmp_path):
    waiting = Job(id=0, state=JobState.WAITING, user="ada", queue="default")
    new = [new_jobs.NewJob(waiting, requests.parse(["/resource_id=1,walltime=1"]))] * (2 * LEAST_DEPTH)

    async def story(database):
        core = ServerCore(tmp_path, Config(), database, RealClock(), b"key")
        passes = core.reactor.passes
        passes.whole_at = core.clock.steady() + 60
        running = asyncio.create_task(run_reactor(core, {}))
        core.wake_scheduler()
        async with asyncio.timeout(20):
            while not passes.whole_wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        await core.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with open_database(sqlite_path) as database:
        database.write(lambda tx: new_jobs.add(tx, new))
        asyncio.run(story(database))


def test_changed_quotas_hold_from_the_next_pass_on(sqlite_path, tmp_path):
    file = tmp_path / "quotas.json"

    def fill(tx):
        add_nodes(tx, ["node1"])
        for _ in range(2):
            add_job(tx, "/core=1,walltime=1")

    async def story(database):
        planning = PlanningClient(database, Config(quotas=True, quotas_conf_file=file))
        started = []
        for text in (
            '{"quotas": {"*,*,*,/": 1}}',
            '{"quotas": {"*,*,*,/": 20}}',
            "nonsense",
            '{"quotas": {"*,*,*,*": 0}}',
        ):
            file.write_text(text)
            quick, _ = await planning.quick(NOW, QuickPass(MOST_DEPTH, arrays=True))
            started.append((len(quick.starts), len((await planning.whole(NOW)).starts)))
        assert started == [(1, 1), (2, 2), (2, 2), (0, 0)]
        await planning.close()

    file.write_text('{"quotas": {}}')
    with open_database(sqlite_path) as database:
        database.write(fill)
        asyncio.run(story(database))


def test_a_quick_pass_looks_further_while_everybody_starts(sqlite_path):
    free = LEAST_DEPTH + 36

    def fill(tx):
        resources.add(tx, [{"network_address": f"n{n}"} for n in range(free)], at=NOW)
        new_jobs.add(tx, [new("/resource_id=1,walltime=1")] * (8 * LEAST_DEPTH))

    async def story(database):
        planning, passes = PlanningClient(database, Config()), PassSchedule()
        passes.whole_at = 1000.0
        decisions, again = [], []
        for second in range(4):
            at = Moment(NOW, 10.0 * second)
            passes.request()
            step = passes.next(at)
            decisions.append((await planning.quick(NOW, step))[0])
            passes.quick_ended(step, decisions[-1], 0.0, at)
            again.append(passes.next(at) is not None)
            passes.quick_failed(at)
        assert [len(one.starts) for one in decisions] == [LEAST_DEPTH, free, free, free]
        assert again == [True, False, False, False]
        assert [one.left // LEAST_DEPTH for one in decisions] == [7, 6, 4, 4]

    with open_database(sqlite_path) as database:
        database.write(fill)
        asyncio.run(story(database))


def crowd(database):
    """Let more jobs wait for both resources than a quick pass looks at, and behind them one that fits on one."""

    def fill(tx):
        resources.add(tx, [{"network_address": "n1"}, {"network_address": "n2"}], at=NOW)
        [first] = new_jobs.add(tx, [new("/resource_id=1,walltime=10")])
        held = replace(first, start=int(time.time()), assigned=first.id)
        jobs.assign(tx, {held.assigned: [1]})
        for state in (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING):
            moved = move(held, state, at=held.start, why="it runs")
            moves.record(tx, [moved])
            held = moved.job
        new_jobs.add(tx, [new("/resource_id=2,walltime=10")] * (2 * LEAST_DEPTH))
        return new_jobs.add(tx, [new("/resource_id=1,walltime=1")])[0].id

    return database.write(fill)


def new(asked):
    waiting = Job(id=0, state=JobState.WAITING, user="ada", queue="default")
    return new_jobs.NewJob(waiting, requests.parse([asked]))


@pytest.mark.parametrize("begin", [fork, spawn])
def test_a_helper_says_who_starts_without_everybodys_dates(sqlite_path, begin):
    helper = begin()

    async def story(database, small):
        planning, now = PlanningClient(database, Config(), helper), int(time.time())
        for _ in range(2):
            starts = await planning.whole(now, dates=False)
            assert ([one.job_id for one in starts.starts], starts.whole) == ([small], False)
            whole = await planning.whole(now)
            assert ([one.job_id for one in whole.starts], whole.whole, whole.gone) == ([small], True, ())
            assert len(whole.predictions) == 2 * LEAST_DEPTH
        await planning.close()

    with open_database(sqlite_path) as database:
        asyncio.run(story(database, crowd(database)))


def test_who_fits_behind_a_crowd_starts_before_all_dates_are_made(sqlite_path, tmp_path):
    async def story(database, small):
        core = ServerCore(tmp_path, Config(), database, RealClock(), b"key")
        decisions = asyncio.Queue()
        core.apply = decisions.put  # there are no nodes to start anything on
        passes = core.reactor.passes
        passes.dates_at = core.clock.steady() + 1000
        running = asyncio.create_task(run_reactor(core, {}))
        core.wake_scheduler()
        async with asyncio.timeout(50):
            quick, look = await decisions.get(), await decisions.get()
            passes.dates_at = passes.whole_at = 0
            while not (dates := await decisions.get()).whole:
                pass
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await core.close()
        assert (quick.left, quick.starts) == (LEAST_DEPTH + 1, ())
        assert ([one.job_id for one in look.starts], look.left, look.whole) == ([small], 0, False)
        assert ([one.job_id for one in dates.starts], len(dates.predictions)) == ([small], 2 * LEAST_DEPTH)

    with open_database(sqlite_path) as database:
        asyncio.run(story(database, crowd(database)))


def array(user, asked, size):
    """The members of an array, to be stored."""
    waiting = {"id": 0, "state": JobState.WAITING, "user": user, "queue": "default"}
    return [new_jobs.NewJob(Job(array_index=n, **waiting), requests.parse([asked])) for n in range(1, size + 1)]


def long_queue(database):
    """Let 2,000 members of an array wait for a resource that a job has for long."""

    def fill(tx):
        resources.add(tx, [{"network_address": "n1"}, {"network_address": "n2"}], at=NOW)
        new_jobs.add(tx, array("ada", "{network_address = 'n1'}/resource_id=1,walltime=1", 2000))
        [first] = new_jobs.add(tx, array("ada", "/resource_id=1,walltime=10", 1))
        held = replace(first, start=int(time.time()), assigned=first.id)
        jobs.assign(tx, {held.assigned: [1]})
        for state in (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING):
            moved = move(held, state, at=held.start, why="it runs")
            moves.record(tx, [moved])
            held = moved.job

    database.write(fill)


def submit(database):
    """Let a job of somebody else wait that fits now."""
    return database.write(lambda tx: new_jobs.add(tx, array("bob", "/resource_id=1,walltime=1", 1)))[0].id


def test_quick_passes_see_another_users_job_behind_a_long_array(sqlite_path, tmp_path):
    async def story(database):
        core = ServerCore(tmp_path, Config(), database, RealClock(), b"key")
        decisions = asyncio.Queue()
        core.apply = decisions.put  # there are no nodes to start anything on
        core.reactor.passes.whole_at = core.clock.steady() + 1000  # whoever starts was seen by a quick pass
        running = asyncio.create_task(run_reactor(core, {}))
        core.wake_scheduler()
        async with asyncio.timeout(50):
            assert (await decisions.get()).starts == ()
            small = submit(database)
            core.wake_scheduler()  # if this pass does not look behind the first jobs, another one follows by itself
            while not (starts := (await decisions.get()).starts):
                pass
        assert [one.job_id for one in starts] == [small]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await core.close()

    with open_database(sqlite_path) as database:
        long_queue(database)
        asyncio.run(story(database))


def test_who_comes_during_a_whole_pass_is_looked_at_by_another(sqlite_path, tmp_path):
    async def story(database):
        core = ServerCore(tmp_path, Config(), database, RealClock(), b"key")
        decisions = asyncio.Queue()
        core.apply = decisions.put  # there are no nodes to start anything on
        running = asyncio.create_task(run_reactor(core, {}))
        core.wake_scheduler()
        async with asyncio.timeout(50):
            await decisions.get()
            submit(database)
            core.wake_scheduler()  # while the planning process is being started for the first whole pass
            for _ in range(2):
                while (await decisions.get()).left:
                    pass
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await core.close()

    with open_database(sqlite_path) as database:
        long_queue(database)
        asyncio.run(story(database))
