"""The transcript of a day of commands: read from its page, and replayed on a live instance."""

import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.cli import cluster, jobs
from oarlock.cli.commands import module_name
from oarlock.model.job import JobState
from oarlock.store.queries.cluster import properties, resources
from tests.e2e.instance import SOURCE
from tests.golden.live import Site

PAGE = Path(__file__).parents[2] / "docs" / "using" / "a-day.md"
ANYTHING = "…"
"""In the transcript: any text, or any lines where it stands alone."""

_BLOCK = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^(alice|bob|root)[$#] (.*)$")
_UNTIL = re.compile(r"^# until (\w+) is (\w+)$")
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "DATE"),
    (re.compile(r"/tmp/oarlock-test-\w+/home"), "/home/alice"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class DayStep:
    """A command with what it prints; or, without a user, what is waited for: a job, node or resource and its state."""

    user: str
    line: str
    printed: tuple[str, ...] = ()
    thing: str = ""
    state: str = ""


def steps(page: str) -> Iterator[DayStep]:
    """Yield the steps of a page, in their order."""
    for block in _BLOCK.findall(page):
        found: list[DayStep] = []
        for line in block.splitlines():
            if until := _UNTIL.match(line):
                found.append(DayStep("", line, thing=until[1], state=until[2]))
            elif command := _COMMAND.match(line):
                found.append(DayStep(command[1], command[2]))
            else:
                last = found.pop()
                found.append(DayStep(last.user, last.line, (*last.printed, line)))
        yield from found


def compare(step: DayStep, shown: str) -> str:
    """Return how an output differs from the transcript; nothing where it does not."""
    lines = [_comparable(line) for line in step.printed]
    pattern = "".join(r"(?:.*\n)*" if line == ANYTHING else f"{_pattern(line)}\n" for line in lines)
    text = "".join(f"{_comparable(line)}\n" for line in shown.splitlines())
    if re.fullmatch(pattern, text):
        return ""
    return "\n".join([f"{step.user}$ {step.line}", *lines, "--- but it printed ---", text])


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split(ANYTHING))


def _comparable(line: str) -> str:
    for pattern, name in _VARIES:
        line = pattern.sub(name, line)
    return line.rstrip()


class Day(Site):
    """The recorded cluster, with numbers of jobs that begin with 1, and a shell for its users."""

    def _add(self, tx: Any, cores: int) -> None:
        for name, kind in (("host", str), ("core", int), ("mem", int), ("cputype", str)):
            properties.add(tx, name, kind)
        resources.add(tx, self._rows(), at=int(time.time()))

    def names(self) -> dict[str, str]:
        """Return what the names of the transcript are called here."""
        prefix = self.nodes[0].removesuffix("1")
        return {**{f"node{number}": f"{prefix}{number}" for number in range(1, 6)}, **self.users}

    def shell(self, user: str, line: str, programs: Path) -> str:
        """Run a line as a user, in a shell; return what appears, with the names of the transcript."""
        for name, ours in self.names().items():
            line = re.sub(rf"\b{name}\b", ours, line)
        account = pwd.getpwnam(self.users[user])
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}", "TZ": "UTC", "HOME": str(self.home), "LANG": "C.UTF-8",
            "PYTHONPATH": str(SOURCE), "OARLOCK_SERVER": str(self.state / "server.sock"),
        }  # fmt: skip
        ran = subprocess.run(
            ["bash", "-c", line], env=environment, cwd=self.home, user=account.pw_uid, group=account.pw_gid,
            extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        shown = ran.stdout
        for name, ours in self.names().items():
            shown = re.sub(rf"\b{ours}\b", name, shown)
        return shown

    def wait_for(self, thing: str, state: str) -> None:
        """Wait until a job, a node or a resource is in a state."""
        if thing.isdecimal() and state in list(JobState):
            self.until_state(int(thing), JobState(state))
            return
        column = "resource_id" if thing.isdecimal() else "network_address"
        wanted = self.names().get(thing, thing)
        self.until(lambda: self._states(column, wanted) == {state})

    def _states(self, column: str, wanted: str) -> set[str]:
        with self.database.read() as tx:
            rows = [row.properties for row in resources.listed(tx)]
        return {str(row["state"]) for row in rows if str(row[column]) == wanted}


def put_programs(folder: Path) -> Path:
    """Put all commands of OAR into a folder, as an installation has them."""
    folder.mkdir()
    for command in sorted((*jobs.COMMANDS, *cluster.COMMANDS)):
        code = f"import sys; from {module_name(command)} import main; sys.exit(main())"
        path = folder / command
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
        path.chmod(0o755)
    return folder
