"""oarsub as a process: which words make which request, and which answer makes which lines and exit code."""

import json
import os
import re
import subprocess
import sys

import pytest

from oarlock.lang import request
from oarlock.model.errors import OarlockError
from oarlock.web import refusals
from tests.canned import answer, ok, refusal
from tests.cli.conftest import ROOT, Ran

DONE = ok({"job_ids": [42], "array_id": 42, "messages": [], "state": "Waiting", "reservation": None})


@pytest.fixture
def submitted(run, server, tmp_path):
    """Run oarsub and give the body it sent, without what every submission has."""

    def body(*words, **variables):
        server.says(DONE)
        ran = run("oarsub", *words, **variables)
        assert (ran.code, ran.err) == (0, "")
        [request] = server.requests
        assert (request.method, request.path) == ("POST", "/api/v1/jobs")
        sent = request.json
        sent.pop("environment")
        assert sent.pop("initial_request") == " ".join(["oarsub", *words])
        assert re.fullmatch(rf"{re.escape(os.uname().nodename)}:[0-9]+", sent.pop("submitted_from"))
        assert sent.pop("directory") == str(tmp_path)
        return sent

    return body


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sleep 1"], {"command": "sleep 1"}),
        (["./prog", "a", "b c"], {"command": "./prog a b c"}),
        (["--", "ls", "-l"], {"command": "ls -l"}),
        (["./prog", "-l", "nodes=4"], {"command": "./prog", "resources": ["nodes=4"]}),
        (["-l", "nodes=4", "-l/core=2", "x"], {"command": "x", "resources": ["nodes=4", "/core=2"]}),
        (["-p", "mem > 16", "-q", "night", "x"], {"command": "x", "properties": "mem > 16", "queue": "night"}),
        (["-n", "a b", "--project=p1", "x"], {"command": "x", "name": "a b", "project": "p1"}),
        (["-t", "besteffort", "-t", "idempotent", "x"], {"command": "x", "types": ["besteffort", "idempotent"]}),
        (["-t", "noop", "-l", "core=1"], {"types": ["noop"], "resources": ["core=1"]}),
        (["-a", "1", "-a26", "x"], {"command": "x", "after": [1, 26]}),
        (["-O", "o.%jobid%", "-E", "e", "x"], {"command": "x", "stdout": "o.%jobid%", "stderr": "e"}),
        (["--checkpoint", "20", "--signal=10", "x"], {"command": "x", "checkpoint": 20, "signal": 10}),
        (["--signal", "USR1", "x"], {"command": "x", "signal": 10}),
        (["--signal", "sigterm", "x"], {"command": "x", "signal": 15}),
        (["-r", "now", "x"], {"command": "x", "reservation": "now"}),
        (["--notify", "[START]mail:a@b", "x"], {"command": "x", "notify": "[START]mail:a@b"}),
        (["-t", "origin=lib", "-t", "expire=2099-01-01 00:00:00", "x"],
         {"command": "x", "types": ["origin=lib", "expire=2099-01-01 00:00:00"]}),
        (["--notify", "mail:a@b", "--hold", "x"], {"command": "x", "notify": "mail:a@b", "hold": True}),
        (["--array", "3", "x"], {"command": "x", "array": ["", "", ""]}),
        (["-r", "2026-11-15 18:29:04", "x"], {"command": "x", "reservation": 1794767344}),
        (
            ["-r", "2026-11-15 18:29:04", "-l", "/node=12/cpu=2"],
            {"reservation": 1794767344, "resources": ["/node=12/cpu=2"]},
        ),
        (
            ["-r", "2026-11-15 18:29:04, 2026-11-15 19:00:00", "x"],
            {"command": "x", "reservation": "1794767344, 1794769200"},
        ),
        (["-r", "2026-11-15 18:29:04", "-l", "/nodes=12"], {"resources": ["/nodes=12"], "reservation": 1794767344}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_asked_for_is_what_is_sent(submitted, words, expected):
    assert submitted(*words) == expected


def test_the_exported_variables_go_along(run, server):
    server.says(DONE)
    run("oarsub", "true", GREETING="hé", **{"BASH_FUNC_f%%": "() { :; }", "a-b": "1", "1x": "2"})
    sent = server.requests[0].json["environment"]
    assert sent["GREETING"] == "hé"
    assert {"PATH", "TZ"} < set(sent)
    assert {"BASH_FUNC_f%%", "a-b", "1x"}.isdisjoint(sent)


def test_an_environment_that_is_too_large_is_refused_by_name(run, server):
    ran = run("oarsub", "true", HUGE="x" * 70_000, HUGER="y" * 70_000)
    assert ran.code == 8
    assert ran.err.endswith("The largest is HUGE; `unset HUGE`, or set it in the job.\n")
    assert server.requests == []


@pytest.mark.manual(17)
def test_a_directory_is_the_asked_one_or_this_one_as_the_shell_names_it(run, server, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    server.says(DONE)
    run("oarsub", "true", cwd=tmp_path / "link", PWD=str(tmp_path / "link"))
    run("oarsub", "true", cwd=tmp_path / "real", PWD="/nowhere")
    run("oarsub", "-d", "sub/../x", "true")
    run("oarsub", "-d", "/tmp", "true")
    assert [request.json["directory"] for request in server.requests] == [
        str(tmp_path / "link"), str(tmp_path / "real"), str(tmp_path / "x"), "/tmp"
    ]  # fmt: skip


def test_a_removed_directory_is_told(server, tmp_path):
    gone = "import os, sys; os.mkdir('d'); os.chdir('d'); os.rmdir('../d'); sys.argv[1:] = ['true']"
    code = f"{gone}; from oarlock.cli.jobs.oarsub import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1,
        "oarsub: This directory was removed.\n  Go elsewhere, or give -d /PATH.\n",
    )


def test_a_directory_whose_name_is_no_text_is_refused(run, server, tmp_path):
    strange = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(strange)  # noqa: PTH102 - a name that is no text
    assert run("oarsub", "true", cwd=strange).err == (
        "oarsub: The name of this directory is not valid UTF-8.\n  Go elsewhere, or give -d /PATH.\n"
    )
    server.says(DONE)
    assert run("oarsub", "-d", "/tmp", "true", cwd=strange).code == 0
    assert [request.json["directory"] for request in server.requests] == ["/tmp"]


def test_a_parameter_file_makes_a_job_a_line(run, server, tmp_path):
    (tmp_path / "params").write_text("# heads\n\n1 'a b'\n  2 c  \n")
    server.says(ok({"job_ids": [7, 8], "array_id": 7, "messages": [], "state": "Waiting", "reservation": None}))
    ran = run("oarsub", "--array-param-file", "params", "./x")
    assert server.requests[0].json["array"] == ["1 'a b'", "2 c"]
    assert (ran.code, ran.out) == (0, "OAR_JOB_ID=7\nOAR_JOB_ID=8\nOAR_ARRAY_ID=7\n")


def test_a_line_of_a_parameter_file_ends_where_lines_end_and_nowhere_else(run, server, tmp_path):
    (tmp_path / "params").write_bytes("a\x0cb\r\nc\u2028d\n".encode())
    server.says(DONE)
    run("oarsub", "--array-param-file", "params", "./x")
    assert server.requests[0].json["array"] == ["a\x0cb", "c\u2028d"]


def test_a_parameter_file_that_is_no_text_is_refused_with_the_place(run, server, tmp_path):
    (tmp_path / "params").write_bytes(b"caf\xe9\n")
    ran = run("oarsub", "--array-param-file", "params", "./x")
    told = "The parameter file params cannot be read: byte 4 of it is not valid UTF-8."
    assert (ran.code, ran.err) == (12, f"oarsub: {told}\n  `iconv -f latin1 -t utf8` converts older texts.\n")
    assert server.requests == []


def test_a_script_in_an_older_encoding_can_be_scanned(run, server, tmp_path):
    (tmp_path / "s.sh").write_bytes(b"#!/bin/sh\n# d\xe9j\xe0 vu\n#OAR -n old\n")
    server.says(DONE)
    assert run("oarsub", "-S", "./s.sh").code == 0
    assert server.requests[0].json["script"] == "#!/bin/sh\n# d\ufffdj\ufffd vu\n#OAR -n old\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-i", "absent"], "The key absent cannot be read: No such file or directory."),
        (["-i", "."], "The key . cannot be read: Is a directory."),
        (["-i", "large"], "large is no private key: it has more than 16384 bytes."),
        (["-i", "key.pub"], "key.pub is no private key: it is a public one."),
        (["-i", "nothing"], "nothing is no private key: it is empty."),
        (["-i", "words"], "words is no private key: there is none in it."),
        (["-i", "latin"], "latin is no private key: byte 3 of it is not valid UTF-8."),
        (
            ["-i", "key", "--import-job-key-inline", "secret"],
            "-i and --import-job-key-inline cannot be given",
        ),
        (["-e", ""], "-e needs the name of a file."),
        (["-e", "nowhere/key"], "The key cannot be written to nowhere/key: its folder does not exist."),
        (["-e", "link"], "The key cannot be written to link: it is a link, and a key is written through none."),
        (["-i", "key", "-e", "link"], "The key cannot be written to link: it is a link, and a key is written"),
        (["-e", "."], "The key cannot be written to .: it is a folder."),
    ],
)
def test_what_is_no_key_or_no_place_for_one_is_refused_at_once(run, server, tmp_path, words, says):
    (tmp_path / "key").write_text("-----BEGIN\nsecret\n")
    (tmp_path / "large").write_bytes(b"x" * 1_000_000)
    (tmp_path / "latin").write_bytes(b"ab\xe9")
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA ada@front\n")
    (tmp_path / "nothing").touch()
    (tmp_path / "words").write_text("no key at all\n")
    (tmp_path / "link").symlink_to("key")
    before = sorted(tmp_path.iterdir())
    ran = run("oarsub", *words, "x")
    assert (ran.code, server.requests, sorted(tmp_path.iterdir())) == (1, [], before)
    assert ran.err.startswith(f"oarsub: {says}")
    assert "secret" not in ran.err + ran.out


