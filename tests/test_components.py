import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.components import Component, install_commands, left_out_notes, missing, must_be_complete

ROOT = Path(__file__).resolve().parent.parent
SSHD = Component("sshd", "sshd", "openssh-server", "launching over ssh")
IP = Component("ip", "ip", "iproute2", "cutting cables")


def test_what_is_missing_is_found_by_looking_for_the_program():
    nowhere = Component("nowhere", "no-such-program-anywhere", "nothing", "nothing")
    shell = Component("sh", "sh", "dash", "nothing")
    assert missing([nowhere, shell]) == [nowhere]


def test_root_on_debian_installs_all_missing_packages_at_once():
    assert install_commands([SSHD, IP], root=True, debian=True) == [
        ["apt-get", "update", "--quiet"],
        ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "iproute2", "openssh-server"],
    ]


@pytest.mark.parametrize(("wanted", "root", "debian"), [([SSHD], False, True), ([SSHD], True, False), ([], True, True)])
def test_nothing_is_installed_by_a_plain_user(wanted, root, debian):
    assert install_commands(wanted, root=root, debian=debian) == []


def test_left_out_tests_are_told_once_a_component_with_the_way_out():
    reasons = [f"('tests/test_x.py', 7, 'Skipped: {SSHD.left_out()}')"] * 3 + ["a reason of its own"]
    assert left_out_notes(reasons, {"sshd": SSHD, "ip": IP}) == [
        "3 left out: sshd is not installed, so launching over ssh is not tested (apt-get install openssh-server)"
    ]


@pytest.mark.parametrize(("value", "complete"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_ci_asks_for_a_complete_run(value, complete):
    assert must_be_complete({"CI": value}) is complete
    assert not must_be_complete({})


MARKED = """
import pytest

@pytest.mark.component("bash")
def test_one(): pass

@pytest.mark.component("bash")
def test_two(): pass
"""


def run_without_bash(folder, **environment):
    """Run two tests that need bash with our hooks, on a machine without bash."""
    (folder / "conftest.py").write_text(
        (ROOT / "tests/conftest.py").read_text() + "\n\ndef present(component): return False\n"
    )
    (folder / "test_marked.py").write_text(MARKED)
    base = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(folder)],
        env={**base, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_missing_component_leaves_tests_out_with_one_line(tmp_path):
    ran = run_without_bash(tmp_path)
    assert ran.returncode == 0
    assert len(re.findall(r"^2 left out: bash is not installed", ran.stdout, re.MULTILINE)) == 1
    assert "2 skipped" in ran.stdout


def test_with_ci_a_missing_component_fails_the_run(tmp_path):
    ran = run_without_bash(tmp_path, CI="true")
    assert ran.returncode == 1
    assert "2 errors" in ran.stdout
    assert "apt-get install bash" in ran.stdout
