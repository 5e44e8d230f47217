"""Programs of the site for nodes: those that check them (taktuk, fping, nmap, its own), suspend and wake them."""

import asyncio
import logging
import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.job.cluster import power
from oarlock.job.reactor.nodes import Ping
from oarlock.job.run.reports import IncomingReport, NodesWoken
from oarlock.node.attempt.site_script import UntrustedScript
from oarlock.server.effects import programs

log = logging.getLogger(__name__)

_SECONDS = 120.0
_NAME = re.compile(r"[A-Za-z0-9_]\S*")  # what starts otherwise could be taken for an option
_REPORT = re.compile(r"Nmap scan report for (\S+)")
_OPEN = re.compile(r"\d+/tcp\s+open\b")
_TAKTUK_STATUS = 'status="OARLOCK $host $line\\n"'  # a line of Perl that taktuk evaluates for each command that ended
_TAKTUK_LINE = re.compile(r"OARLOCK (\S+) 0")
_SENTINELLE_BAD = re.compile(r"(\S+)\s+:\s+BAD\b")


@dataclass(frozen=True, slots=True)
class NodeChecker:
    """A program that checks nodes: its command line before their names, and the parser of its output.

    `by_lines`: the names are not arguments but lines of its standard input.
    """

    command: tuple[str, ...]
    answered: Callable[[Sequence[str], str, str], set[str]]
    by_lines: bool = False

    async def silent(self, names: Sequence[str]) -> dict[str, str] | None:
        """Return the nodes that do not answer, with the reason; `None` if the program could not look at them."""
        checkable = [name for name in names if _NAME.fullmatch(name)]
        command = self.command if self.by_lines else (*self.command, *checkable)
        lines = checkable if self.by_lines else ()
        output = await programs.run_captured(command, seconds=_SECONDS, lines=lines)
        if output.status is None or output.status == -1:
            log.warning("nodes could not be checked", extra={"command": self.command[0], "why": output.err})
            return None
        answered = self.answered(checkable, output.out, output.err)
        return {name: f"{self.command[0]} says so" for name in names if name not in answered}


def configured_checker(config: Config) -> NodeChecker | None:
    """Return the program that the settings name, if they name one: the first, in OAR's order.

    The file that OAR ships names taktuk and its own sentinelle.pl. Where these are not installed they are passed over.
    """
    for checker in _checkers_by_ssh(config):
        try:
            programs.trusted_path(checker.command[0])
        except UntrustedScript as reason:
            log.warning("a program that checks nodes is passed over", extra={"why": str(reason)})
        else:
            return checker
    if config.pingchecker_fping_command:
        return NodeChecker((*config.pingchecker_fping_command, "-a"), parse_fping)
    if config.pingchecker_nmap_command:
        return NodeChecker(config.pingchecker_nmap_command, parse_nmap)
    if config.pingchecker_generic_command:
        return NodeChecker(config.pingchecker_generic_command, parse_generic)
    return None


def _checkers_by_ssh(config: Config) -> Iterator[NodeChecker]:
    # Taktuk waits for an ssh that hangs, whatever its own timeout is; and nobody could answer a question of ssh.
    limits = ("-o", f"ConnectTimeout={config.oar_ssh_connection_timeout}", "-o", "BatchMode=yes")
    connector = ("-c", shlex.join((*config.openssh_cmd, *limits)))
    if arguments := config.pingchecker_taktuk_arg_command:
        command = (*config.taktuk_cmd, *connector, "-o", _TAKTUK_STATUS, "-f", "-", *arguments)
        yield NodeChecker(command, parse_taktuk, by_lines=True)
    if script := config.pingchecker_sentinelle_script_command:
        yield NodeChecker((*script, *connector, "-f", "-"), parse_sentinelle, by_lines=True)


def parse_taktuk(_: Sequence[str], out: str, __: str) -> set[str]:
    """Parse the lines that taktuk prints by our template: a node answers if the command ended with 0 there."""
    return {match[1] for line in out.splitlines() if (match := _TAKTUK_LINE.fullmatch(line))}


def parse_sentinelle(names: Sequence[str], out: str, _: str) -> set[str]:
    """Parse the report of OAR's sentinelle.pl: bad nodes have a line `node : BAD …`."""
    return set(names) - {match[1] for line in out.splitlines() if (match := _SENTINELLE_BAD.match(line))}


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
        self._falling_asleep: set[str] = set()  # their window has not come yet; a job that wants them keeps them up

    async def sleep(self, nodes: Sequence[str]) -> None:
        """Run the sleep command for nodes."""
        self._falling_asleep.update(nodes)
        async for window in self._windows(nodes):
            going = [name for name in window if name in self._falling_asleep]
            self._falling_asleep.difference_update(going)
            if going:
                await self._run(self._config.scheduler_node_manager_sleep_cmd, going)

    async def wake(self, nodes: Sequence[str], ping: Ping) -> None:
        """Wake nodes and wait for them; those that are being woken already are left out."""
        new = [name for name in nodes if name not in self._waking]
        if not new:
            return
        self._waking.update(new)
        self._falling_asleep.difference_update(new)
        try:
            async with asyncio.TaskGroup() as tasks:
                async for window in self._windows(new):
                    await self._run(self._config.scheduler_node_manager_wake_up_cmd, window)
                    # Each window has its own time: the last one begins long after the first was woken.
                    tasks.create_task(self._await(window, power.wakeup_timeout(self._config, len(new)), ping))
        finally:
            self._waking.difference_update(new)

    async def _windows(self, nodes: Sequence[str]) -> AsyncIterator[Sequence[str]]:
        """Yield as many nodes at a time as the site's power lines stand, with its pause in between."""
        size = self._config.scheduler_node_manager_window_size or len(nodes)
        for begin in range(0, len(nodes), size):
            if begin:
                await asyncio.sleep(self._config.scheduler_node_manager_window_time)
            yield nodes[begin : begin + size]

    async def _run(self, command: Sequence[str], nodes: Sequence[str]) -> None:
        result = await programs.run(command, seconds=self._config.scheduler_node_manager_timeout, lines=nodes)
        write_log = log.info if result.status == 0 else log.warning
        write_log("node manager ran", extra={"command": command[0], "nodes": nodes, "says": result.says})

    async def _await(self, nodes: Sequence[str], seconds: int, ping: Ping) -> None:
        """Poll nodes; report each as soon as it answers, and the others at the timeout."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        left = list(nodes)
        while left:
            silent = await ping(left)
            over = loop.time() >= end
            if len(silent) < len(left) or over:
                self._queue_report(NodesWoken(frozenset(left) - silent.keys(), silent if over else {}))
            left = [] if over else list(silent)
            if left:
                await asyncio.sleep(min(_LOOK_SECONDS, max(0.0, end - loop.time())))
