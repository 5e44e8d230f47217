"""Output that cannot be written, and commands whose caller closed a standard file."""

import io
import os
import subprocess
import sys

import pytest

from oarlock.cli.commands import module_name
from oarlock.cli.output import show_text
from tests import canned
from tests.cli.conftest import ROOT

FULL = "The output of this command cannot be written: No space left on device."
JOB = canned.ok({"job_ids": [7], "array_id": 7, "messages": [], "state": "Waiting", "reservation": None})


@pytest.fixture
def shell(server, tmp_path):
    """Run a line of a shell in which a command stands for `$0`."""

    def ran(command: str, line: str) -> tuple[int, str, str]:
        code = f"import sys; from {module_name(command)} import main; sys.exit(main())"
        done = subprocess.run(
            ["/bin/sh", "-c", line, sys.executable, code],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "OARLOCK_SERVER": server.address},
            cwd=tmp_path, input="", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return ran


@pytest.mark.parametrize("words", ["--help", "--version", "true"])
def test_output_that_has_no_room_is_a_sentence_and_an_exit_code(shell, server, words: str):
    server.says(JOB)
    code, out, err = shell("oarsub", f'"$0" -c "$1" {words} > /dev/full')
    assert (code, out) == (1, "")
    assert err == f"oarsub: {FULL}\n  What was asked for is done; look where the output leads.\n"


def test_oarlock_itself_tells_of_output_that_has_no_room(shell):
    code, out, err = shell("oarlock", '"$0" -c "$1" completion bash > /dev/full')
    assert (code, out, FULL in err, "Traceback" in err) == (1, "", True, False)


def test_letters_that_a_terminal_cannot_show_are_written_as_escapes():
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    show_text("30 % \N{FULL BLOCK}", file=terminal)
    terminal.flush()
    assert terminal.buffer.getvalue() == b"30 % \\u2588\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_file_is_as_if_it_led_nowhere(shell, server, closed: str):
    server.says(JOB)
    code, out, err = shell("oarsub", f'"$0" -c "$1" true {closed}')
    assert (code, out, err) == (0, "" if ">&-" in closed.replace("2>&-", "") else "OAR_JOB_ID=7\n", "")
    assert [request.path for request in server.requests] == ["/api/v1/jobs"]
