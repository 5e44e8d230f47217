"""The pages about faults and promises: every fault has its line, and every test that they name exists."""

import re
from pathlib import Path

import pytest

from tests.attacks import hostile_names

TESTS = Path(__file__).parents[1]
PAGES = TESTS.parent / "docs" / "how-it-works"
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(\w+)`")


def _lines() -> list[list[str]]:
    lines = (PAGES / "faults.md").read_text().splitlines()
    return [line.strip("| ").split(" | ") for line in lines if re.match(r"\| F\d\d ", line)]


def test_every_fault_has_one_line():
    assert [line[0][:3] for line in _lines()] == [f"F{number:02}" for number in range(1, 63)]


def test_every_fault_has_a_test_or_says_why_not():
    assert [line[0] for line in _lines() if not NAMED.search(line[2]) and not line[2].startswith("not built: ")] == []


@pytest.mark.parametrize("page", ["faults.md", "promises.md", "security-rules.md"])
def test_every_test_that_a_page_names_exists(page: str):
    named = set(NAMED.findall((PAGES / page).read_text()))
    assert len(named) > 10
    missing = [
        f"{file}::{name}"
        for file, name in sorted(named)
        if not (TESTS / file).exists() or not re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.M)
    ]
    assert missing == []


def test_every_attack_and_input_has_a_test_that_exists():
    missing = [name for name in hostile_names() if not (TESTS / name.partition("::")[0]).is_file()]
    assert (missing, len(hostile_names()) > 50) == ([], True)
