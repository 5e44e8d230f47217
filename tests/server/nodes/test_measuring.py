"""How a node measures, changed while it runs: a real node program behind a pipe."""

import asyncio

import pytest

from oarlock.config import Config
from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.node.measure.wire import ReceivedSample, SampleDecoder
from oarlock.server.nodes.fleet import Fleet, InstanceIdentity
from tests.bed import needs_root, open_node, run_async

pytestmark = needs_root


@run_async
async def test_a_node_measures_at_once_and_more_when_it_is_told_to(workspace, two_users):
    """It would take a sample each hour; a change has it take them at once, with what it did not measure before."""
    async with open_node(workspace, two_users[0], sample_period=3600) as post:
        samples: asyncio.Queue[ReceivedSample] = asyncio.Queue()
        decoder = SampleDecoder()
        post.node.on_samples = lambda data: samples.put_nowait(decoder.decode(data))
        with pytest.raises(NodeRefused, match="say for how long"):
            await post.node.measure({"period": 0.1})
        with pytest.raises(NodeRefused, match="there is no source `rapel`"):
            await post.node.measure({"sources": ["rapel"], "seconds": 60})
        await post.node.launch(post.launch(5, "sleep 600"))
        await post.started(5)
        await post.node.measure({"period": 0.1, "sources": ["cores", "-network"]})
        async with asyncio.timeout(30):
            while 5 not in (sample := await samples.get()).jobs:
                pass
            assert any(name.startswith("core_cpu_seconds_total") for name in sample.node)
            assert not any(name.startswith("network_") for name in sample.node)
            await post.node.kill(5, 1)
            await post.report(5)
            while (sample := await samples.get()).jobs:
                pass


@run_async
async def test_if_one_node_cannot_be_reached_none_is_changed(workspace):
    """One of the nodes of this fleet is this machine, the other one does not exist."""
    changed = []
    config = Config(openssh_cmd=("false",), sample_period=0)
    ignore = lambda *_: None  # noqa: E731
    fleet = Fleet(config, workspace, InstanceIdentity("x", b"key"), ignore, ignore, ignore, ignore)
    here = fleet.node("localhost")
    asked = here._ask

    async def note(verb: str, *words: object, **more: object) -> object:
        changed.append(verb)
        return await asked(verb, *words, **more)

    here._ask = note
    try:
        with pytest.raises(NodeUnreachable, match="nowhere"):
            await fleet.measure(["localhost", "nowhere"], {"period": 1, "seconds": 5})
        assert set(changed) <= {"ping"}
        await fleet.measure(["localhost"], {"period": 1, "seconds": 5})
        assert changed[-1] == "measure"
    finally:
        await fleet.close()
