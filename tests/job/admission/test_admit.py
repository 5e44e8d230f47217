"""The site's rules look at a submission in their order; who fails is named."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oarlock.job.admission import admit
from oarlock.job.admission.admit import RuleResult
from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.model.submission_errors import RefusedByRule, RuleFailed, UnknownProperty
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from tests.job.submitter import NOW, Submitter, add_cluster


@pytest.fixture
def submitter(tx: Tx) -> Submitter:
    add_cluster(tx)
    return Submitter(tx)


@pytest.mark.manual(117)
def test_a_refusal_names_the_rule_and_its_file(submitter: Submitter):
    with pytest.raises(RefusedByRule) as refusal:
        submitter.submit(queue="admin")
    assert refusal.value.full_text() == (
        "[ADMISSION RULE] Only members of the group admin can submit jobs in the admin queue.\n"
        "  Refused by 04-admin-queue.toml, rule `admin queue`."
    )
    submitter.groups = ("users", "admin")
    [job] = submitter.submit(queue="admin")
    assert job.queue == "admin"


def test_a_type_that_is_not_known_is_answered_with_those_that_are(submitter: Submitter):
    with pytest.raises(RefusedByRule, match="unknown job type: bestefort") as refusal:
        submitter.submit(types=["bestefort"])
    assert refusal.value.hint.startswith("Refused by 14-types.toml, rule `known types`. Known are allow=…, ")
    assert ", besteffort, " in refusal.value.hint


def test_names_of_properties_are_known_before_rules_look_at_them(submitter: Submitter):
    with pytest.raises(UnknownProperty):
        submitter.submit(resources=["bogus=1"])
    with pytest.raises(RefusedByRule, match="'state' resource is not allowed"):
        submitter.submit(resources=["STATE=1"])


def test_the_third_waiting_reservation_of_a_user_is_refused(submitter: Submitter):
    for number in range(2):
        submitter.submit(reservation=NOW + 1000 * number + 60)
    submitter.submit()
    with pytest.raises(RefusedByRule, match="more than 2 waiting advance reservations"):
        submitter.submit(reservation=NOW + 9000)
    submitter.user = "bob"
    submitter.submit(reservation=NOW + 9000)


def test_an_inner_job_needs_a_container_that_can_take_it(submitter: Submitter):
    [plain], [container] = submitter.submit(), submitter.submit(types=["container"])
    submitter.submit(types=[f"inner={container.id}"])
    for number in (plain.id, 99999):
        with pytest.raises(RefusedByRule, match="invalid container"):
            submitter.submit(types=[f"inner={number}"])
    with pytest.raises(RefusedByRule, match="needs a container that is a reservation"):
        submitter.submit(types=[f"inner={container.id}"], reservation=NOW + 60)


def test_a_row_of_the_table_is_data_and_applies(submitter: Submitter):
    number = administration.add_rules(
        submitter.tx, '[[rule]]\nname = "from the table"\nwhen = "waiting_jobs >= 1"\nreject = "one at a time"\n'
    )
    submitter.submit()
    with pytest.raises(RefusedByRule, match="one at a time") as refusal:
        submitter.submit()
    assert refusal.value.hint == f"Refused by row {number} of admission_rules, rule `from the table`."


@pytest.mark.parametrize("text", ["import os", "[[rule]]\nname = 'x'\nbad = 1"])
def test_a_row_that_is_no_rule_refuses_every_job(submitter: Submitter, text: str):
    number = administration.add_rules(submitter.tx, text)
    with pytest.raises(RuleFailed, match=f"An admission rule does not work: row {number} of admission_rules, "):
        submitter.submit()


def test_a_rule_that_does_not_work_is_noted_for_the_administrator(submitter: Submitter):
    number = administration.add_rules(submitter.tx, "[[rule]]\nname = 'x'\nadd_constraint = 'nothing = 1'")
    with pytest.raises(RuleFailed) as failure:
        submitter.submit()
    admit.note_failure(submitter.tx, failure.value, user="alice", now=NOW)
    said = (
        f"The admission rule row {number} of admission_rules, rule `x` does not work: There is no property `nothing`. "
        "The job of alice was refused."
    )
    assert submitter.tx.exec_driver_sql("SELECT type, description, to_check FROM event_logs").all() == [
        (EventType.ADMISSION_RULE_ERROR.value, said, "NO")
    ]


class Python:
    """A Python rule that answers what a test wants, and keeps what it was asked."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.asked: Mapping[str, Any] = {}

    async def __call__(self, path: Path, asked: Mapping[str, Any]) -> RuleResult:
        self.asked = asked
        return self.answer(asked)


