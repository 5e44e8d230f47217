"""What is sent becomes a submission, or is refused by the name of what is wrong."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.config import Config
from oarlock.job.admission.parse import allow, read, written
from oarlock.job.admission.payload import ARRAY_MEMBERS, SubmissionPayload, from_fields
from oarlock.lang.request import parse
from oarlock.model import errors, submission_errors
from oarlock.model.job import JobKind
from oarlock.model.submission import Submission

NOW = 1_800_000_000


def taken(body: dict, **who) -> Submission:
    return read(from_fields(body), **{"user": "ada", "groups": ["users"], "config": Config(), "now": NOW, **who})


def test_a_whole_submission_is_read():
    body = {
        "resources": ["nodes=2,walltime=1", "/nodes=1"], "properties": "mem > 4", "queue": "night",
        "command": "./run", "name": "a b", "project": "p", "types": ["besteffort", "inner=4", "besteffort"],
        "after": [7, 8, 7], "hold": True, "checkpoint": 60, "signal": 10,
        "notify": "[END,ERROR]exec:/bin/tell me", "directory": "/home/ada", "environment": {"B": "2\n", "A": "1"},
        "stdout": "o.%jobid%", "stderr": "/tmp/e", "array": ["1 2", "x"], "use_key": True, "initial_request": "oarsub",
        "submitted_from": "login1:4711",
    }  # fmt: skip
    assert taken(body) == Submission(
        user="ada", groups=("users",), request=parse(["nodes=2,walltime=1", "/nodes=1"], where="mem > 4"),
        queue="night", command="./run", name="a b", project="p", types=("besteffort", "inner=4"), after=(7, 8),
        hold=True, checkpoint=60, checkpoint_signal=10, notify="[END,ERROR]exec:/bin/tell me", directory="/home/ada",
        environment='{"A": "1", "B": "2\\n"}', stdout="o.%jobid%", stderr="/tmp/e", array=("1 2", "x"), use_key=True,
        initial_request="oarsub", submitted_from="login1:4711",
    )  # fmt: skip


def test_what_is_not_said_is_the_sites_default():
    config = Config(oarsub_default_resources="/core=4,walltime=3", oarsub_force_job_key=True)
    assert taken({"command": "true"}, config=config) == Submission(
        user="ada", groups=("users",), request=parse(["/core=4,walltime=3"]), command="true", use_key=True
    )


def test_a_reservation_for_now_begins_by_the_servers_clock():
    assert taken({"reservation": "now", "command": "true"}).reservation == (NOW, None)


def test_an_interactive_job_needs_no_command():
    made = taken({"interactive": True})
    assert (made.kind, made.command) == (JobKind.INTERACTIVE, None)


@pytest.mark.parametrize("body", [{"types": ["noop"]}, {"reservation": NOW + 60}, {"resubmit": 4}])
def test_jobs_that_run_nothing_of_their_own_need_none_either(body):
    assert taken(body).command is None


def test_a_name_is_taken_as_long_as_the_output_files_can_be_made(tmp_path):
    longest = "n" * 233
    assert taken({"command": "true", "name": longest}).name == longest
    (tmp_path / f"OAR.{longest}.9999999999.stdout").touch()
    with pytest.raises(
        submission_errors.BadName, match="stdout file would be 256 bytes long; a file name has at most 255"
    ):
        taken({"command": "true", "name": longest + "n"})
    own_files = {"stdout": "o", "stderr": "e"}
    assert taken({"command": "true", "name": "n" * 255, **own_files}).stdout == "o"
    with pytest.raises(submission_errors.BadName, match="stderr file would be 258 bytes long"):
        taken({"command": "true", "name": "é" * 128, **own_files, "stderr": "logs/%jobname%.e"})


REFUSED = [
    ({}, submission_errors.NoCommand),
    ({"command": " "}, submission_errors.NoCommand),
    ({"user": "root"}, errors.UnknownField),
    ({"uid": 0}, errors.UnknownField),
    ({"gid": 0}, errors.UnknownField),
    ({"on_behalf_of": "bob"}, errors.UnknownField),
    ({"comand": "x"}, errors.UnknownField),
    ({"name": 3}, errors.BadField),
    ({"types": "besteffort"}, errors.BadField),
    ({"checkpoint": "abc"}, errors.BadField),
    ({"hold": "yes"}, errors.BadField),
    ({"after": ["x"]}, errors.BadField),
    ({"array": 4}, errors.BadField),
    ({"environment": {"A": 1}}, errors.BadField),
    ({"name": ""}, submission_errors.BadName),
    ({"name": "../x"}, submission_errors.BadName),
    ({"name": "a\nb"}, submission_errors.BadName),
    ({"name": "x" * 256}, submission_errors.BadName),
    ({"project": "\x1b[2J"}, submission_errors.BadName),
    ({"queue": "no such"}, errors.UnknownQueue),
    ({"types": ["a b"]}, submission_errors.BadType),
    ({"types": ["timesharing=foo,bar"]}, submission_errors.BadType),
    *(
        ({"types": [one]}, submission_errors.BadType)
        for one in (
            "inner",
            "inner=",
            "inner=a b",
            "inner=4x",
            "container=4",
            "container=",
            "placeholder",
            "placeholder=7",
            "allow",
            "allowed=/",
            "postpone",
            "postpone=soon",
            "postpone=2026-02-30",
            "deadline=2026-13-01 10:00",
            "deadline=1971-01-01",
            "deadline=5",
            "expire",
            "expire=soon",
            "expire=1971-01-01",
            "origin",
            "origin=",
        )
    ),
    ({"types": ["inner"]}, submission_errors.BadType),
    ({"types": ["t"] * 65}, errors.TooLong),
    ({"notify": "tell me"}, submission_errors.BadNotify),
    ({"notify": "exec:run"}, submission_errors.BadNotify),
    ({"notify": "exec:/bin/run 'it"}, submission_errors.BadNotify),
    ({"notify": "[END,NEVER]mail:a@b"}, submission_errors.BadNotify),
    ({"checkpoint": -1}, submission_errors.BadCheckpoint),
    ({"signal": 0}, submission_errors.BadSignal),
    ({"signal": 65}, submission_errors.BadSignal),
    ({"directory": "tmp"}, submission_errors.BadPath),
    ({"directory": "/\0"}, submission_errors.BadPath),
    ({"stdout": ""}, submission_errors.BadPath),
    ({"stdout": "/x" * 4000}, errors.TooLong),
    ({"command": "x\0"}, submission_errors.BadPath),
    ({"command": "x" * 65537}, errors.TooLong),
    ({"script": "#" * (1 << 20) + "#"}, errors.TooLong),
    ({"environment": {"A=B": ""}}, submission_errors.BadEnvironment),
    ({"environment": {"A": "\0"}}, submission_errors.BadEnvironment),
    ({"environment": {"A": "x" * 131072}}, errors.TooLong),
    ({"array": []}, submission_errors.BadArray),
    ({"array": [""] * (ARRAY_MEMBERS + 1)}, submission_errors.BadArray),
    ({"array": ["x" * 4097]}, errors.TooLong),
    ({"after": list(range(1001))}, errors.TooLong),
    ({"after": [0]}, submission_errors.UnknownDependency),
    ({"after": [2**63]}, submission_errors.UnknownDependency),
    ({"resubmit": 2**63}, errors.UnknownJob),
    ({"resources": ["nodes=1"] * 65}, errors.TooLong),
    ({"import_key": "k" * 20000}, errors.TooLong),
    ({"reservation": "tomorrow"}, submission_errors.BadReservation),
    ({"reservation": "Now"}, submission_errors.BadReservation),
    ({"reservation": "2031-02-30 10:00:00"}, submission_errors.BadReservation),
    ({"reservation": "2031-02-03 10:00"}, submission_errors.BadReservation),
    ({"reservation": "2001-02-03 10:00:00"}, submission_errors.ReservationPast),
    ({"reservation": "2031-02-03 10:00:00, 2031-02-03 09:00:00"}, submission_errors.BadReservation),
    ({"reservation": NOW - 7200}, submission_errors.ReservationPast),
    ({"reservation": NOW - 60, "resources": ["nodes=1,walltime=0:1"]}, submission_errors.ReservationPast),
    ({"reservation": f"{NOW - 60}, {NOW}"}, submission_errors.ReservationPast),
    ({"reservation": 2**70}, submission_errors.BadReservation),
    ({"reservation": 2**60}, submission_errors.BadReservation),
    ({"interactive": True, "array": [""]}, submission_errors.InteractiveArray),
    ({"interactive": True, "types": ["noop"]}, submission_errors.InteractiveNoop),
    ({"interactive": True, "reservation": NOW + 60}, submission_errors.InteractiveReservation),
]


@pytest.mark.parametrize(("body", "refusal"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_cannot_be_is_refused(body, refusal):
    whole = body if refusal is submission_errors.NoCommand else {"command": "true", **body}
    with pytest.raises(errors.OarlockError) as refused:
        taken(whole)
    assert type(refused.value) is refusal
    assert refused.value.hint


@pytest.mark.parametrize(("user", "uid"), [("root", 0), ("root", None), ("toor", 0), ("daemon", 2), ("oar", 999)])
def test_root_and_accounts_of_the_system_run_no_jobs(user, uid):
    with pytest.raises(submission_errors.SubmitterRefused):
        allow(user, uid, Config())


def test_a_site_says_where_users_begin():
    allow("ada", 500, Config(job_min_uid=500))
    with pytest.raises(
        submission_errors.SubmitterRefused, match=r"`ada` \(uid 500\) does not run jobs: uids begin at 501"
    ):
        allow("ada", 500, Config(job_min_uid=501))


def test_dates_are_in_the_servers_own_time(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    try:
        asked = {"command": "true", "reservation": "2031-07-01 12:00:00, 2031-07-01 13:30:00"}
        made = taken({**asked, "resources": ["nodes=1", "nodes=2,walltime=1"]})
    finally:
        monkeypatch.undo()
        time.tzset()
    assert made.reservation == (1_940_666_400, 1_940_671_800)
    assert [one.walltime for one in made.request.alternatives] == [5400, 3600]


@pytest.mark.parametrize("body", [{"reservation": NOW - 1}, {"reservation": f"{NOW - 1}, {NOW + 1}"}])
def test_a_late_reservation_is_taken_while_some_of_it_is_left(body):
    assert taken({"command": "true", **body}).reservation[0] == NOW - 1


def test_two_instants_are_the_same_everywhere():
    made = taken({"command": "true", "reservation": f"{NOW + 60}, {NOW + 660}", "resources": ["nodes=1"]})
    assert made.reservation == (NOW + 60, NOW + 660)
    assert [one.walltime for one in made.request.alternatives] == [600]


def test_what_a_rule_sees_is_read_back_as_it_was():
    made = taken({
        "resources": ["{mem > 4 or mem = 1}/nodes=2/core=ALL,walltime=0:30"], "properties": "a = 'it''s'",
        "command": "x", "name": "n", "types": ["noop"], "reservation": NOW + 5, "checkpoint": 3, "notify": "mail:a@b",
    })  # fmt: skip
    assert taken(written(made)) == made


@given(
    st.dictionaries(
        st.sampled_from([*SubmissionPayload.__struct_fields__, "user", "x"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.lists(st.text(max_size=5), max_size=3)
        | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        max_size=6,
    )
)  # fmt: skip
def test_whatever_is_sent_a_submission_or_a_refusal_of_ours_comes_out(body):
    try:
        made = taken(body)
    except errors.OarlockError as refusal:
        made = refusal
    assert isinstance(made, Submission) or made.full_text()
    if isinstance(made, Submission) and made.environment:
        assert json.loads(made.environment) == body["environment"]
