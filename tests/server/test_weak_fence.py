"""What the server says of nodes that cannot limit everything: once a node, and only where it matters."""

import logging
from dataclasses import replace

from oarlock.node.wire.messages import EXITED, CgroupLimits
from tests.bed import needs_root, open_node, run_async

pytestmark = needs_root


def _warned(caplog):
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


@run_async
async def test_a_node_that_denies_no_devices_is_warned_of_once(workspace, two_users, caplog):
    async with open_node(workspace, two_users[0]) as post:
        post.node._hello = replace(await post.node.hello(), missing=("devices",))
        await post.run(1, "true")
        assert _warned(caplog) == []
        for job in (2, 3):
            report = await post.run(
                job, "echo $CUDA_VISIBLE_DEVICES", gpus=(1,), limits=CgroupLimits(deny_devices=("/dev/x",))
            )
            assert report.outcome == EXITED
        assert _warned(caplog) == ["devices cannot be denied: jobs can open GPUs of others"]
