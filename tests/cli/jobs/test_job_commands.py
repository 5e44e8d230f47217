"""oardel, oarhold and oarresume as processes, which words ask for what, and how answers are printed."""

import pytest

from tests.canned import ok, refusal
from tests.cli.conftest import Ran


def done(*ids, says=""):
    return ok({"jobs": [{"job_id": job_id, "done": True, "says": says} for job_id in ids]})


def not_done(job_id, says, kind):
    return ok({"jobs": [{"job_id": job_id, "done": False, "says": says, "kind": kind}]})


@pytest.mark.parametrize(
    ("command", "words", "path", "body"),
    [
        ("oardel", ["14", "42"], "delete", {"ids": [14, 42]}),
        ("oardel", ["--sql", "project='p1'"], "delete", {"where": "project='p1'"}),
        ("oardel", ["--array", "80"], "delete", {"array": 80}),
        ("oardel", ["-c", "42"], "delete", {"ids": [42], "checkpoint": True}),
        ("oardel", ["-s", "10", "42"], "delete", {"ids": [42], "signal": 10}),
        ("oardel", ["-s", "SIGUSR1", "42"], "delete", {"ids": [42], "signal": 10}),
        ("oardel", ["--signal=usr2", "42"], "delete", {"ids": [42], "signal": 12}),
        ("oardel", ["--force-terminate-finishing-job", "4"], "delete", {"ids": [4], "exterminate": True}),
        ("oarhold", ["3", "4"], "hold", {"ids": [3, 4], "running": False}),
        ("oarhold", ["-r", "--array", "3"], "hold", {"array": 3, "running": True}),
        ("oarresume", ["--sql", "user='me'"], "resume", {"where": "user='me'"}),
        ("oarresume", ["5"], "resume", {"ids": [5]}),
    ],
)
def test_the_chosen_jobs_are_sent(run, server, command, words, path, body):
    server.says(ok({"jobs": []}))
    assert run(command, *words) == Ran(0, "", "")
    [request] = server.requests
    assert (request.method, request.path, request.json) == ("POST", f"/api/v1/jobs/{path}", body)


@pytest.mark.parametrize(
    ("command", "words", "answer", "out"),
    [
        ("oardel", ["22"], done(22),
         "Deleting the job = 22 ...REGISTERED.\nThe job(s) [ 22 ] will be deleted in the near future.\n"),
        ("oardel", ["-c", "88"], done(88, says="It was notified."),
         "Checkpointing the job 88 ...DONE.\nIt was notified.\n"),
        ("oardel", ["-s", "SIGUSR1", "87"], done(87, says="It was notified."),
         "Signaling the job 87 with SIGUSR1 signal.\nDONE.\nIt was notified.\n"),
        ("oarhold", ["91"], done(91), "[91] Hold request was sent to the OAR server.\n"),
        ("oarresume", ["91"], done(91), "[91] Resume request was sent to the OAR server.\n"),
    ],
)  # fmt: skip
def test_what_was_done_is_told(run, server, command, words, answer, out):
    server.says(answer)
    assert run(command, *words) == Ran(0, out, "")


@pytest.mark.parametrize(
    ("code", "command", "words", "kind"),
    [
        (6, "oardel", ["78"], "KillAsked"),
        (1, "oardel", ["78"], "Forbidden"),
        (1, "oarhold", ["78"], "IllegalMove"),
        (1, "oarhold", ["78"], "UnknownJob"),
        (1, "oarresume", ["78"], "Forbidden"),
    ],
)
def test_a_job_to_which_nothing_was_done_gives_a_sentence_and_oars_code(run, server, code, command, words, kind):
    server.says(not_done(78, "It was refused.", kind))
    ran = run(command, *words)
    assert (ran.code, ran.err) == (code, f"{command}: It was refused.\n")
    assert ran.out == ("Deleting the job = 78 ...ERROR.\n" if command == "oardel" else "")


def test_the_jobs_that_were_deleted_are_told_of_beside_those_that_were_not(run, server):
    jobs = [{"job_id": 1, "done": True, "says": ""}, {"job_id": 2, "done": False, "says": "Not yours.", "kind": "X"}]
    server.says(ok({"jobs": jobs}))
    ran = run("oardel", "1", "2")
    assert ran.out == (
        "Deleting the job = 1 ...REGISTERED.\nDeleting the job = 2 ...ERROR.\n"
        "The job(s) [ 1 ] will be deleted in the near future.\n"
    )
    assert (ran.code, ran.err) == (1, "oardel: Not yours.\n")


def test_of_two_arrays_the_first_is_told_of_when_the_second_is_refused(run, server):
    server.says(done(80), refusal(404, "UnknownJob", "There is no array 9.", "`oarstat --array` lists them."))
    ran = run("oardel", "--array", "80", "9")
    assert ran.out == (
        "Deleting the job = 80 ...REGISTERED.\nThe job(s) [ 80 ] will be deleted in the near future.\n"
    )  # fmt: skip
    assert (ran.code, ran.err) == (1, "oardel: There is no array 9.\n  `oarstat --array` lists them.\n")
    assert server.requests[0].headers["request-id"] != server.requests[1].headers["request-id"]


def test_giving_up_a_job_is_for_administrators(run, server):
    server.says(refusal(403, "Forbidden", "Only administrators may do this.", "ADMINS names them."))
    assert run("oardel", "--force-terminate-finishing-job", "89") == Ran(
        8, "", "oardel: Only administrators may do this.\n  ADMINS names them.\n"
    )


@pytest.mark.parametrize(
    ("command", "words", "code", "told"),
    [
        ("oardel", [], 1, 'No job is named.\n  oardel JOB..., or oardel --sql "CONDITION"\n'),
        ("oarhold", [], 1, 'No job is named.\n  oarhold JOB..., or oarhold --sql "CONDITION"\n'),
        ("oardel", ["abc"], 4, "`abc` is not a job number.\n  `oarstat` lists the jobs.\n"),
        ("oardel", ["-s", "FOO", "1"], 1, "There is no signal `FOO`.\n  `kill -l` lists them.\n"),
        ("oardel", ["-s", "SIG_DFL", "1"], 1, "There is no signal `SIG_DFL`.\n  `kill -l` lists them.\n"),
        ("oardel", ["-s", "65", "1"], 1, "There is no signal `65`.\n  `kill -l` lists them.\n"),
        ("oardel", ["-s", "0", "1"], 1, "There is no signal `0`.\n  `kill -l` lists them.\n"),
        ("oardel", ["-c", "-s", "1", "1"], 1,
         "Only one of -b, -c, -s and --force-… can be given.\n  Choose one.\n"),
        ("oardel", ["--sql", "x", "1"], 1,
         "--sql and job numbers cannot be given together.\n  Give one of them.\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_it_is_sent(run, server, command, words, code, told):
    assert run(command, *words) == Ran(code, "", f"{command}: {told}")
    assert server.requests == []


def test_a_server_that_is_down_has_deleted_nothing(run):
    ran = run("oardel", "1", OARLOCK_SERVER="/nowhere/server.sock")
    assert (ran.code, ran.out) == (2, "")
    assert "nothing was changed" in ran.err
