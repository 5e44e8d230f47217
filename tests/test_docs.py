"""Documentation that can be wrong is checked against the code."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from oarlock.cli.oarlock import options
from oarlock.config import KEYS
from oarlock.model.event import EventType
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


OF_THE_MANUAL = (
    "oarsub", "oardel", "oarhold", "oarresume", "oarstat", "oarnodes", "oarwalltime", "oarprint", "oarsh", "oarcp",
    "oarnodesetting", "oarproperty", "oarremoveresource", "oaraccounting", "oarnotify", "oaradmissionrules",
    "oarmonitor", "oarmonitor_graph_gen", "oar_resources_init", "oar_resources_add",
)  # fmt: skip


def test_every_command_of_the_manual_is_there_and_has_a_page():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    pages = {path.stem for path in (ROOT / "man/man1").glob("oar*.1")}
    assert [name for name in OF_THE_MANUAL if name not in scripts or name not in pages] == []


def test_contributing_answers_twenty_questions_with_paths_that_exist():
    _, table = (ROOT / "CONTRIBUTING.md").read_text().split("## Where is …?")
    rows = [row for row in table.split("\n## ")[0].splitlines() if row.startswith("| ") and "[`" in row]
    assert len(rows) >= 20
    for row in rows:
        links = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", row)
        assert links, row
        assert [path for name, path in links if path != f"src/oarlock/{name}" or not (ROOT / path).exists()] == [], row


SITE = ROOT / "docs/running-a-site"


def test_operating_has_every_event_with_its_way_out():
    rows = [
        row.split(" | ") for row in (SITE / "operating.md").read_text().splitlines() if re.match(r"\| [A-Z_]{6}", row)
    ]
    named = [name for row in rows for name in row[0].removeprefix("| ").split(", ")]
    assert sorted(named) == sorted(EventType)
    assert [row[0] for row in rows if len(row) != 3] == []


def typed(page):
    """Return the commands of a page that begin with `oarlock`, as they are typed."""
    lines = re.findall(r"^    (?:root# )?(oarlock .*?)(?: +#.*)?$", (SITE / page).read_text(), re.MULTILINE)
    return [part for line in lines for part in re.split(r" && | \|\| ", line) if part.startswith("oarlock ")]


@pytest.mark.parametrize("page", ["installing.md", "operating.md", "login-hosts.md", "doctor.md"])
def test_every_command_of_a_page_for_administrators_can_be_typed(page, capsys):
    parser = options()
    lines = typed(page)
    assert lines
    for line in lines:
        try:
            parser.parse_args(shlex.split(line)[1:])
        except Exception as refused:  # what it says is what is wrong with the page
            raise AssertionError(line) from refused
    assert capsys.readouterr().err == ""


def test_settings_that_pages_for_administrators_name_exist():
    pages = ["installing.md", "operating.md", "login-hosts.md", "security-model.md", "faq.md"]
    names = {name for page in pages for name in re.findall(r"\b[A-Z]{3,}(?:_[A-Z]+)+\b", (SITE / page).read_text())}
    known = {*KEYS, *EventType, "OARLOCK_MUNGE", "OAR_NODEFILE", "SO_PEERCRED"}
    assert {name for name in names - known if not name.endswith("_")} == set()
