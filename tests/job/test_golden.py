"""What a recorded OAR 2.5 was asked is answered alike here: the same refusals, the same words of the rules."""

import json
import re
import shlex
from typing import Any

import pytest

from oarlock.lang.request import parse
from oarlock.lang.where import show
from oarlock.model import errors, submission_errors
from oarlock.model.resource import ResourceState
from oarlock.model.snapshot import Queue
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.site import administration
from tests.job.submitter import NOW, Submitter, add_cluster, body_of
from tests.lang.cases import DATA, needs_golden, oar_cases

GOLDEN = DATA / "oar2-golden"

REFUSED = {
    "bad_besteffort_resa": submission_errors.RefusedByRule,
    "bad_checkpoint": errors.BadField,
    "bad_deploy_core": submission_errors.RefusedByRule,
    "bad_inner": submission_errors.RefusedByRule,
    "bad_no_command": submission_errors.NoCommand,
    "bad_p_none_match": submission_errors.NotEnoughResources,
    "bad_queue": errors.UnknownQueue,
    "bad_reservation_date": submission_errors.BadReservation,
    "bad_resource_state": submission_errors.RefusedByRule,
    "bad_root": submission_errors.SubmitterRefused,
    "bad_signal": errors.BadField,
    "bad_sql_inject": errors.SyntaxRefused,
    "bad_syntax_brace": errors.SyntaxRefused,
    "bad_syntax_l": errors.SyntaxRefused,
    "bad_syntax_word": errors.SyntaxRefused,
    "bad_too_many": submission_errors.NotEnoughResources,
    "bad_too_many_core": submission_errors.NotEnoughResources,
    "bad_type": submission_errors.RefusedByRule,
    "bad_type_timesharing": submission_errors.BadType,
    "bad_unknown_prop_p": submission_errors.UnknownProperty,
    "bad_value_float": submission_errors.BadCount,
    "bad_value_neg": submission_errors.BadCount,
    "bad_value_zero": submission_errors.ZeroResources,
    "resa_short_date": submission_errors.BadReservation,
    "sub_array_zero": submission_errors.BadArray,
    "sub_deploy": submission_errors.NotEnoughResources,
    # OAR takes these, and breaks or waits for ever.
    "bad_walltime_4f": submission_errors.BadDuration,
    "bad_walltime_zero": submission_errors.BadDuration,
    "sub_anterior_unknown": submission_errors.UnknownDependency,
    "sub_deadline_past": submission_errors.BadType,
}
NOT_A_SUBMISSION = {
    *("bad_connect", "bad_connect_unknown", "bad_cwd"),  # other verbs, and a shell's own directory
    *("sub_anterior_two", "sub_resubmit_1", "sub_resubmit_other_user", "sub_resubmit_unknown"),  # need other jobs
    *("sub_array_bad",),  # refused by the command
    *(f"sub_scanscript{kind}" for kind in ("", "_bad", "_missing", "_noexec", "_override")),  # need a file
}


def recorded(*patterns: str) -> list:
    return [
        pytest.param(path, id=path.stem)
        for pattern in patterns
        for path in sorted(GOLDEN.glob(pattern))
        if path.stem not in NOT_A_SUBMISSION and path.stem not in REFUSED
    ]


def words_of(path) -> list[str]:
    return shlex.split(path.read_text().partition("\n")[0])[2:]


@pytest.fixture
def submitter(tx: Tx) -> Submitter:
    add_cluster(tx)
    administration.add_queue(tx, Queue("night", 1, "oar_sched_gantt_with_timesharing"))
    return Submitter(tx)


@needs_golden
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_oar_refuses_is_refused_with_a_sentence_and_a_way_out(submitter: Submitter, name: str):
    path = GOLDEN / f"{name}.txt"
    if "user=root" in path.read_text():
        submitter.user, submitter.uid = "root", 0
    with pytest.raises(errors.OarlockError) as refusal:
        submitter.typed(words_of(path))
    assert type(refusal.value) is REFUSED[name]
    assert str(refusal.value)
    assert refusal.value.hint or isinstance(refusal.value, errors.SyntaxRefused)


@needs_golden
@pytest.mark.parametrize("path", recorded("sub_*.txt", "bad_name_space.txt"))
def test_what_oar_takes_is_taken_with_the_same_words_of_the_rules(submitter: Submitter, path):
    _, messages = submitter.typed(words_of(path))
    assert messages == tuple(re.findall(r"^\[ADMISSION RULE\].*$", path.read_text(), re.MULTILINE))


@needs_golden
def test_the_message_of_a_job_is_as_oar_writes_it(submitter: Submitter):
    recorded_ = json.loads((GOLDEN / "stat_J_f.txt").read_text().split("--- stdout\n")[1].split("--- stderr")[0])
    [expected] = recorded_.values()
    [job], _ = submitter.typed(shlex.split(expected["initial_request"])[1:])
    assert f"{job.message} (Karma=0.000,quota_ok)" == expected["message"]
    assert job.stdout.replace("%jobid%", "78") == expected["stdout_file"]
    assert job.properties == "desktop_computing = 'NO' AND drain = 'NO'"


@pytest.mark.parametrize("case", oar_cases("admission"))
def test_the_shipped_rules_decide_as_oars_own_tests_say(submitter: Submitter, case):
    decide(submitter, case["input"]["job"], case["expected"])


