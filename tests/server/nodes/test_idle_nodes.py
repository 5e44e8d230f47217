"""Nodes without jobs stay connected to be measured, as long as nobody else needs their connection."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

import pytest

from oarlock.config import Config
from oarlock.node.measure.wire import SampleDecoder
from oarlock.node.wire.messages import NodeSettings
from oarlock.server.nodes import ConnectionSlots, NodeClient, Timeouts, local
from oarlock.server.nodes.fleet import Fleet, InstanceIdentity, has_meter
from tests.bed import PYTHON, needs_root, open_node, remove_roots, run_async
from tests.server.collecting.test_collecting import until

pytestmark = needs_root

IDLE = Timeouts(connect=15.0, first_retry=0.1, ping=0.05, idle=0.1)


@contextlib.asynccontextmanager
async def nodes(workspace, slots: ConnectionSlots, count: int) -> AsyncIterator[list[NodeClient]]:
    """Nodes of this machine that share connections, and would be measured when idle."""
    names = [f"t{secrets.token_hex(4)}" for _ in range(count)]
    made = []
    for name in names:
        settings = NodeSettings(name, str(workspace / name / "spool"), str(workspace / name / "run"), sample_period=1)
        made.append(NodeClient(settings, local(PYTHON), lambda _event: None, slots, IDLE))
        made[-1].is_measured_idle = True
    try:
        yield made
    finally:
        for node in made:
            await node.close()
        await asyncio.to_thread(remove_roots, *names)


def connected(made: list[NodeClient]) -> list[bool]:
    return [node._channel is not None for node in made]


@run_async
async def test_idle_nodes_stay_connected_while_a_quarter_is_free(workspace):
    slots = ConnectionSlots(open_=4)
    async with nodes(workspace, slots, 4) as made:
        await asyncio.gather(*(node.stay() for node in made[:3]))
        begin = time.monotonic()
        await until(lambda: time.monotonic() - begin > 10 * IDLE.idle)
        assert connected(made) == [True, True, True, False]
        await made[3].stay()
        assert connected(made)[3]
        # Now none is free: idle ones are left until a quarter is.
        await until(lambda: sum(connected(made)) == 3)
        begin = time.monotonic()
        await until(lambda: time.monotonic() - begin > 10 * IDLE.idle)
        assert sum(connected(made)) == 3


@run_async
async def test_whoever_needs_a_connection_gets_that_of_an_idle_node(workspace):
    slots = ConnectionSlots(open_=2)
    async with nodes(workspace, slots, 3) as made:
        patient = Timeouts(connect=15.0, ping=600.0, idle=600.0)  # nobody looks again soon
        for node in made:
            node._timeouts = patient
        await made[0].stay()
        await made[1].hello()
        assert connected(made) == [True, True, False]
        async with asyncio.timeout(20):
            await made[2].hello()
        assert connected(made) == [False, True, True]


@run_async
async def test_a_job_on_an_idle_node_is_measured_as_often_as_any(workspace, two_users):
    """Without jobs a sample is taken each minute."""
    async with open_node(workspace, two_users[0], sample_period=0.2) as post:
        decoder, samples = SampleDecoder(), []
        post.node.on_samples = lambda data: samples.append(decoder.decode(data))
        await until(lambda: samples)
        await post.node.launch(post.launch(5, "sleep 600"))
        await until(lambda: len([sample for sample in samples if 5 in sample.jobs]) >= 3)
        await post.node.kill(5, 1)
        await post.report(5)


@pytest.mark.parametrize(
    ("settings", "gained"),
    [
        ({}, False),
        ({"sample_sources": ("rapl",)}, True),
        ({"sample_sources": ("-rapl", "perf")}, False),
        ({"energy_busy_watts": 300}, True),
        ({"energy_busy_watts": 300, "sample_period": 0}, False),
    ],
)
def test_without_a_meter_nobody_stays_connected(settings, gained):
    assert has_meter(Config(**settings)) is gained


@run_async
async def test_a_node_whose_controller_is_read_is_left_when_idle(workspace):
    file = workspace / "controllers"
    file.write_text("n1 https://b u p\n")
    file.chmod(0o600)
    config = Config(energy_busy_watts=300, redfish_file=file)
    ignore = lambda *_: None  # noqa: E731
    fleet = Fleet(config, workspace, InstanceIdentity("x", b"key"), ignore, ignore, ignore, ignore)
    assert [fleet.node(name).is_measured_idle for name in ("n1", "n2")] == [False, True]
