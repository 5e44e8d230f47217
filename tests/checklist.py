"""The statements of OAR's manual, and which test shows each of them.

A test says by `@pytest.mark.manual(23, 24)` what it shows. `make checklist` runs those tests and prints a line for each
statement and test: number, statement, test, result. The statements stand in `docs/reference/manual.md`.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "manual.md"
PORTAL = "portal"

_ROW = re.compile(r"^\| (\d+) \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)
_PROPERTY = "manual"


@dataclass(frozen=True)
class Statement:
    """One statement of the manual; `remark` is empty, `portal`, or `differs: …` with a row of that page."""

    number: int
    text: str
    remark: str

    @property
    def differs(self) -> str:
        """The row of the page of differences that speaks of it; empty where there is none."""
        return self.remark.removeprefix("differs: ") if self.remark.startswith("differs: ") else ""


def statements() -> list[Statement]:
    """Read the statements from their page."""
    return [Statement(int(number), text, remark) for number, text, remark in _ROW.findall(PAGE.read_text())]


def problems(listed: Sequence[Statement], results: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return a sentence for each statement that is not shown: no test names it, or none of them passed."""
    found = []
    for statement in listed:
        outcomes = set(results.get(statement.number, {}).values())
        if statement.remark == PORTAL:
            continue
        if not outcomes:
            found.append(f"No test names statement {statement.number}: {statement.text}")
        elif outcomes != {"passed"} and (outcomes != {"passed", "skipped"}):
            found.append(f"Statement {statement.number} is not shown ({', '.join(sorted(outcomes))}): {statement.text}")
    unknown = sorted(results.keys() - {statement.number for statement in listed})
    return found + [f"There is no statement {number}." for number in unknown]


def lines(listed: Sequence[Statement], results: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return the table for people: a line for each statement and test."""
    found = []
    for statement in listed:
        said = f"{statement.text} [{statement.remark}]" if statement.differs else statement.text
        tests = results.get(statement.number, {})
        rows = sorted(tests.items()) or [("-", PORTAL if statement.remark == PORTAL else "NO TEST")]
        found.extend(f"{statement.number:>3} | {said} | {test} | {outcome}" for test, outcome in rows)
    return found


class Checklist:
    """Gathers how the tests of each statement ended, and prints the table at the end of the run."""

    def __init__(self) -> None:
        self.results: dict[int, dict[str, str]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test, or a case of it, ended; a failure of one case is that of the test."""
        test = report.nodeid.partition("[")[0]
        for name, number in report.user_properties:
            if name == _PROPERTY and (report.when == "call" or report.outcome != "passed"):
                before = self.results[int(str(number))].get(test, "skipped")
                worse = "failed" in (before, report.outcome)
                self.results[int(str(number))][test] = (
                    "failed" if worse else before if before != "skipped" else report.outcome
                )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run when a statement is not shown."""
        if not hasattr(session.config, "workerinput") and problems(statements(), self.results):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and what is missing."""
        listed = statements()
        for line in [*lines(listed, self.results), *problems(listed, self.results)]:
            terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that prints the table."""
    parser.addoption("--checklist", action="store_true", help="print which test shows which statement of OAR's manual")


def pytest_configure(config: pytest.Config) -> None:
    """Gather results where the table is asked for."""
    if config.getoption("--checklist"):
        config.pluginmanager.register(Checklist(), "checklist of the manual")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send the numbers of a test along with its report, also between processes."""
    for item in items:
        for number in sorted({number for mark in item.iter_markers("manual") for number in mark.args}):
            item.user_properties.append((_PROPERTY, number))
