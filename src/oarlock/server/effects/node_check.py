"""Checking nodes with a program of the site instead of the server's own connections: fping, nmap, or its own."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oarlock.config import Config
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
