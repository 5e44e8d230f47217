"""`#OAR` lines of a script are followed; what was said outside it is stronger."""

import pytest

from oarlock.config import Config
from oarlock.job.admission import parse
from oarlock.job.admission.payload import SubmissionPayload
from oarlock.job.admission.script import apply_directives
from oarlock.model.errors import SyntaxRefused
from oarlock.model.submission_errors import BadDirective, ParameterFileNeeded

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


@pytest.mark.manual(9)
def test_every_option_of_a_script_is_followed():
    assert apply_directives(SubmissionPayload(script=SCRIPT, command="./s")).payload == SubmissionPayload(
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
    made, notes = apply_directives(body)
    assert (made.resources, made.types, made.after) == (
        ["core=1", "nodes=2,walltime=1"], ["noop", "besteffort", "idempotent"], [9, 4],
    )  # fmt: skip
    assert (made.name, made.checkpoint, made.array, made.directory, made.project) == ("cli", 5, ["x"], "/home", "proj")
    assert notes == (
        "Line 3 of the script (--name scanned) gives way to what was given beside it.",
        "Line 5 of the script (--checkpoint 60) gives way to what was given beside it.",
        "Line 8 of the script (--array 3) gives way to what was given beside it.",
        "Line 9 of the script (--directory /tmp) gives way to what was given beside it.",
    )


def test_without_a_script_nothing_changes():
    body = SubmissionPayload(command="x")
    assert apply_directives(body) == (body, ())
    assert apply_directives(body).payload is body


@pytest.mark.parametrize(
    "line", ["--bogus 1", "-l", "--checkpoint x", "word", "--array 0", "--array 999999999", "--nam x"]
)
def test_a_line_that_cannot_be_followed_is_named(line):
    with pytest.raises(BadDirective, match="Line 2 of the script"):
        apply_directives(SubmissionPayload(script=f"#!/bin/sh\n#OAR {line}\n"))


def test_what_is_no_script_is_not_searched():
    with pytest.raises(SyntaxRefused, match="This is not a script"):
        apply_directives(SubmissionPayload(script="\x7fELF"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-J", "-J has no place in a script"),
        ("--resubmit=4", "--resubmit has no place in a script"),
        ("--stagein-md5sum 00", "--stagein-md5sum has no place in a script"),
        ("-e key", "-e has no place in a script"),
        ("-i key", "-i has no place in a script"),
        ("-l nodes=1 ./prog", "unrecognized arguments: ./prog"),
    ],
)
def test_what_a_script_cannot_carry_is_refused_by_its_name(line, why):
    with pytest.raises(BadDirective, match=f"Line 2 of the script, .* cannot be followed: {why}.") as refused:
        apply_directives(SubmissionPayload(script=f"#!/bin/sh\n#OAR {line}\n"))
    assert refused.value.hint


def test_the_lines_of_a_parameter_file_have_to_be_sent():
    script = "#!/bin/sh\n#OAR --array-param-file params.txt\n"
    with pytest.raises(ParameterFileNeeded, match=r"Line 2 .* `params.txt`, that was not sent") as refused:
        apply_directives(SubmissionPayload(script=script))
    assert refused.value.path == "params.txt"
    body = SubmissionPayload(script=script, array=["1", "2"])
    assert apply_directives(body) == (body, ())


@pytest.mark.parametrize(
    ("sent", "line", "directory"),
    [
        ({}, "", "/"),
        ({}, "-d /there", "/there"),
        ({"launched_from": "/home/ada"}, "", "/home/ada"),
        ({"launched_from": "/home/ada"}, "-d runs", "/home/ada/runs"),
        ({"launched_from": "/home/ada"}, "-d /there", "/there"),
        ({"directory": "/typed"}, "-d /there", "/typed"),
    ],
)
def test_a_script_names_the_directory_unless_one_was_given(sent, line, directory):
    payload = SubmissionPayload(command="./s", script=f"#!/bin/sh\n#OAR {line or '-n x'}\n", **sent)
    assert parse.read(payload, user="ada", config=Config(), now=0).directory == directory
