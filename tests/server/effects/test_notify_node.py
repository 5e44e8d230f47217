"""Notices through the channel: a node runs them beside its jobs, and not too many at once."""

import asyncio

import pytest

from oarlock.model.errors import NodeRefused
from oarlock.node.attempt.user.notice import Notice
from oarlock.node.wire.messages import EXITED, NOT_NOW
from tests.bed import needs_root, open_node, run_async, script

pytestmark = needs_root


@run_async
async def test_a_node_tells_a_user_and_then_runs_a_job_with_the_same_supervisor(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        program = script(post.home / "tell", f'echo "$(id -un) $*" > {post.home}/told')
        assert await post.node.notify(Notice(7, two_users[0], program, ("7", "fit", "END", "done"))) == ""
        assert (post.home / "told").read_text() == f"{two_users[0]} 7 fit END done\n"
        assert (await post.run(1, "true")).outcome == EXITED
        assert "No such file" in await post.node.notify(Notice(7, two_users[0], "/nowhere", ()))


@run_async
async def test_a_ninth_program_at_the_same_time_is_refused(workspace, two_users):
    async with open_node(workspace, two_users[0]) as post:
        (post.home / "gate").mkdir()
        waits = script(post.home / "wait", f"while [ -e {post.home}/gate ]; do sleep 0.02; done")
        under_way = [asyncio.create_task(post.node.notify(Notice(n, two_users[0], waits, ()))) for n in range(8)]
        await post.status()  # requests are taken in their order: the eight are under way
        with pytest.raises(NodeRefused) as refusal:
            await post.node.notify(Notice(9, two_users[0], waits, ()))
        assert refusal.value.word == NOT_NOW
        (post.home / "gate").rmdir()
        assert await asyncio.gather(*under_way) == [""] * 8
