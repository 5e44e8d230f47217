"""Figures: what is measured, how far it should go, and whether it gets there.

A figure is a function that returns one number, given as CPU time or as a ratio to a reference run in the same
process, so that a busy machine does not change it. A new figure needs only its own file in this folder:

    @figure("parse_request", unit="µs", target=50)
    def parse_request() -> float: ...
"""

import contextlib
import importlib
import json
import math
import pkgutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Better = Literal["lower", "higher"]
Measure = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number to watch: what it is called, what it should reach, and how to get it."""

    name: str
    unit: str
    target: float
    better: Better
    measure: Measure


@dataclass(frozen=True, slots=True)
class Result:
    """A figure that was measured, as `build/bench.json` has it."""

    name: str
    value: float
    unit: str
    target: float
    better: Better

    @property
    def holds(self) -> bool:
        """Whether the target is reached."""
        return self.value <= self.target if self.better == "lower" else self.value >= self.target

    def full_text(self) -> str:
        """Give the line that a person reads."""
        sign = "≤" if self.better == "lower" else "≥"
        verdict = "holds" if self.holds else "MISSED"
        value, target = f"{_short(self.value)} {self.unit}", f"target {sign} {_short(self.target)} {self.unit}"
        return f"{self.name:<36} {value:>20}   {target:<28} {verdict}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A figure that could not be measured, and why."""

    name: str
    why: str

    def full_text(self) -> str:
        """Give the line that a person reads."""
        return f"{self.name:<36} {'–':>20}   not measured: {self.why}"


Outcome = Result | Unmeasured

FIGURES: dict[str, Figure] = {}
"""All figures, in the order in which they were defined."""


def figure(
    name: str, *, unit: str, target: float, better: Better = "lower", among: dict[str, Figure] = FIGURES
) -> Callable[[Measure], Measure]:
    """Make a function a figure; two figures of one name are a mistake (`ValueError`)."""

    def register(measure: Measure) -> Measure:
        if name in among:
            raise ValueError(f"There are two figures named {name}.")
        among[name] = Figure(name, unit, target, better, measure)
        return measure

    return register


@contextmanager
def workspace() -> Iterator[Path]:
    """Give an empty directory that everybody may enter, in a part of the disk of its own.

    An ext4 without a journal passes over every file that was deleted in the last minutes in the same part, whenever one
    is made: then a figure tells what ran before. Below a directory with the attribute `T` each has another part.
    """
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as above:
        Path(above).chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(["chattr", "+T", above], check=False, capture_output=True)
        inside = Path(tempfile.mkdtemp(dir=above))
        inside.chmod(0o755)
        yield inside


def cpu_seconds(call: Callable[[], object], *, times: int = 3) -> float:
    """Measure the CPU time of this process during `call`: the least of several runs, so that noise stays out."""
    return min(_cpu_once(call) for _ in range(times))


def _cpu_once(call: Callable[[], object]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


def chosen(only: str, among: Mapping[str, Figure] = FIGURES) -> list[Figure]:
    """Pick figures by their name or its beginning; an exact name wins, no name means all."""
    if only in among:
        return [among[only]]
    return [found for name, found in among.items() if name.startswith(only)]


def measured(asked: Figure) -> Outcome:
    """Measure one figure. Whatever goes wrong is its own affair: the other figures are still wanted."""
    try:
        value = float(asked.measure())
    except Exception as problem:  # noqa: BLE001
        return Unmeasured(asked.name, _in_one_line(problem))
    if not math.isfinite(value):
        return Unmeasured(asked.name, f"the result is {value}")
    return Result(asked.name, value, asked.unit, asked.target, asked.better)


def discover(package: str = "bench") -> list[Unmeasured]:
    """Import every module of the package, and give those that could not be imported."""
    paths = importlib.import_module(package).__path__
    names = [f"{package}.{found.name}" for found in pkgutil.iter_modules(paths) if found.name != "__main__"]
    return [failed for name in names if (failed := _imported(name))]


def _imported(module: str) -> Unmeasured | None:
    try:
        importlib.import_module(module)
    except Exception as problem:  # noqa: BLE001 - a broken file must not hide the figures of the others
        return Unmeasured(module, _in_one_line(problem))
    return None


def _in_one_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}".splitlines()[0]


def write(results: Iterable[Outcome], path: Path) -> None:
    """Write what was measured for programs to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(result) for result in results if isinstance(result, Result)]
    path.write_text(json.dumps(rows, indent=2) + "\n")


def all_hold(outcomes: Iterable[Outcome]) -> bool:
    """Whether everything was measured and reached its target."""
    return all(isinstance(outcome, Result) and outcome.holds for outcome in outcomes)
