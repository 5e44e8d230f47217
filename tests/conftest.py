"""What all tests share: programs of the system that some of them need, databases, accounts and directories."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.attacks import hostile_names
from tests.components import COMPONENTS, left_out_notes, must_be_complete, present

pytest_plugins = ["tests.checklist", "tests.databases", "tests.places"]

# Others use the machine as well: how long an example takes says nothing about it.
settings.register_profile("shared machine", deadline=None, max_examples=int(os.environ.get("EXAMPLES") or 100))
settings.load_profile("shared machine")


def pytest_configure() -> None:
    """Let Ctrl-C reach what tests start: a shell starts what runs in its background with the signal ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `make hostile` run the tests that the page about security names, too: the attacks of old, and the inputs."""
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    if {path, f"{path}::{item.originalname}" if isinstance(item, pytest.Function) else path} & hostile_names():
        item.add_marker(pytest.mark.hostile)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, so that no worker is left alone with one of them in the end."""
    items.sort(key=_length, reverse=True)


def _length(item: pytest.Item) -> float:
    """How long a test may take where it says so; those of whole instances are the longest of the others."""
    mark = item.get_closest_marker("timeout")
    if mark is not None and mark.args:
        return float(mark.args[0])
    return 1.0 if "e2e" in item.path.parts else 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out when its component is missing; fail it instead when nothing may be left out."""
    for mark in item.iter_markers("component"):
        component = COMPONENTS[mark.args[0]]
        if present(component):
            continue
        if must_be_complete(os.environ):
            pytest.fail(component.left_out(), pytrace=False)
        pytest.skip(component.left_out())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once a component how many tests it left out."""
    skipped = terminalreporter.stats.get("skipped", [])
    for note in left_out_notes(str(report.longrepr) for report in skipped):
        terminalreporter.write_line(note)
