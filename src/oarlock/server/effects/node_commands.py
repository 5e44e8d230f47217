"""Programs of the site for nodes: those that check them (fping, nmap, its own), suspend them, and wake them."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.job.reactor.nodes import Ping
from oarlock.job.run.reports import IncomingReport, NodesWoken
from oarlock.server.effects import programs

log = logging.getLogger(__name__)

_SECONDS = 120.0
_NAME = re.compile(r"[A-Za-z0-9_]\S*")  # what starts otherwise could be taken for an option
_REPORT = re.compile(r"Nmap scan report for (\S+)")
_OPEN = re.compile(r"\d+/tcp\s+open\b")


@dataclass(frozen=True, slots=True)
class NodeChecker:
    """A program that checks nodes: its command line before their names, and the parser of its output."""

    command: tuple[str, ...]
    answered: Callable[[Sequence[str], str, str], set[str]]

    async def silent(self, names: Sequence[str]) -> dict[str, str] | None:
        """Return the nodes that do not answer, with the reason; `None` if the program could not look at them."""
        checkable = [name for name in names if _NAME.fullmatch(name)]
        output = await programs.run_captured([*self.command, *checkable], seconds=_SECONDS)
        if output.status is None or output.status == -1:
            log.warning("nodes could not be checked", extra={"command": self.command[0], "why": output.err})
            return None
        answered = self.answered(checkable, output.out, output.err)
        return {name: f"{self.command[0]} says so" for name in names if name not in answered}


def configured_checker(config: Config) -> NodeChecker | None:
    """Return the program that the settings name, if they name one; the first of fping, nmap and the site's own."""
    if config.pingchecker_fping_command:
        return NodeChecker((*config.pingchecker_fping_command, "-a"), parse_fping)
    if config.pingchecker_nmap_command:
        return NodeChecker(config.pingchecker_nmap_command, parse_nmap)
    if config.pingchecker_generic_command:
        return NodeChecker(config.pingchecker_generic_command, parse_generic)
    return None


def parse_fping(_: Sequence[str], out: str, __: str) -> set[str]:
    """Parse the output of `fping -a`: the names of the nodes that answer, one a line."""
    return {line.split()[0] for line in out.splitlines() if line.strip()}


def parse_nmap(_: Sequence[str], out: str, __: str) -> set[str]:
    """Parse nmap's report: a node answers if one of its scanned ports is open."""
    answered, node = set(), ""
    for line in out.splitlines():
        if about := _REPORT.match(line):
            node = about[1]
        elif _OPEN.match(line):
            answered.add(node)
    return answered


def parse_generic(names: Sequence[str], _: str, err: str) -> set[str]:
    """Parse the output of a site's own program: each node named on its standard error does not answer."""
    return set(names) - {line.strip() for line in err.splitlines()}


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