def test_a_key_is_sent_apart_from_the_words_of_the_command(run, server, tmp_path):
    (tmp_path / "key").write_text("-----BEGIN X-----\nsecret\n-----END X-----\n")
    server.says(DONE)
    ran = run("oarsub", "-i", "key", "--ssh_public_key", "public", "-e", "copy.%jobid%", "x")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "Import job key from file: key")
    sent = server.requests[0].json
    assert (sent["import_key"], sent["public_key"]) == ((tmp_path / "key").read_text(), "public")
    [copy] = tmp_path.glob("copy.*")
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ((tmp_path / "key").read_text(), 0o600)
    assert f"Export job key to file: {copy.name}" in ran.out.splitlines()


def test_an_exported_key_takes_the_place_of_a_file_and_of_a_link(run, server, tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "target").write_text("kept")
    server.says(DONE)
    assert run("oarsub", "-e", "old", "x").code == 0
    assert (tmp_path / "old").read_text() == server.requests[0].json["import_key"]
    (tmp_path / "key.42").symlink_to("target")
    server.says(DONE)
    assert run("oarsub", "-k", "-e", "key.%jobid%", "x").code == 0
    assert ((tmp_path / "target").read_text(), (tmp_path / "key.42").is_symlink()) == ("kept", False)


SCRIPT = "#!/bin/sh\n#OAR -l /nodes=2,walltime=1\n#OAR -n 'from script' -t besteffort\n#OAR --project p1\necho\n"


