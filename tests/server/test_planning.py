"""The planning process: forked or started, it answers; one that dies is replaced."""

import asyncio

import pytest

from oarlock.config import Config
from oarlock.server import planner
from oarlock.server.planning import PlannerGone, Planning, spawned
from oarlock.store.opening import open_database

NOW = 1_000_000


@pytest.mark.parametrize("begin", [planner.forked, spawned])
def test_a_helper_plans_until_it_is_ended(sqlite_path, begin):
    helper = begin()

    async def story(database):
        planning = Planning(database, Config(), helper)
        decisions = [await planning.whole(NOW), await planning.whole(NOW + 1)]
        assert [(one.now, one.whole) for one in decisions] == [(NOW, True), (NOW + 1, True)]
        await planning.close()
        await planning.close()

    with open_database(sqlite_path) as database:
        asyncio.run(story(database))
    assert helper.line.fileno() == -1


@pytest.mark.parametrize("begin", [planner.forked, spawned])
def test_a_helper_ends_when_its_server_does(begin):
    helper = begin()
    helper.line.close()
    helper.wait()


@pytest.mark.parametrize("begin", [planner.forked, spawned])
def test_a_helper_that_dies_is_replaced_by_the_next_call(sqlite_path, begin):
    helper = begin()

    async def story(database):
        planning = Planning(database, Config(), helper)
        helper.kill()
        with pytest.raises(PlannerGone):
            await planning.whole(NOW)
        assert (await planning.whole(NOW)).whole
        await planning.close()

    with open_database(sqlite_path) as database:
        asyncio.run(story(database))
