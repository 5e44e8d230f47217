"""oarlock audit as a process."""

import json

import pytest

from tests.canned import ok, refusal

ENDED = {
    "id": 7, "date": 1000000, "user": "root", "behalf": "", "verb": "jobs.delete", "channel": "socket",
    "asked": '{"ids":[4,5],"array":null,"where":null,"checkpoint":false,"signal":null,"exterminate":true}',
    "refused": "",
}  # fmt: skip
FOR_ADA = {**ENDED, "id": 12, "behalf": "ada", "verb": "jobs.submit", "channel": "token", "asked": '{"command":"a b'}


def test_changes_are_a_line_each_without_what_was_left_open(run, server):
    server.says(ok({"changes": [ENDED, FOR_ADA], "broken": None}))
    ran = run("oarlock", "audit")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "     7  1970-01-12 13:46:40  root (socket)  jobs.delete  ids=4,5 exterminate=True\n"
        '    12  1970-01-12 13:46:40  root for ada (token)  jobs.submit  {"command":"a b\n'
    )


def test_a_refused_request_says_why(run, server):
    refused = {**ENDED, "user": "bob", "asked": '{"ids":[4]}', "refused": "This belongs to ada,\n not to bob."}
    server.says(ok({"changes": [refused, {**refused, "user": "", "asked": ""}], "broken": None}))
    assert run("oarlock", "audit").out == (
        "     7  1970-01-12 13:46:40  bob (socket)  jobs.delete  ids=4  refused: This belongs to ada, not to bob.\n"
        "     7  1970-01-12 13:46:40  unknown (socket)  jobs.delete  refused: This belongs to ada, not to bob.\n"
    )


def test_filters_are_asked_of_the_server(run, server):
    server.says(ok({"changes": [], "broken": None}))
    ran = run("oarlock", "audit", "-u", "ada", "-j", "4", "--since", "1970-01-12 13:46:40", "--last", "5", "--check")
    assert (ran.code, ran.out) == (0, "The record is whole.\n")
    asked = "/api/v1/audit?by=ada&job=4&since=1000000&limit=5&check=true"
    assert [(request.method, request.path) for request in server.requests] == [("GET", asked)]


def test_a_record_that_was_edited_is_told_and_ends_with_two(run, server):
    server.says(ok({"changes": [ENDED], "broken": 7}))
    ran = run("oarlock", "audit", "--check", "-J")
    assert json.loads(ran.out) == {"changes": [ENDED], "broken": 7}
    assert (ran.code, ran.err.partition("\n")[0]) == (
        2,
        "oarlock: Entry 7 of the record is not as it was written, or one before it was taken out.",
    )


def test_who_may_not_read_it_is_told_so(run, server):
    server.says(refusal(403, "Forbidden", "Only administrators may do this; ada is not one.", "Ask one."))
    ran = run("oarlock", "audit")
    assert (ran.code, ran.err) == (
        2,
        "oarlock: Only administrators may do this; ada is not one.\n  Ask one.\n",
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--since", "yesterday"), "oarlock: --since: `yesterday` is not a date.\n"),
        (("--job", "x"), "--job takes a whole number, not `x`."),
    ],
)
def test_a_bad_filter_is_refused(run, words, says):
    ran = run("oarlock", "audit", *words)
    assert ran.code == 2
    assert says in ran.err