def test_a_script_is_sent_beside_what_was_typed(run, server, tmp_path):
    (tmp_path / "script.sh").write_text(SCRIPT)
    server.says(DONE)
    ran = run("oarsub", "-S", "-l", "core=1", "-n", "cli", "-t", "idempotent", "./script.sh", "arg")
    body = server.requests[0].json
    assert {key: body[key] for key in body if key not in {"environment", "initial_request", "submitted_from"}} == {
        "resources": ["core=1"],
        "name": "cli",
        "types": ["idempotent"],
        "command": "./script.sh arg",
        "script": SCRIPT,
        "launched_from": str(tmp_path),
    }
    assert ran == Ran(0, "OAR_JOB_ID=42\n", "")


def test_notes_on_the_script_go_to_the_error_output(run, server, tmp_path):
    (tmp_path / "script.sh").write_text(SCRIPT)
    done = {"job_ids": [42], "array_id": 42, "messages": [], "state": "Waiting", "reservation": None}
    server.says(ok(done | {"notes": ["Line 3 gives way."], "interactive": False}))
    assert run("oarsub", "-S", "./script.sh") == Ran(0, "OAR_JOB_ID=42\n", "oarsub: Line 3 gives way.\n")


def test_a_typed_directory_is_sent_beside_a_script(run, server, tmp_path):
    (tmp_path / "script.sh").write_text(SCRIPT)
    server.says(DONE)
    assert run("oarsub", "-S", "-d", "runs", "./script.sh").code == 0
    body = server.requests[0].json
    assert (body["directory"], "launched_from" in body) == (f"{tmp_path}/runs", False)