@pytest.fixture
def with_python(submitter: Submitter, tmp_path: Path):
    def make(answer) -> Submitter:
        (tmp_path / "07-site.py").touch()
        return Submitter(submitter.tx, directory=tmp_path, run=Python(answer))

    return make


def test_a_python_rule_sees_the_job_and_changes_it(with_python):
    with_python(lambda asked: RuleResult(asked["job"])).submit()
    submitter = with_python(
        lambda asked: RuleResult({
            **asked["job"], "name": f"of-{asked['context']['user']}", "resources": ["nodes=2,walltime=1"], "hold": True,
            "constraints_after_validation": ["mem > 1"],
        }, messages=("changed",))
    )  # fmt: skip
    admitted = submitter.admit(command="./x", array=["1", "2"], environment={"SECRET": "s"}, name="n")
    made = admitted.submission
    assert (made.name, made.hold, made.array, made.environment) == ("of-alice", True, ("1", "2"), '{"SECRET": "s"}')
    assert [one.walltime for one in made.request.alternatives] == [3600]
    assert made.rule_where == ("mem > 1",)
    assert admitted.messages == (
        "[ADMISSION RULE] changed",
        "[ADMISSION RULE] Modify resource description with type constraints",
    )
    assert "SECRET" not in str(submitter.run.asked)
    assert submitter.run.asked["job"]["command"] == "./x"
    known = submitter.run.asked["context"]
    assert (known["array_size"], known["waiting_jobs"]) == (2, 1)


def test_a_python_rule_can_refuse(with_python):
    with pytest.raises(RefusedByRule, match="not today") as refusal:
        with_python(lambda _: RuleResult(reject="not today")).submit()
    assert refusal.value.hint == "Refused by 07-site.py."


BAD_ANSWERS = [
    {"user": "root"},
    {"name": "a/b"},
    {"types": ["a b"]},
    {"resources": ["nodes=0"]},
    {"properties": "nothing = 1"},
    {"constraints_after_validation": "x"},
    {"constraints_after_validation": ["x ="]},
    {"environment": 3},
]


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=str)
def test_what_a_python_rule_answers_is_read_like_anything_a_user_sends(with_python, answer):
    with pytest.raises(RuleFailed, match=r"The admission rule 07-site\.py does not work"):
        with_python(lambda asked: RuleResult({**asked["job"], **answer})).submit()


@pytest.mark.manual(117)
def test_a_python_rule_that_fails_refuses_the_job(with_python):
    def fail(_):
        raise RuleFailed("ZeroDivisionError (line 3).")

    with pytest.raises(RuleFailed, match=r"The admission rule 07-site\.py does not work: ZeroDivisionError"):
        with_python(fail).submit()


def test_where_python_rules_are_not_run_they_refuse(with_python):
    submitter = with_python(None)
    submitter.run = None
    with pytest.raises(RuleFailed, match="not run here"):
        submitter.submit()


def test_an_admitted_job_waits(submitter: Submitter):
    [job] = submitter.submit(types=["besteffort"])
    assert (job.queue, job.state) == ("besteffort", JobState.WAITING)
    assert job.properties == "(besteffort = 'YES' AND desktop_computing = 'NO') AND drain = 'NO'"
