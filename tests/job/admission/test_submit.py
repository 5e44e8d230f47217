"""A submission becomes jobs that wait: all of them, once, or none."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from oarlock.job.admission import submit
from oarlock.job.admission.submit import AdmittedSubmission, StoredJobs
from oarlock.model import errors, submission_errors
from oarlock.model.job import Job, JobKind, JobState, Reservation
from oarlock.model.resource import ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import jobs
from oarlock.store.queries.users import user_records
from tests.job.submitter import NOW, Submitter, add_cluster
from tests.store.cluster import rows, run, step
from tests.store.queries.job.test_jobs import counted


@pytest.fixture
def submitter(tx: Tx) -> Submitter:
    add_cluster(tx)
    return Submitter(tx)


@pytest.mark.manual(1, 18, 19)
def test_a_job_is_stored_as_it_was_asked_for(submitter: Submitter):
    [job] = submitter.submit(
        resources=["/nodes=2/core=3,walltime=0:10", "core=1"], properties="mem = 64", command="./run", name="n",
        project="p", types=["idempotent"], checkpoint=60, signal=10, notify="mail:a@b", directory="/home/alice",
        environment={"A": "1"}, initial_request="oarsub …", submitted_from="login1:4711",
    )  # fmt: skip
    assert jobs.get(submitter.tx, job.id) == job == Job(
        id=job.id, array_id=job.id, state=JobState.WAITING, user="alice", queue="default", name="n", project="p",
        types=("idempotent",), command="./run", directory="/home/alice", environment='{"A": "1"}',
        properties="(mem = 64 AND desktop_computing = 'NO') AND drain = 'NO'",
        stdout="OAR.n.%jobid%.stdout", stderr="OAR.n.%jobid%.stderr", notify="mail:a@b", submitted=NOW,
        message="R=6,W=0:10:0,J=B,N=n,P=p,T=idempotent", initial_request="oarsub …", info="login1:4711",
        checkpoint=60, checkpoint_signal=10, uid=1001,
    )  # fmt: skip
    assert rows(submitter.tx, "SELECT moldable_walltime FROM moldable_job_descriptions ORDER BY moldable_id") == [
        (600,),
        (7200,),
    ]
    assert jobs.state_history(submitter.tx, job.id) == [(JobState.WAITING, NOW, 0, "submitted")]


def test_a_held_job_a_reservation_and_an_interactive_one_say_so(submitter: Submitter):
    [held] = submitter.submit(hold=True)
    [reserved] = submitter.submit(reservation=NOW + 3600, resources=["nodes=1,walltime=1"], command=None)
    [interactive] = submitter.submit(interactive=True, command=None)
    assert (held.state, held.message) == (JobState.HOLD, "R=1,W=2:0:0,J=B")
    assert (reserved.reservation, reserved.start, reserved.message) == (
        Reservation.TO_SCHEDULE,
        NOW + 3600,
        "R=8,W=1:0:0,J=R",
    )
    assert (interactive.kind, interactive.message) == (JobKind.INTERACTIVE, "R=1,W=2:0:0,J=I")


def test_an_array_is_jobs_that_differ_in_their_parameters(submitter: Submitter):
    members = submitter.submit(command="./run", array=["1 2", "'a b'", ""])
    first = members[0].id
    assert [(job.id - first, job.array_id, job.array_index, job.command) for job in members] == [
        (0, first, 1, "./run 1 2"),
        (1, first, 2, "./run 'a b'"),
        (2, first, 3, "./run"),
    ]


def test_ten_thousand_members_take_no_more_statements_than_two(submitter: Submitter):
    with counted(submitter.tx) as few:
        submitter.submit(array=["1", "2"])
    with counted(submitter.tx) as said:
        members = submitter.submit(array=[str(n) for n in range(10_000)])
    assert 0 < len(said) <= len(few)
    assert rows(submitter.tx, f"SELECT count(*) FROM jobs WHERE array_id = {members[0].id}") == [(10_000,)]


def test_a_request_that_comes_twice_is_done_once(submitter: Submitter):
    first = submitter.submit(request_id="a", array=["1", "2"])
    assert submitter.submit(request_id="a", array=["1", "2"]) == first
    assert submit.earlier_result(submitter.tx, user="alice", request_id="a") == StoredJobs(first[0], 2)
    assert submit.earlier_result(submitter.tx, user="bob", request_id="a") is None
    assert submitter.submit(request_id="b", array=["1", "2"]) != first
    assert rows(submitter.tx, "SELECT count(*) FROM jobs") == [(4,)]


def test_many_submissions_are_stored_together_and_refused_alone(submitter: Submitter):
    good, array, bad = submitter.admit(command="a"), submitter.admit(command="b", array=["1", "2"]), submitter.admit(
        command="c", resources=["nodes=9"]
    )  # fmt: skip
    asked = [
        AdmittedSubmission(good, "g"),
        AdmittedSubmission(bad, "b"),
        AdmittedSubmission(array, "r"),
        AdmittedSubmission(good, "g"),
        AdmittedSubmission(good),
        AdmittedSubmission(good),
    ]
    cluster = submitter.existing.now(submitter.tx)
    done = submit.submit_all(submitter.tx, asked, cluster=cluster, config=submitter.config, now=NOW)
    found = [one if isinstance(one, Exception) else jobs.get_many(submitter.tx, one.ids) for one in done]
    assert [type(one) if isinstance(one, Exception) else [job.command for job in one] for one in found] == [
        ["a"], submission_errors.NotEnoughResources, ["b 1", "b 2"], ["a"], ["a"], ["a"],
    ]  # fmt: skip
    assert done[3] == done[0]
    assert [job.array_index for job in found[2]] == [1, 2]
    assert len({job.id for one in found if isinstance(one, list) for job in one}) == 5
    again = submit.submit_all(submitter.tx, asked[:4], cluster=cluster, config=submitter.config, now=NOW)
    assert [again[0], again[2], again[3]] == [done[0], done[2], done[0]]
    assert submit.submit_all(submitter.tx, [], cluster=cluster, config=submitter.config, now=NOW) == []


def test_a_request_id_that_stood_for_something_else_is_refused(submitter: Submitter):
    user_records.remember_answer(submitter.tx, user="alice", request_id="x", verb="delete", answer="", at=NOW)
    with pytest.raises(errors.RequestIdReused):
        submitter.submit(request_id="x")


NOT_ENOUGH = {
    "nodes=5": ("{type = 'default'}/network_address=5,walltime=2:00:00", "32 of the 32", "4 nodes"),
    "/nodes=1/core=9": ("{type = 'default'}/network_address=1/core=9,walltime=2:00:00", "32 of the 32", "4 nodes"),
    "{mem = 3}/core=1": ("{mem = 3 AND type = 'default'}/core=1,walltime=2:00:00", "0 of the 32", "0 nodes"),
    "{host = 'node1'}/core=9,walltime=1": (
        "{host = 'node1' AND type = 'default'}/core=9,walltime=1:00:00",
        "8 of the 32",
        "1 node",
    ),
    "{cpu = 0}/core=3+{cpu = 0}/core=2,walltime=1": (
        "{cpu = 0 AND type = 'default'}/core=3+{cpu = 0 AND type = 'default'}/core=2,walltime=1:00:00",
        "4 of the 32",
        "1 node",
    ),
}


@pytest.mark.manual(11)
def test_a_condition_that_nothing_fulfils_is_named(submitter: Submitter):
    with pytest.raises(
        submission_errors.NotEnoughResources, match=r"^`.*core=1.*` with `cpu > 99` asks for more .*: 0 of the 32"
    ):
        submitter.submit(resources=["core=1"], properties="cpu > 99")


@pytest.mark.parametrize("asked", NOT_ENOUGH)
def test_more_than_there_is_is_refused_with_what_there_is(submitter: Submitter, asked):
    shown, count, nodes = NOT_ENOUGH[asked]
    told = f"asks for more than there is, even when all is free: {count} resources fulfil its conditions, on {nodes}."
    with pytest.raises(submission_errors.NotEnoughResources) as alone:
        submitter.submit(resources=[asked])
    with pytest.raises(submission_errors.NotEnoughResources) as second:
        submitter.submit(resources=["nodes=1", asked])
    assert (str(alone.value), str(second.value)) == (f"`{shown}` {told}", f"Alternative 2, `{shown}`, {told}")
    assert rows(submitter.tx, "SELECT count(*) FROM jobs") == [(0,)]


def test_resources_that_share_the_value_of_a_property_are_named(submitter: Submitter):
    with pytest.raises(submission_errors.NotEnoughResources) as refusal:
        submitter.submit(resources=["mem=3"])
    assert str(refusal.value).endswith(" on 4 nodes. Together they have 2 values of `mem`.")


def test_a_misspelt_walltime_is_guessed_at(submitter: Submitter):
    with pytest.raises(submission_errors.UnknownProperty) as refusal:
        submitter.submit(resources=["core=1,walltme=2"])
    assert (str(refusal.value), refusal.value.hint) == ("There is no property `walltme`.", "Did you mean `walltime`?")


def test_what_is_busy_or_asleep_counts_and_what_is_dead_does_not(submitter: Submitter):
    ids = [one.id for one in resources.listed(submitter.tx)]
    submitter.submit(resources=["nodes=4"])
    resources.set_state(submitter.tx, ids[:8], ResourceState.ABSENT, at=NOW)
    submitter.submit(resources=["nodes=4"])
    resources.set_state(submitter.tx, ids[:8], ResourceState.DEAD, at=NOW)
    with pytest.raises(submission_errors.NotEnoughResources, match="24 of the 24 resources"):
        submitter.submit(resources=["nodes=4"])


@pytest.mark.manual(41)
def test_a_property_that_is_added_can_be_asked_for_at_once(submitter: Submitter):
    with pytest.raises(submission_errors.UnknownProperty):
        submitter.submit(properties="gpu = 1")
    properties.add(submitter.tx, "gpu", int)
    resources.set_properties(submitter.tx, [resources.listed(submitter.tx)[0].id], {"gpu": 1}, at=NOW)
    [job] = submitter.submit(properties="gpu = 1")
    assert job.message.startswith("R=1,")


def test_drained_resources_are_only_left_out_after_the_check(submitter: Submitter):
    resources.set_properties(submitter.tx, [one.id for one in resources.listed(submitter.tx)], {"drain": "YES"}, at=NOW)
    [job] = submitter.submit()
    assert job.state is JobState.WAITING
    assert job.properties.endswith("drain = 'NO'")


def test_a_queue_that_is_not_there_is_refused(submitter: Submitter):
    with pytest.raises(errors.UnknownQueue, match="`nosuch`"):
        submitter.submit(queue="nosuch")


def test_a_job_waits_for_others_that_are_known_and_for_no_others(submitter: Submitter):
    [first], [second] = submitter.submit(), submitter.submit()
    [third] = submitter.submit(after=[second.id, first.id])
    assert jobs.dependencies(submitter.tx, [third.id]) == {third.id: [first.id, second.id]}
    with pytest.raises(submission_errors.UnknownDependency, match="There is no job 99999 to wait for"):
        submitter.submit(after=[first.id, 99999])


def ended(submitter: Submitter, **body) -> Job:
    [job] = submitter.submit(**body)
    job = run(submitter.tx, job, [resources.listed(submitter.tx)[0].id], at=NOW + 5)
    return step(submitter.tx, step(submitter.tx, job, JobState.FINISHING), JobState.TERMINATED, at=NOW + 9)


@pytest.mark.manual(22)
def test_an_ended_job_is_submitted_again_as_it_was(submitter: Submitter):
    original = ended(
        submitter, resources=["/nodes=1/core=2,walltime=1", "core=1,walltime=2"], properties="mem = 64", name="n",
        types=["idempotent"], environment={"A": "1"},
    )  # fmt: skip
    [copy] = submitter.again(original.id, request_id="r", now=NOW + 100)
    assert copy == structs.replace(
        jobs.get(submitter.tx, original.id), id=copy.id, array_id=copy.id, state=JobState.WAITING, submitted=NOW + 100,
        start=0, stop=0, assigned=0, resubmit_of=original.id,
    )  # fmt: skip
    assert submitter.again(original.id, request_id="r", now=NOW + 100) == [copy]
    query = (
        "SELECT moldable_walltime, res_group_property, res_job_resource_type, res_job_value "
        "FROM moldable_job_descriptions JOIN job_resource_groups ON res_group_moldable_id = moldable_id "
        "JOIN job_resource_descriptions ON res_job_group_id = res_group_id WHERE moldable_job_id = {} "
        "ORDER BY moldable_id, res_group_id, res_job_order"
    )
    assert rows(submitter.tx, query.format(copy.id)) == rows(submitter.tx, query.format(original.id))


def test_only_ones_own_ended_batch_jobs_are_submitted_again(submitter: Submitter):
    over, [waiting] = ended(submitter), submitter.submit()
    [reserved] = submitter.submit(reservation=NOW + 60)
    for number, user, refusal in [
        (over.id, "bob", errors.NotYourJob),
        (waiting.id, "alice", submission_errors.ResubmitRefused),
        (reserved.id, "alice", submission_errors.ResubmitRefused),
        (99999, "alice", errors.UnknownJob),
        (2**63, "alice", errors.UnknownJob),
    ]:
        with pytest.raises(refusal):
            submit.resubmission(submitter.tx, number, user=user)


def test_a_job_whose_property_is_gone_is_not_submitted_again(submitter: Submitter):
    over = ended(submitter, properties="mem = 16")
    properties.drop(submitter.tx, "mem", at=NOW)
    with pytest.raises(submission_errors.ResubmitRefused, match="cannot be read any more"):
        submit.resubmission(submitter.tx, over.id, user="alice")


def test_a_job_submitted_again_passes_the_rules(submitter: Submitter, tmp_path: Path):
    submitter = replace(submitter, directory=tmp_path)
    over = ended(submitter)
    (tmp_path / "50-closed.toml").write_text('[[rule]]\nname = "closed"\nreject = "Nothing is let in today."\n')
    with pytest.raises(submission_errors.RefusedByRule, match="Nothing is let in today"):
        submitter.again(over.id)


def test_a_job_submitted_again_and_again_asks_for_the_same(submitter: Submitter, tmp_path: Path):
    (tmp_path / "50-more.toml").write_text(
        '[[rule]]\nname = "more"\nadd_constraint = "mem = 64"\nadd_constraint_after_validation = "drain = \'NO\'"\n'
    )
    submitter = replace(submitter, directory=tmp_path)
    over = ended(submitter, properties="cputype = 'epyc'")
    [copy] = submitter.again(over.id)
    copy = run(submitter.tx, copy, [resources.listed(submitter.tx)[0].id], at=NOW + 5)
    copy = step(submitter.tx, step(submitter.tx, copy, JobState.FINISHING), JobState.TERMINATED, at=NOW + 9)
    [second] = submitter.again(copy.id)
    assert second.properties == copy.properties == over.properties


LIMIT = """
[[rule]]
name = "few"
when = "waiting_jobs_after > 3"
reject = "At most 3 jobs of {user} wait."
"""


def test_submissions_at_once_are_counted_again_when_they_are_stored(submitter: Submitter, tmp_path: Path):
    (tmp_path / "50-few.toml").write_text(LIMIT)
    submitter = replace(submitter, directory=tmp_path)
    asked = [submitter.counted(command="true") for _ in range(10)]
    asked += [submitter.counted(command="true", array=["", ""]) for _ in range(2)]
    cluster = submitter.existing.now(submitter.tx)
    done = submit.submit_all(submitter.tx, asked, cluster=cluster, config=submitter.config, now=NOW)
    assert [isinstance(one, StoredJobs) for one in done] == [True] * 3 + [False] * 9
    assert "At most 3 jobs of alice wait." in str(done[-1])
    late = submit.submit_all(submitter.tx, asked[:1], cluster=cluster, config=submitter.config, now=NOW)
    assert isinstance(late[0], submission_errors.RefusedByRule)


def test_of_sixty_reservations_at_once_the_two_allowed_ones_get_in(submitter: Submitter):
    asked = [submitter.counted(reservation=NOW + 60 * place, command="true") for place in range(1, 61)]
    done = submit.submit_all(
        submitter.tx, asked, cluster=submitter.existing.now(submitter.tx), config=submitter.config, now=NOW
    )
    assert [isinstance(one, StoredJobs) for one in done] == [True] * 2 + [False] * 58


def test_what_a_user_writes_is_stored_as_it_was_written(submitter: Submitter):
    nasty = "x'); DROP TABLE jobs; -- \" \\ é %s {user}"
    [job] = submitter.submit(command=nasty, name=nasty, project=nasty, array=[nasty], initial_request=nasty)
    assert jobs.get(submitter.tx, job.id).command == f"{nasty} {nasty}"
    assert (job.name, job.project, job.initial_request) == (nasty, nasty, nasty)


def test_nobody_enters_a_container_whose_owner_did_not_let_them_in(submitter: Submitter):
    [closed] = submitter.submit(types=["container"])
    [open_] = submitter.submit(types=["container", "guests=carol,bob"])
    [lab] = submitter.submit(types=["container=lab"])
    [public] = submitter.submit(types=["container=hall", "guests=*"])
    bob = replace(submitter, user="bob")
    for types in (f"inner={closed.id}", f"inner={lab.id}", "inner=lab", "container=lab"):
        with pytest.raises(submission_errors.ContainerClosed, match="belongs to alice, who did not let bob in"):
            bob.submit(types=[types])
        assert len(submitter.submit(types=[types])) == 1
    for types in (f"inner={open_.id}", f"inner={public.id}", "inner=hall", "container=hall"):
        assert len(bob.submit(types=[types])) == 1