def test_a_parameter_file_that_a_script_names_is_read_here(run, server, tmp_path):
    (tmp_path / "script.sh").write_text("#!/bin/sh\n#OAR --array-param-file params\n")
    (tmp_path / "params").write_text("1 a\n2 b\n")
    needed = refusal(400, "ParameterFileNeeded", "Its lines were not sent.", text="params")
    server.says(needed, ok({"job_ids": [1, 2], "array_id": 1, "messages": [], "state": "Waiting", "reservation": None}))
    assert run("oarsub", "-S", "./script.sh").out == "OAR_JOB_ID=1\nOAR_JOB_ID=2\nOAR_ARRAY_ID=1\n"
    first, second = (request.json for request in server.requests)
    assert second == first | {"array": ["1 a", "2 b"]}


def test_without_S_a_script_is_not_opened(submitted):
    assert submitted("./not-there.sh") == {"command": "./not-there.sh"}


def test_messages_of_rules_come_before_the_number(run, server):
    messages = ["[ADMISSION RULE] one", "[ADMISSION RULE] two"]
    server.says(ok({"job_ids": [2], "array_id": 2, "messages": messages, "state": "Waiting", "reservation": None}))
    assert run("oarsub", "sleep 1") == Ran(0, "[ADMISSION RULE] one\n[ADMISSION RULE] two\nOAR_JOB_ID=2\n", "")


def test_an_array_tells_every_number_and_its_own(run, server):
    server.says(ok({"job_ids": [38, 39], "array_id": 38, "messages": [], "state": "Waiting", "reservation": None}))
    ran = run("oarsub", "--array", "2", "-n", "arr", "echo x")
    assert (ran.code, ran.out) == (0, "OAR_JOB_ID=38\nOAR_JOB_ID=39\nOAR_ARRAY_ID=38\n")


def test_an_array_of_one_is_an_array(run, server):
    server.says(DONE)
    assert run("oarsub", "--array", "1", "x").out == "OAR_JOB_ID=42\nOAR_ARRAY_ID=42\n"


def test_programs_find_the_number_between_two_rules(run, server):
    server.says(DONE)
    assert run("oarsub", "-Y", "true").out == "OAR_JOB_ID=42\n\n##########\n--- \njob_id: 42\n\n##########\n\n"


def test_programs_get_all_numbers_of_an_array(run, server):
    server.says(ok({"job_ids": [7, 8], "array_id": 7, "messages": []}))
    assert run("oarsub", "-J", "--array", "2", "x").out == (
        'OAR_JOB_ID=7\nOAR_JOB_ID=8\nOAR_ARRAY_ID=7\n\n##########\n'
        '{\n   "array_id" : 7,\n   "job_ids" : [\n      7,\n      8\n   ]\n}\n\n##########\n\n'
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reservation", "code", "told"),
    [
        ({"accepted": True, "says": "", "start": 1794767344}, 0, "Reservation valid --> OK"),
        ({"accepted": False, "says": "taken", "start": 1794768685}, 10,
         "Reservation not valid --> KO (This reservation could run at 2026-11-15 18:51:25)"),
    ],
)  # fmt: skip
def test_a_reservation_is_answered(run, server, reservation, code, told):
    server.says(ok({"job_ids": [7], "array_id": 7, "messages": [], "reservation": reservation}))
    out = f"OAR_JOB_ID=7\nReservation mode: waiting validation...\n{told}\n"
    assert run("oarsub", "-r", "2026-11-15 18:29:04", "date") == Ran(code, out, "")


