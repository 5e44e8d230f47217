"""What a real OAR 2.5 gave its jobs is what we give them, where the same resources are free."""

import re
from typing import NamedTuple

import pytest

from oarlock.lang import where
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.model.submission import BEST, Level, ResourceGroup
from oarlock.plan.fit.fit import Fitter
from tests.lang.cases import DATA, needs_golden
from tests.plan.drawing import laid, table

GOLDEN = DATA / "oar2-golden"
NUMBERS = ("resource_id", "cpu", "core", "cpuset", "mem", "scheduler_priority")
_JOB = re.compile(r"^=== job (\d+): .*?(?=^=== job |\Z)", re.MULTILINE | re.DOTALL)
_STATE = re.compile(r"^state=.* properties=(.*) queue=", re.MULTILINE)
_PLACE = re.compile(r"^moldable (\d+) .* -> ((?:\w+#\d+ ?)+)$", re.MULTILINE)
_GROUP = re.compile(r"^group \d+ of moldable (\d+) property=(.*) : (.*)$", re.MULTILINE)


class Given(NamedTuple):
    """What a job asked for and got."""

    shape: Shape
    resources: list[int]


def recorded_jobs() -> list:
    """Give the jobs that got resources; none where the records are not there."""
    path = GOLDEN / "placements_golden1.txt"
    if not path.exists():
        return []
    return [
        pytest.param(given, id=found[1]) for found in _JOB.finditer(path.read_text()) if (given := _given(found[0]))
    ]


def _given(text: str) -> Given | None:
    place, state = _PLACE.search(text), _STATE.search(text)
    if place is None or state is None:
        return None
    groups = [
        ResourceGroup(_levels(levels), checked(condition))
        for moldable, condition, levels in _GROUP.findall(text)
        if moldable == place[1]
    ]
    return Given(Shape(tuple(groups), checked(state[1])), [int(one.partition("#")[2]) for one in place[2].split()])


def _levels(text: str) -> tuple[Level, ...]:
    pairs = (part.partition(":")[2].strip().partition("=") for part in text.split(" / "))
    return tuple(Level(name, int(count)) for name, _, count in pairs)


def checked(condition: str):
    return where.check(where.parse(condition), {name: int if name in NUMBERS else str for name in PROPERTIES})


PROPERTIES = (*NUMBERS, "network_address", "host", "cputype", "type", "besteffort", "desktop_computing", "drain")


def the_cluster() -> ResourceTable:
    """Read the resources that those jobs ran on."""
    rows: dict[int, dict[str, str | int | None]] = {}
    for line in (GOLDEN / "nodes_Y_all.txt").read_text().splitlines():
        name, _, value = line.strip().partition(": ")
        if found := re.fullmatch(r"(\d+): ?", line):
            rows[int(found[1])] = row = {}
        elif line.startswith("  ") and name in PROPERTIES:
            row[name] = int(value.strip("'")) if name in NUMBERS else value.strip("'")
    return table(*(row | {"scheduler_priority": 0} for _, row in sorted(rows.items())))


@pytest.mark.manual(184)
@needs_golden
@pytest.mark.parametrize("given", recorded_jobs())
def test_a_job_gets_what_it_got_there(given: Given):
    layout = laid(the_cluster())
    fitter = Fitter(layout)
    fit = fitter.compile(given.shape)

    def chosen(free: list[int]) -> list[int]:
        room = layout.bits_of(free)
        return sorted(layout.ids_of(fit.take(fitter.whole_nodes(room) if fit.of_nodes else room)))

    assert chosen(given.resources) == given.resources, "it is enough, and all of it is needed"
    if not any(level.count == BEST for group in given.shape.groups for level in group.levels):
        behind = range(max(given.resources) + 1, len(layout.ids) + 1)
        assert chosen([*given.resources, *behind]) == given.resources, "the first that will do are taken"
