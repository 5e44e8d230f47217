"""Man pages and --help: every command has them, and they say the same."""

import shutil
import subprocess
import tomllib

import pytest

from oarlock import __version__
from scripts import manual
from tests.cli.conftest import ROOT, Ran

SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_every_command_that_is_installed_has_a_page_and_exit_codes():
    assert set(SCRIPTS) - {"oarlock"} == set(manual.COMMANDS)
    assert {page.stem for page in (ROOT / "man" / "man1").iterdir()} == set(manual.COMMANDS)


@pytest.mark.parametrize("command", manual.COMMANDS)
def test_help_and_version_need_no_server(run, command):
    ran = run(command, "--help", OARLOCK_SERVER="/nowhere/server.sock")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: {command} ")
    missing = [one.spelled() for one in manual.options(command).all if one.spelled() not in ran.out]
    assert missing == []
    assert run(command, "-V") == Ran(0, f"Oarlock version : {__version__}\n", "")


@pytest.mark.parametrize("command", manual.COMMANDS)
def test_a_man_page_has_every_option_and_nothing_that_roff_would_misread(command):
    page = manual.man_page(command)
    assert page.isascii()
    assert "'" not in page
    assert {line.split()[0] for line in page.splitlines() if line.startswith(".")} <= {".TH", ".SH", ".TP", ".B", ".br"}
    assert page.count(".TP\n") >= len(manual.options(command).all)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed: man pages are not set")
def test_man_pages_are_set_without_a_warning():
    pages = sorted((ROOT / "man" / "man1").iterdir())
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-P-cbou", *pages], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--array-param-file=FILE" in done.stdout
