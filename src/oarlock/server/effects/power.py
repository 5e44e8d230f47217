"""Power: runs the site's commands that suspend and wake nodes, and waits for woken nodes."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from oarlock.config import Config
from oarlock.job.reactor.nodes import Ping
from oarlock.job.run.reports import IncomingReport, NodesWoken
from oarlock.server.effects import programs

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0  # between two looks at nodes that were woken


class PowerCommands:
    """Wakes nodes and puts them to sleep. Which are being woken is kept in memory only."""

    def __init__(self, config: Config, queue_report: Callable[[IncomingReport], None]) -> None:
        self._config, self._queue_report = config, queue_report
        self._waking: set[str] = set()

    async def sleep(self, nodes: Sequence[str]) -> None:
        """Run the sleep command for nodes."""
        await self._run(self._config.scheduler_node_manager_sleep_cmd, nodes)

    async def wake(self, nodes: Sequence[str], ping: Ping) -> None:
        """Wake nodes and wait for them; those that are being woken already are left out."""
        new = [name for name in nodes if name not in self._waking]
        if not new:
            return
        self._waking.update(new)
        try:
            await self._run(self._config.scheduler_node_manager_wake_up_cmd, new)
            await self._await(new, ping)
        finally:
            self._waking.difference_update(new)

    async def _run(self, command: Sequence[str], nodes: Sequence[str]) -> None:
        result = await programs.run(command, seconds=self._config.server_prologue_epilogue_timeout, lines=nodes)
        write_log = log.info if result.status == 0 else log.warning
        write_log("node manager ran", extra={"command": command[0], "nodes": nodes, "says": result.says})

    async def _await(self, nodes: Sequence[str], ping: Ping) -> None:
        """Poll nodes; report each as soon as it answers, and the others at the timeout."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._config.scheduler_node_manager_wakeup_time
        left = list(nodes)
        while left:
            silent = await ping(left)
            over = loop.time() >= end
            if len(silent) < len(left) or over:
                self._queue_report(NodesWoken(frozenset(left) - silent.keys(), silent if over else {}))
            left = [] if over else list(silent)
            if left:
                await asyncio.sleep(min(_LOOK_SECONDS, max(0.0, end - loop.time())))