def decide(submitter: Submitter, job: dict[str, Any], expected: dict[str, Any]) -> None:
    """Let the rules look at a job; properties that OAR's tests invent are added."""
    asked = dict(job)
    submitter.user = asked.pop("user", "yop")
    body = {
        "resources": asked.pop("resource", []),
        "interactive": asked.pop("job_type", "PASSIVE") == "INTERACTIVE",
        "reservation": LATER if asked.pop("reservation", None) else None,
        "command": "true",
    }
    for _ in range(asked.pop("waiting_reservations", 0)):
        submitter.submit(reservation=LATER)
    invented = set(re.findall(r"([a-z_]+)\s*=", " ".join([*body["resources"], asked.get("properties", "")])))
    for name in sorted(invented - set(properties.types(submitter.tx)) - {"nodes", "walltime"}):
        properties.add(submitter.tx, name, str)
    if expected.get("refused"):
        with pytest.raises(submission_errors.RefusedByRule):
            submitter.admit(**asked, **body)
        return
    made = submitter.admit(**asked, **body).submission
    [*groups] = [group for one in made.request.alternatives for group in one.groups]
    found = {
        "queue": made.queue,
        "types": list(made.types),
        "properties": plain(show(made.request.where) if made.request.where else ""),
        "properties_applied_after_validation": plain("".join(made.rule_where)),
        "group_properties": [plain(show(group.where) if group.where else "") for group in groups],
        "walltimes": [one.walltime for one in made.request.alternatives],
    }
    assert found["properties"].startswith(plain(expected.get("properties", "")))
    rest = {key: value for key, value in expected.items() if key != "properties"}
    assert {key: found[key] for key in rest} == {key: like(value) for key, value in rest.items()}


def plain(condition: str) -> str:
    """Write a condition without what makes no difference in those of the cases: blanks and parentheses."""
    return re.sub(r"[\s()]", "", condition)


def like(value: Any) -> Any:
    if isinstance(value, list):
        return [like(one) for one in value]
    return plain(value) if isinstance(value, str) else value


LATER = NOW + 86_400
BESTEFFORT = "besteffort = 'YES'"


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"user": "alice"}, {"queue": "default"}),
        ({"queue": "besteffort"}, {"types": ["besteffort"], "properties": BESTEFFORT}),
        ({"types": ["besteffort"]}, {"queue": "besteffort", "properties": BESTEFFORT}),
        ({"queue": "besteffort", "properties": "yop=yop"}, {"properties": f"(yop=yop) AND {BESTEFFORT}"}),
        ({"queue": "besteffort", "reservation": "yes"}, {"refused": True}),
        (
            {"types": ["deploy"], "resource": ["network_address=1"], "properties": "yop=yop"},
            {"properties": "(yop=yop) AND deploy = 'YES'"},
        ),
        ({"types": ["deploy"], "resource": ["nodes=1/resource_id=1"]}, {"refused": True}),
        ({"reservation": "yes", "waiting_reservations": 1}, {"queue": "default"}),
        ({"reservation": "yes", "waiting_reservations": 2}, {"refused": True}),
        ({"job_type": "INTERACTIVE", "resource": ["/nodes=2/core=10, walltime=14:00:00"]}, {"walltimes": [43200]}),
        ({"resource": ["nodes=1", "core=3,walltime=1"]}, {"walltimes": [7200, 3600]}),
        (
            {"resource": ["/nodes=2/core=10+{lic='yop'}/n=1, walltime=14:00:00"]},
            {"group_properties": ["type='default'", "(lic='yop') AND type='default'"], "walltimes": [50400]},
        ),
        ({"types": ["no_quotas"]}, {"refused": True}),
        ({"types": ["t1", "t2"]}, {"refused": True}),
    ],
)  # fmt: skip
def test_the_shipped_rules_decide_as_oars_own_do(submitter: Submitter, job, expected):
    decide(submitter, job, expected)


@pytest.mark.parametrize("case", oar_cases("oarsub_cli"))
def test_submissions_of_oars_own_tests_come_out_as_they_say(submitter: Submitter, case):
    words, expected = case["input"]["argv"], case["expected"]
    if "exit" in expected:
        pytest.skip("tests/golden runs the command itself")
    if "refused" in expected:
        with pytest.raises(errors.OarlockError) as refusal:
            with_five_resources(submitter).typed(words)
        assert isinstance(refusal.value, submission_errors.NotEnoughResources) is (
            "not enough" in expected.get("reason", "")
        )
        return
    [job, *_], _ = submitter.typed(words)
    stored = {name: getattr(job, name, None) for name in expected} | {
        "stdout_file": job.stdout,
        "stderr_file": job.stderr,
        "launching_directory": job.directory,
        "queue_name": job.queue,
    }
    assert {name: stored[name] for name in expected} == expected


def with_five_resources(submitter: Submitter) -> Submitter:
    """Let only five resources live."""
    ids = [one.id for one in resources.listed(submitter.tx)]
    resources.set_state(submitter.tx, ids[5:], ResourceState.DEAD, at=submitter.now)
    return submitter


@pytest.mark.parametrize("case", oar_cases("scan_script"))
def test_scripts_of_oars_own_tests_are_followed(submitter: Submitter, case):
    made = submitter.admit(command="./job", script=case["input"]["script"]).submission
    expected = case["expected"]
    assert (made.name, made.project) == (expected["name"], expected["project"])
    [asked] = made.request.alternatives
    [wanted] = parse(expected["resource"]).alternatives
    assert ([group.levels for group in asked.groups], asked.walltime) == (
        [group.levels for group in wanted.groups],
        wanted.walltime,
    )


def test_words_typed_become_fields():
    assert body_of(["-l", "nodes=1", "-k", "sleep 1"]) == {
        "resources": ["nodes=1"], "types": [], "after": [], "interactive": False, "hold": False, "use_key": True,
        "command": "sleep 1",
    }  # fmt: skip
