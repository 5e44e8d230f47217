"""The site's commands for sleeping and waking, with real programs and pretended answers of nodes."""

import asyncio
import os

import pytest

from oarlock.config import Config
from oarlock.job.cluster.power import wakeup_timeout
from oarlock.job.run.reports import NodesWoken
from oarlock.server.effects.node_commands import PowerCommands
from oarlock.settings.kinds import BY_COUNT
from tests.bed import run_async, script


def _power(site, answers, **settings):
    """A site whose commands write down what they read; `answers` are the silent nodes of each look."""
    heard, looks = [], iter(answers)

    async def ask(names):
        return {name: "asleep" for name in next(looks) if name in names}

    wake = script(site / "wake", f"cat >> {site}/woken")
    sleep = script(site / "sleep", f"cat >> {site}/slept")
    config = Config(scheduler_node_manager_wake_up_cmd=(wake,), scheduler_node_manager_sleep_cmd=(sleep,), **settings)
    power = PowerCommands(config, heard.append)
    return power, heard, lambda names: power.wake(names, ask)


@pytest.mark.manual(175)
@run_async
async def test_the_names_come_on_standard_input_one_a_line(site):
    power, heard, wake = _power(site, [[]])
    await power.sleep(["n1", "n2"])
    await wake(["n2", "n3"])
    assert (site / "slept").read_text() == "n1\nn2\n"
    assert (site / "woken").read_text() == "n2\nn3\n"
    assert heard == [NodesWoken(frozenset({"n2", "n3"}))]


@run_async
async def test_nodes_that_do_not_answer_in_time_are_told_of(site):
    _, heard, wake = _power(site, [["n1"]], scheduler_node_manager_wakeup_time=0)
    await wake(["n1", "n2"])
    assert heard == [NodesWoken(frozenset({"n2"}), {"n1": "asleep"})]


@run_async
async def test_a_node_that_is_being_woken_is_not_woken_again(site):
    _, heard, wake = _power(site, [[], []])
    await asyncio.gather(wake(["n1"]), wake(["n1"]))
    assert (site / "woken").read_text() == "n1\n"
    await wake(["n1"])
    assert (site / "woken").read_text() == "n1\nn1\n"
    assert heard == [NodesWoken(frozenset({"n1"}))] * 2


@pytest.mark.manual(175)
@run_async
async def test_nodes_are_woken_and_put_to_sleep_window_by_window(site):
    power, heard, wake = _power(site, [[], []], scheduler_node_manager_window_size=2)
    (site / "sleep").write_text(f"#!/bin/sh\npaste -sd, >> {site}/slept\n")
    (site / "wake").write_text(f"#!/bin/sh\npaste -sd, >> {site}/woken\n")
    await power.sleep(["n1", "n2", "n3", "n4", "n5"])
    assert (site / "slept").read_text() == "n1,n2\nn3,n4\nn5\n"
    await wake(["n1", "n2", "n3"])
    assert (site / "woken").read_text() == "n1,n2\nn3\n"
    assert heard == [NodesWoken(frozenset({"n1", "n2"})), NodesWoken(frozenset({"n3"}))]


@run_async
async def test_a_node_wanted_before_its_window_comes_is_not_put_to_sleep(site):
    power, _, wake = _power(site, [[]], scheduler_node_manager_window_size=1)
    os.mkfifo(site / "gate")
    script(site / "sleep", f"cat >> {site}/slept\ncat {site}/gate")
    sleeping = asyncio.create_task(power.sleep(["n1", "n2", "n3"]))
    gate = await asyncio.to_thread((site / "gate").open, "wb")  # open as soon as the command of n1 reads it
    script(site / "sleep", f"cat >> {site}/slept")
    await wake(["n2"])
    gate.close()
    await sleeping
    assert (site / "slept").read_text() == "n1\nn3\n"


@run_async
async def test_a_command_that_takes_too_long_is_ended(site, caplog):
    power, _, _ = _power(site, [[]], scheduler_node_manager_timeout=1)
    script(site / "sleep", "exec sleep 600")
    await power.sleep(["n1"])
    assert [record.says for record in caplog.records] == [f"{site / 'sleep'} did not end within 1 s"]


def test_more_nodes_may_take_longer_to_wake():
    config = Config(scheduler_node_manager_wakeup_timeout=BY_COUNT.read("1:500 11:1000 21:2000"))
    assert [wakeup_timeout(config, count) for count in (1, 10, 11, 20, 21, 900)] == [500, 500, 1000, 1000, 2000, 2000]
    assert wakeup_timeout(Config(scheduler_node_manager_wakeup_time=7), 3) == 7


@run_async
async def test_node_managers_that_another_user_owns_are_not_run(site, caplog):
    power, _, wake = _power(site, [[]])
    for name in ("wake", "sleep"):
        os.chown(site / name, 4242, 4242)
    await power.sleep(["n1"])
    await wake(["n1"])
    assert not (site / "slept").exists()
    assert not (site / "woken").exists()
    advice = [record.says.rpartition("`")[0].rpartition("`")[2] for record in caplog.records]
    assert advice == [f"chown root {site / name}" for name in ("sleep", "wake")]
