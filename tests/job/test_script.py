"""`#OAR` lines of a script are followed; what was said outside it is stronger."""

import pytest

from oarlock.job.admission.payload import SubmissionPayload
from oarlock.job.admission.script import apply_directives
from oarlock.model.errors import SyntaxRefused
from oarlock.model.submission_errors import BadDirective

SCRIPT = """#!/bin/sh
#OAR -l nodes=2,walltime=1
#OAR -n scanned --project proj
#OAR -t besteffort -t idempotent
#OAR --checkpoint=60 --signal USR1
#OAR -a 4 --hold
echo hello
#OAR --array 3
#OAR -q night -O 'o %jobid%' -E e -d /tmp --notify mail:a@b -k -p "mem > 4" -r "2031-01-01 00:00:00"
"""


def test_every_option_of_a_script_is_followed():
    assert apply_directives(SubmissionPayload(script=SCRIPT, command="./s")) == SubmissionPayload(
        script=SCRIPT, command="./s", resources=["nodes=2,walltime=1"], name="scanned", project="proj",
        types=["besteffort", "idempotent"], checkpoint=60, signal=10, after=[4], hold=True, array=["", "", ""],
        queue="night", stdout="o %jobid%", stderr="e", directory="/tmp", notify="mail:a@b", use_key=True,
        properties="mem > 4", reservation="2031-01-01 00:00:00",
    )  # fmt: skip


def test_what_was_said_outside_wins_and_alternatives_add_up():
    body = SubmissionPayload(
        script=SCRIPT, resources=["core=1"], name="cli", types=["noop"], after=[9], checkpoint=5, array=["x"],
        directory="/home",
    )  # fmt: skip
    made = apply_directives(body)
    assert (made.resources, made.types, made.after) == (
        ["core=1", "nodes=2,walltime=1"], ["noop", "besteffort", "idempotent"], [9, 4],
    )  # fmt: skip
    assert (made.name, made.checkpoint, made.array, made.directory, made.project) == ("cli", 5, ["x"], "/home", "proj")


def test_without_a_script_nothing_changes():
    body = SubmissionPayload(command="x")
    assert apply_directives(body) is body


@pytest.mark.parametrize(
    "line", ["--bogus 1", "-l", "--checkpoint x", "word", "--array 0", "--array 999999999", "--nam x"]
)
def test_a_line_that_cannot_be_followed_is_named(line):
    with pytest.raises(BadDirective, match="Line 2 of the script"):
        apply_directives(SubmissionPayload(script=f"#!/bin/sh\n#OAR {line}\n"))


def test_what_is_no_script_is_not_searched():
    with pytest.raises(SyntaxRefused, match="This is not a script"):
        apply_directives(SubmissionPayload(script="\x7fELF"))