def test_a_reservation_that_can_never_run_says_why(run, server):
    refused = {"accepted": False, "says": "only 4 nodes exist", "start": None}
    server.says(ok({"job_ids": [1], "array_id": 1, "messages": [], "reservation": refused}))
    ran = run("oarsub", "-r", "2026-11-15 18:29:04", "date")
    assert (ran.code, ran.out.splitlines()[-1]) == (10, "Reservation not valid --> KO (only 4 nodes exist)")


def test_an_unanswered_reservation_is_neither_refused_nor_accepted(run, server):
    unknown = {"accepted": None, "says": "The scheduler has not answered yet.", "start": None}
    server.says(ok({"job_ids": [7], "array_id": 7, "messages": [], "reservation": unknown}))
    ran = run("oarsub", "-r", "2026-11-15 18:29:04", "date")
    assert (ran.code, ran.out) == (9, "OAR_JOB_ID=7\nReservation mode: waiting validation...\n")
    assert ran.err == (
        "oarsub: The scheduler has not answered yet; the reservation may still be accepted.\n"
        "  `oarstat -fj 7` tells; `oardel 7` takes it back.\n"
    )


def test_a_reservation_that_is_held_as_asked_is_no_error(run, server):
    held = {"accepted": None, "says": "The reservation is held.", "start": None}
    server.says(ok({"job_ids": [7], "array_id": 7, "messages": [], "state": "Hold", "reservation": held}))
    ran = run("oarsub", "--hold", "-r", "2026-11-15 18:29:04", "date")
    assert (ran.code, ran.out, ran.err) == (0, "OAR_JOB_ID=7\nThe reservation is held.\n", "")


def test_a_job_is_submitted_once_more(run, server):
    server.says(ok({"job_ids": [55], "array_id": 55, "messages": [], "reservation": None}))
    assert run("oarsub", "--resubmit", "1") == Ran(0, "Resubmitting job 1...DONE\nOAR_JOB_ID=55\n", "")
    assert server.requests[0].json["resubmit"] == 1


def test_a_dry_run_tells_and_submits_nothing(run, server):
    server.says(
        ok({
            "start": 1794767344, "nodes": "node[1-4]", "says": "It would start in 10 minutes.",
            "sooner": "with walltime=0:30 it starts at once", "messages": ["[ADMISSION RULE] hello"],
        })
    )  # fmt: skip
    ran = run("oarsub", "--dry-run", "-l", "nodes=4", "x")
    assert server.requests[0].path == "/api/v1/jobs/dry-run"
    assert ran.code == 0
    assert ran.out == (
        "[ADMISSION RULE] hello\nIt would start in 10 minutes.\nStart: 2026-11-15 18:29:04\nNodes: node[1-4]\n"
        "Sooner: with walltime=0:30 it starts at once\nNothing was submitted.\n"
    )


