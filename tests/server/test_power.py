"""The site's commands for sleeping and waking, with real programs and pretended answers of nodes."""

import asyncio
import os

from oarlock.config import Config
from oarlock.job.run.reports import NodesWoken
from oarlock.server.effects.node_commands import PowerCommands
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
