"""Man pages and --help: every command has them, and they say the same."""

import re
import shutil
import subprocess
import tomllib

import pytest

from oarlock import __version__
from scripts import manual, oarlock_manual
from tests.cli.conftest import ROOT, Ran

SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_every_command_that_is_installed_has_a_page_and_exit_codes():
    other_spellings = {"oarmonitor_graph_gen.pl"}
    assert set(SCRIPTS) - {"oarlock"} - other_spellings == set(manual.COMMANDS)
    ours = {"oarlock", *(f"oarlock-{name}" for name in oarlock_manual.subcommands())}
    assert {page.stem for page in (ROOT / "man" / "man1").iterdir()} == set(manual.COMMANDS) | ours


@pytest.mark.manual(32)
@pytest.mark.parametrize("command", manual.COMMANDS)
def test_help_and_version_need_no_server(run, command):
    ran = run(command, "--help", OARLOCK_SERVER="/nowhere/server.sock")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: {command} ")
    missing = [one.spelled() for one in manual.options(command).all if one.spelled() not in ran.out]
    assert missing == []
    version = "--version" if command == "oarprint" else "-V"  # OAR's oarprint has no -V
    assert run(command, version) == Ran(0, f"Oarlock version : {__version__}\n", "")


@pytest.mark.parametrize("command", manual.COMMANDS)
def test_a_man_page_has_every_option_and_nothing_that_roff_would_misread(command):
    page = manual.man_page(command)
    assert readable(page)
    assert page.count(".TP\n") >= len(manual.options(command).all)


def readable(page: str) -> bool:
    """Say whether roff would print a page as it is meant."""
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    return page.isascii() and "'" not in page and requests <= {".TH", ".SH", ".TP", ".B", ".br"}


@pytest.mark.parametrize("name", oarlock_manual.subcommands())
def test_a_page_of_oarlock_says_what_its_help_says(run, name):
    page = oarlock_manual.man_page(name)
    assert readable(page)
    written = name.replace("-", "\\-")
    assert f"\n\\fBoarlock {written}\\fR\n" in oarlock_manual.overview()
    ran = run("oarlock", name, "--help", COLUMNS="10000")
    options = re.findall(r"^  (?:-\w(?: \S+)?, )?(--[a-z-]+)", ran.out, re.MULTILINE)
    told = page.replace("\\-", "-")
    assert (ran.code, [one for one in options if one not in told and one != "--help"]) == (0, [])
    assert "--json" in told or "--json" not in ran.out


def test_the_first_page_of_oarlock_is_readable():
    assert readable(oarlock_manual.overview())


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed: man pages are not set")
def test_man_pages_are_set_without_a_warning():
    pages = sorted((ROOT / "man" / "man1").iterdir())
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-P-cbou", *pages], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--array-param-file=FILE" in done.stdout