def test_a_dry_run_of_what_never_starts_tells_why(run, server):
    server.says(ok({"start": None, "nodes": "", "says": "It would never start.", "sooner": None, "messages": []}))
    assert run("oarsub", "--dry-run", "x").out == "It would never start.\nNothing was submitted.\n"
    assert '"says" : "It would never start."' in run("oarsub", "--dry-run", "-J", "x").out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 5, "There is no command to run.\n  oarsub [OPTION]... COMMAND\n"),
        (["--array", "x", "y"], 1, "--array takes a whole number, not `x`.\n  Write --array=COUNT.\n"),
        (["--array", "0", "y"], 6, "An array of 0 jobs cannot be submitted.\n  Ask for 1 to 100000.\n"),
        (["--checkpoint", "abc", "y"], 1, "--checkpoint takes a whole number, not `abc`.\n"),
        (["--signal", "FOO", "y"], 1, "There is no signal `FOO`.\n  `kill -l` lists them.\n"),
        (["--signal", "65", "y"], 1, "There is no signal `65`.\n"),
        (["--signal", "", "y"], 1, "There is no signal ``.\n"),
        (["-r", "now, 2099-01-01 00:00:00", "y"], 7, "-r: `now` is not a date.\n"),
        (["-a", "abc", "y"], 1, "-a takes a whole number, not `abc`.\n"),
        (["-r", "tomorrow", "y"], 7, "-r: `tomorrow` is not a date with a time.\n"),
        (["-r", "2026-11-15 21:28", "y"], 7, "-r: `2026-11-15 21:28` is not a date with a time.\n"),
        (["-S", "./nope.sh"], 12, "The script ./nope.sh cannot be read: No such file"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_is_sent(run, server, words, code, told):
    ran = run("oarsub", *words)
    assert (ran.code, ran.out, ran.err[: len(told) + 8]) == (code, "", f"oarsub: {told}")
    assert server.requests == []


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["-I", "--array-param-file", "nowhere"], 9, "An interactive job cannot be an array."),
        (["-C", "1234", "-t", "noop"], 17, "A job of type noop has no shell to connect to."),
    ],
)
def test_what_cannot_be_together_is_refused_with_oars_exit_code(run, server, words, code, told):
    ran = run("oarsub", *words)
    first, way_out = ran.err.splitlines()
    assert (ran.code, ran.out, first, server.requests) == (code, "", f"oarsub: {told}", [])
    assert way_out.startswith("  Drop ")


@pytest.mark.parametrize(
    ("words", "kind", "more", "code"),
    [
        (["-q", "nosuch", "x"], "UnknownQueue", {}, 248),
        (["-I", "-r", "2030-11-15 18:29:04"], "InteractiveReservation", {}, 7),
        (["-I", "--array", "2"], "InteractiveArray", {}, 8),
        (["-I", "-t", "besteffort", "-t", "noop"], "InteractiveNoop", {}, 17),
        (["-l", "foo", "x"], "SyntaxRefused", {"text": "foo", "at": 3}, 255),
        (["-p", "mem=16; drop", "x"], "SyntaxRefused", {"text": "mem=16; drop", "at": 6}, 8),
        (["-p", "bogus=1", "x"], "UnknownProperty", {}, 8),
        (["-l", "nodes=5", "x"], "NotEnoughResources", {}, 8),
        (["-t", "nosuchtype", "x"], "RefusedByRule", {}, 254),
        (["-l", "core=1", "x"], "SubmitterRefused", {}, 254),
        (["--resubmit", "99999"], "UnknownJob", {}, 4),
        (["--resubmit", "1"], "NotYourJob", {}, 4),
    ],
)
def test_a_refusal_is_a_sentence_a_way_out_and_oars_code(run, server, words, kind, more, code):
    server.says(refusal(400, kind, "This is refused.", "This is the way out.", **more))
    ran = run("oarsub", *words)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err == "oarsub: This is refused.\n  This is the way out.\n"


def test_a_server_that_is_down_has_no_job_and_the_command_says_so(run):
    ran = run("oarsub", "true", OARLOCK_SERVER="/nowhere/server.sock")
    assert (ran.code, ran.out) == (9, "")
    assert ran.err == (
        "oarsub: No server answers at /nowhere/server.sock (No such file or directory); nothing was changed.\n"
        "  Try again later, or name another one with $OARLOCK_SERVER.\n"
    )


def test_a_server_that_breaks_off_leaves_it_open_whether_there_is_a_job(run, server):
    server.says(None)
    ran = run("oarsub", "true")
    assert (ran.code, ran.out) == (9, "")
    assert "Whether it was done is not known" in ran.err


def test_a_dry_run_leaves_nothing_open(run, server):
    server.says(None)
    ran = run("oarsub", "--dry-run", "true")
    assert (ran.code, "not known" in ran.err) == (9, False)
    assert "request-id" not in server.requests[0].headers


def test_a_name_is_not_sent_to_the_terminal_as_a_command(run, server):
    server.says(refusal(400, "BadName", "`\x1b[2Jx` is no name.", "Use letters."))
    assert run("oarsub", "-n", "\x1b[2Jx", "y").err == "oarsub: `\\x1b[2Jx` is no name.\n  Use letters.\n"


