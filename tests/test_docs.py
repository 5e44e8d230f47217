"""Documentation that can be wrong is checked against the code."""

import re
from pathlib import Path

import pytest

from scripts.generate_docs import PAGES

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name):
    assert (ROOT / name).read_text() == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_links_only_to_what_exists(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in WRITTEN for name in re.findall(r"`make ([a-z]+)", page.read_text())}
    assert named - targets == set()


COMING = ("oarprint", "oarmonitor")


def test_commands_that_are_not_there_are_named_as_coming():
    there = {path.stem for path in (ROOT / "src/oarlock/cli").glob("oar*.py")}
    [listed] = re.findall(r"^Not yet: (.*?)\n\n", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert [name for name in COMING if (name in there) == (f"`{name}`" in listed)] == []
    for line in (ROOT / "docs/how-it-works/database.md").read_text().splitlines():
        for name in COMING:
            assert name in there or f"`{name}`" not in line or "not there yet" in line, line


def test_contributing_answers_twenty_questions_with_paths_that_exist():
    _, table = (ROOT / "CONTRIBUTING.md").read_text().split("## Where is …?")
    rows = [row for row in table.split("\n## ")[0].splitlines() if row.startswith("| ") and "[`" in row]
    assert len(rows) >= 20
    for row in rows:
        links = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", row)
        assert links, row
        assert [path for name, path in links if path != f"src/oarlock/{name}" or not (ROOT / path).exists()] == [], row
