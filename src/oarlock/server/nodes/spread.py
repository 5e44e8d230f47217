"""A job on several nodes: a place on each of the others first, the command on the first, then everything given back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from oarlock.model.errors import OarlockError
from oarlock.node.wire.messages import OTHER, Launch
from oarlock.server.nodes.node import NodeClient


class Spread:
    """The other nodes of one attempt."""

    def __init__(self, others: Sequence[tuple[NodeClient, Launch]]) -> None:
        self._others = [(node, launch._replace(role=OTHER, command="")) for node, launch in others]

    async def prepare(self) -> dict[str, OarlockError]:
        """Ask for a place on each node at once; give those that refused or did not answer, by name.

        `Started` of each follows as an event. If any failed, `clean` gives the others back.
        """
        return await self._each(lambda node, launch: node.launch(launch))

    async def clean(self) -> dict[str, OarlockError]:
        """Release the places; `Exited` of each follows, with what was used there."""
        return await self._each(lambda node, launch: node.end(launch.job, launch.attempt))

    async def suspend(self) -> dict[str, OarlockError]:
        """Stop the job on each of them."""
        return await self._each(lambda node, launch: node.suspend(launch.job, launch.attempt))

    async def resume(self) -> dict[str, OarlockError]:
        """Let it go on."""
        return await self._each(lambda node, launch: node.resume(launch.job, launch.attempt))

    async def _each(self, verb: Callable[[NodeClient, Launch], Awaitable[None]]) -> dict[str, OarlockError]:
        answers = await asyncio.gather(*(verb(node, launch) for node, launch in self._others), return_exceptions=True)
        failed: dict[str, OarlockError] = {}
        for (node, _), answer in zip(self._others, answers, strict=True):
            if isinstance(answer, OarlockError):
                failed[node.name] = answer
            elif isinstance(answer, BaseException):
                raise answer
        return failed