def _syntax(words: list[str]) -> bytes:
    """Answer as the server does to a request that it cannot read."""
    try:
        request.parse(words)
    except OarlockError as error:
        status, body = refusals.refusal(error)
        return answer(status, json.loads(body))
    raise AssertionError("it can be read")


def test_an_option_of_the_command_suggests_two_dashes(run, server):
    server.says(_syntax(["a"]))
    assert run("oarsub", "ls", "-la").err.endswith("If it belongs to the command: oarsub -- ls -la\n")
    ran = run("oarsub", "-n", "ls", "ls", "-z")
    assert ran.err == (
        "oarsub: There is no option -z.\n"
        "  `oarsub --help` lists them. If it belongs to the command: oarsub -n ls -- ls -z\n"
    )
    assert "belongs" not in run("oarsub", "-la", "ls").err


@pytest.mark.parametrize("words", [["test.sh"], ["test.sh 1 2"], ["test.sh", "1", "2"]])
def test_a_file_in_the_launching_directory_needs_no_path(submitted, tmp_path, words):
    (tmp_path / "test.sh").write_text("#!/bin/sh\n")
    assert submitted(*words) == {"command": f"./{' '.join(words)}"}


@pytest.mark.parametrize("name", ["sleep", "exit", "nosuch"])
def test_what_the_shell_finds_itself_stays_as_it_was_typed(submitted, tmp_path, name):
    (tmp_path / "sleep").touch()
    (tmp_path / "exit").touch()
    assert submitted(f"{name} 1") == {"command": f"{name} 1"}


def test_a_file_is_looked_for_where_the_job_will_run(run, server, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.out").touch()
    server.says(DONE)
    run("oarsub", "-d", "runs", "a.out")
    run("oarsub", "a.out")
    assert [request.json["command"] for request in server.requests] == ["./a.out", "a.out"]


def test_a_script_may_have_a_blank_in_its_path(submitted, tmp_path):
    (tmp_path / "my jobs").mkdir()
    (tmp_path / "my jobs" / "a b.sh").write_text("#!/bin/sh\n#OAR -n told\n")
    text = "#!/bin/sh\n#OAR -n told\n"
    assert submitted("-S", "-d", str(tmp_path), "my jobs/a b.sh", "1") == {
        "command": "'my jobs/a b.sh' 1",
        "script": text,
    }


@pytest.mark.parametrize("words", [["./dos.sh"], ["dos.sh x"], ["-S", "./dos.sh"], ["-S", "my dos.sh"]])
def test_a_script_with_lines_as_on_windows_is_refused_with_the_way_out(run, server, tmp_path, words):
    for name in ("dos.sh", "my dos.sh"):
        (tmp_path / name).write_bytes(b"#!/bin/sh\r\n#OAR -n x\r\ntrue\r\n")
    ran = run("oarsub", *words)
    assert (ran.code, ran.out, server.requests) == (12, "", [])
    assert "dos.sh end as on Windows (CR LF): its interpreter would not be found.\n  sed -i 's/\\r$//' " in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["-l", "nodes=2"], "--resource"), (["--name=x"], "--name"), (["true"], "a command"), (["--hold"], "--hold")],
)
def test_what_is_given_beside_resubmit_is_refused_not_ignored(run, server, words, said):
    ran = run("oarsub", "--resubmit=7", *words)
    assert (ran.code, server.requests) == (4, [])
    assert ran.err.startswith(f"oarsub: --resubmit submits job 7 again as it was; {said} cannot be given beside it.\n")


def test_a_job_is_entered_only_where_a_server_answers(run, tmp_path):
    ran = run("oarsub", "-C", "1", OARLOCK_SERVER=str(tmp_path / "nobody" / "server.sock"))
    assert (ran.code, ran.out, ran.err.startswith("oarsub: No server answers at ")) == (9, "", True)


@pytest.mark.parametrize("number", ["x", "-1", "", "1.5", "١"])
def test_what_is_not_the_number_of_a_job_cannot_be_entered(run, server, number):
    ran = run("oarsub", "-C", number)
    assert (ran.code, ran.out, server.requests) == (1, "", [])
