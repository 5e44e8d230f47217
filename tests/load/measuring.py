"""What the load tests share: users at work in processes of their own, what a server holds, lines that tell figures."""

import json
import os
import platform
import pwd
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import Better, Result
from tests.e2e.instance import Instance

PROGRAM = Path(__file__).with_name("visitors.py")


class Users:
    """Users at work; leave them to end them."""

    def __init__(self, site: Instance) -> None:
        self._site = site
        self._running: list[subprocess.Popen[str]] = []

    def start(self, user: str, mode: str, *, connections: int = 1, count: int = 0) -> "subprocess.Popen[str]":
        """Start a program that works as a user."""
        where = (self._site.state / "server.sock", pwd.getpwnam(user).pw_uid, self._site.home)
        command = [sys.executable, "-IS", PROGRAM, *map(str, (*where, mode, connections, count))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._running.append(process)
        return process

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


def seen_by(process: "subprocess.Popen[str]", *, seconds: float = 600) -> dict[str, Any]:
    """End a program's input, and return what it saw."""
    out, _ = process.communicate(timeout=seconds)
    answer: dict[str, Any] = json.loads(out)
    return answer


def wait_for(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Wait until a program ends by itself, and return what it saw."""
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.read())
    process.wait()
    return answer


def percentile(seconds: Iterable[float], share: float = 0.99) -> float:
    """Return the value below which this share of the values lies."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def all_seconds(*seen: dict[str, Any]) -> list[float]:
    """Return what every request of these programs took."""
    return [took for one in seen for requests in one["seconds"].values() for took in requests]


def resident(pid: int) -> float:
    """Return the megabytes that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@dataclass
class Figures:
    """Figures of one load test: each is printed when it is known, and all are judged at the end."""

    title: str
    results: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        print(f"\n{self.title}, {os.cpu_count()} cores, {platform.machine()}, load before {os.getloadavg()[0]:.1f}")

    def add(self, name: str, value: float, unit: str, target: float, better: Better = "lower") -> None:
        """Note a figure, and print whether it holds."""
        self.results.append(Result(name, value, unit, target, better))
        print(self.results[-1].full_text(), flush=True)

    def judge(self) -> None:
        """Fail if one does not hold."""
        missed = [result.name for result in self.results if not result.holds]
        assert not missed, f"missed: {', '.join(missed)}"
