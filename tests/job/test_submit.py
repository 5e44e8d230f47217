"""A submission becomes jobs that wait: all of them, once, or none."""

from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.job.admission import submit
from oarlock.job.admission.submit import AdmittedSubmission, StoredJobs
from oarlock.model import errors
from oarlock.model.job import Job, JobKind, JobState, Reservation
from oarlock.model.resource import ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, properties, requests, resources
from tests.job.front_desk import NOW, FrontDesk, add_cluster
from tests.store.cluster import rows, run, step
from tests.store.test_jobs import counted


@pytest.fixture
def desk(tx: Tx) -> FrontDesk:
    add_cluster(tx)
    return FrontDesk(tx)


def test_a_job_is_stored_as_it_was_asked_for(desk: FrontDesk):
    [job] = desk.submit(
        resources=["/nodes=2/core=3,walltime=0:10", "core=1"], properties="mem = 64", command="./run", name="n",
        project="p", types=["idempotent"], checkpoint=60, signal=10, notify="mail:a@b", directory="/home/alice",
        environment={"A": "1"}, initial_request="oarsub …",
    )  # fmt: skip
    assert jobs.get(desk.tx, job.id) == job == Job(
        id=job.id, array_id=job.id, state=JobState.WAITING, user="alice", queue="default", name="n", project="p",
        types=("idempotent",), command="./run", directory="/home/alice", environment='{"A": "1"}',
        properties="(mem = 64 AND desktop_computing = 'NO') AND drain = 'NO'",
        stdout="OAR.n.%jobid%.stdout", stderr="OAR.n.%jobid%.stderr", notify="mail:a@b", submitted=NOW,
        message="R=6,W=0:10:0,J=B,N=n,P=p,T=idempotent", initial_request="oarsub …",
        checkpoint=60, checkpoint_signal=10, uid=1001,
    )  # fmt: skip
    assert rows(desk.tx, "SELECT moldable_walltime FROM moldable_job_descriptions ORDER BY moldable_id") == [
        (600,),
        (7200,),
    ]
    assert jobs.state_history(desk.tx, job.id) == [(JobState.WAITING, NOW, 0, "submitted")]


def test_a_held_job_a_reservation_and_an_interactive_one_say_so(desk: FrontDesk):
    [held] = desk.submit(hold=True)
    [reserved] = desk.submit(reservation=NOW + 3600, resources=["nodes=1,walltime=1"], command=None)
    [interactive] = desk.submit(interactive=True, command=None)
    assert (held.state, held.message) == (JobState.HOLD, "R=1,W=2:0:0,J=B")
    assert (reserved.reservation, reserved.start, reserved.message) == (
        Reservation.TO_SCHEDULE,
        NOW + 3600,
        "R=8,W=1:0:0,J=R",
    )
    assert (interactive.kind, interactive.message) == (JobKind.INTERACTIVE, "R=1,W=2:0:0,J=I")


def test_an_array_is_jobs_that_differ_in_their_parameters(desk: FrontDesk):
    members = desk.submit(command="./run", array=["1 2", "'a b'", ""])
    first = members[0].id
    assert [(job.id - first, job.array_id, job.array_index, job.command) for job in members] == [
        (0, first, 1, "./run 1 2"),
        (1, first, 2, "./run 'a b'"),
        (2, first, 3, "./run"),
    ]


def test_ten_thousand_members_take_no_more_statements_than_two(desk: FrontDesk):
    with counted(desk.tx) as few:
        desk.submit(array=["1", "2"])
    with counted(desk.tx) as said:
        members = desk.submit(array=[str(n) for n in range(10_000)])
    assert 0 < len(said) <= len(few)
    assert rows(desk.tx, f"SELECT count(*) FROM jobs WHERE array_id = {members[0].id}") == [(10_000,)]


def test_a_request_that_comes_twice_is_done_once(desk: FrontDesk):
    first = desk.submit(request_id="a", array=["1", "2"])
    assert desk.submit(request_id="a", array=["1", "2"]) == first
    assert submit.earlier_result(desk.tx, user="alice", request_id="a") == StoredJobs(first[0], 2)
    assert submit.earlier_result(desk.tx, user="bob", request_id="a") is None
    assert desk.submit(request_id="b", array=["1", "2"]) != first
    assert rows(desk.tx, "SELECT count(*) FROM jobs") == [(4,)]


def test_many_submissions_are_stored_together_and_refused_alone(desk: FrontDesk):
    good, array, bad = desk.admit(command="a"), desk.admit(command="b", array=["1", "2"]), desk.admit(
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
    cluster = desk.existing.now(desk.tx)
    done = submit.submit_all(desk.tx, asked, cluster=cluster, config=desk.config, now=NOW)
    found = [one if isinstance(one, Exception) else jobs.get_many(desk.tx, one.ids) for one in done]
    assert [type(one) if isinstance(one, Exception) else [job.command for job in one] for one in found] == [
        ["a"], errors.NotEnoughResources, ["b 1", "b 2"], ["a"], ["a"], ["a"],
    ]  # fmt: skip
    assert done[3] == done[0]
    assert [job.array_index for job in found[2]] == [1, 2]
    assert len({job.id for one in found if isinstance(one, list) for job in one}) == 5
    again = submit.submit_all(desk.tx, asked[:4], cluster=cluster, config=desk.config, now=NOW)
    assert [again[0], again[2], again[3]] == [done[0], done[2], done[0]]
    assert submit.submit_all(desk.tx, [], cluster=cluster, config=desk.config, now=NOW) == []


def test_a_request_id_that_stood_for_something_else_is_refused(desk: FrontDesk):
    requests.remember(desk.tx, user="alice", request_id="x", verb="delete", answer="", at=NOW)
    with pytest.raises(errors.RequestIdReused):
        desk.submit(request_id="x")


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


def test_a_condition_that_nothing_fulfils_is_named(desk: FrontDesk):
    with pytest.raises(errors.NotEnoughResources, match=r"^`.*core=1.*` with `cpu > 99` asks for more .*: 0 of the 32"):
        desk.submit(resources=["core=1"], properties="cpu > 99")


@pytest.mark.parametrize("asked", NOT_ENOUGH)
def test_more_than_there_is_is_refused_with_what_there_is(desk: FrontDesk, asked):
    shown, count, nodes = NOT_ENOUGH[asked]
    told = f"asks for more than there is, even when all is free: {count} resources fulfil its conditions, on {nodes}."
    with pytest.raises(errors.NotEnoughResources) as alone:
        desk.submit(resources=[asked])
    with pytest.raises(errors.NotEnoughResources) as second:
        desk.submit(resources=["nodes=1", asked])
    assert (str(alone.value), str(second.value)) == (f"`{shown}` {told}", f"Alternative 2, `{shown}`, {told}")
    assert rows(desk.tx, "SELECT count(*) FROM jobs") == [(0,)]


def test_what_is_busy_or_asleep_counts_and_what_is_dead_does_not(desk: FrontDesk):
    ids = [one.id for one in resources.listed(desk.tx)]
    desk.submit(resources=["nodes=4"])
    resources.set_state(desk.tx, ids[:8], ResourceState.ABSENT, at=NOW)
    desk.submit(resources=["nodes=4"])
    resources.set_state(desk.tx, ids[:8], ResourceState.DEAD, at=NOW)
    with pytest.raises(errors.NotEnoughResources, match="24 of the 24 resources"):
        desk.submit(resources=["nodes=4"])


def test_a_property_that_is_added_can_be_asked_for_at_once(desk: FrontDesk):
    with pytest.raises(errors.UnknownProperty):
        desk.submit(properties="gpu = 1")
    properties.add(desk.tx, "gpu", int)
    resources.set_properties(desk.tx, [resources.listed(desk.tx)[0].id], {"gpu": 1}, at=NOW)
    [job] = desk.submit(properties="gpu = 1")
    assert job.message.startswith("R=1,")


def test_drained_resources_are_only_left_out_after_the_check(desk: FrontDesk):
    resources.set_properties(desk.tx, [one.id for one in resources.listed(desk.tx)], {"drain": "YES"}, at=NOW)
    [job] = desk.submit()
    assert job.state is JobState.WAITING
    assert job.properties.endswith("drain = 'NO'")


def test_a_queue_that_is_not_there_is_refused(desk: FrontDesk):
    with pytest.raises(errors.UnknownQueue, match="`nosuch`"):
        desk.submit(queue="nosuch")


def test_a_job_waits_for_others_that_are_known_and_for_no_others(desk: FrontDesk):
    [first], [second] = desk.submit(), desk.submit()
    [third] = desk.submit(after=[second.id, first.id])
    assert jobs.dependencies(desk.tx, [third.id]) == {third.id: [first.id, second.id]}
    with pytest.raises(errors.UnknownDependency, match="There is no job 99999 to wait for"):
        desk.submit(after=[first.id, 99999])


def ended(desk: FrontDesk, **body) -> Job:
    [job] = desk.submit(**body)
    job = run(desk.tx, job, [resources.listed(desk.tx)[0].id], at=NOW + 5)
    return step(desk.tx, step(desk.tx, job, JobState.FINISHING), JobState.TERMINATED, at=NOW + 9)


def test_an_ended_job_is_submitted_again_as_it_was(desk: FrontDesk):
    original = ended(
        desk, resources=["/nodes=1/core=2,walltime=1", "core=1,walltime=2"], properties="mem = 64", name="n",
        types=["idempotent"], environment={"A": "1"},
    )  # fmt: skip
    [copy] = desk.again(original.id, request_id="r", now=NOW + 100)
    assert copy == replace(
        jobs.get(desk.tx, original.id), id=copy.id, array_id=copy.id, state=JobState.WAITING, submitted=NOW + 100,
        start=0, stop=0, assigned=0, resubmit_of=original.id,
    )  # fmt: skip
    assert desk.again(original.id, request_id="r", now=NOW + 100) == [copy]
    query = (
        "SELECT moldable_walltime, res_group_property, res_job_resource_type, res_job_value "
        "FROM moldable_job_descriptions JOIN job_resource_groups ON res_group_moldable_id = moldable_id "
        "JOIN job_resource_descriptions ON res_job_group_id = res_group_id WHERE moldable_job_id = {} "
        "ORDER BY moldable_id, res_group_id, res_job_order"
    )
    assert rows(desk.tx, query.format(copy.id)) == rows(desk.tx, query.format(original.id))


def test_only_ones_own_ended_batch_jobs_are_submitted_again(desk: FrontDesk):
    over, [waiting] = ended(desk), desk.submit()
    [reserved] = desk.submit(reservation=NOW + 60)
    for number, user, refusal in [
        (over.id, "bob", errors.NotYourJob),
        (waiting.id, "alice", errors.ResubmitRefused),
        (reserved.id, "alice", errors.ResubmitRefused),
        (99999, "alice", errors.UnknownJob),
        (2**63, "alice", errors.UnknownJob),
    ]:
        with pytest.raises(refusal):
            submit.resubmission(desk.tx, number, user=user)


def test_a_job_whose_property_is_gone_is_not_submitted_again(desk: FrontDesk):
    over = ended(desk, properties="mem = 16")
    properties.drop(desk.tx, "mem", at=NOW)
    with pytest.raises(errors.ResubmitRefused, match="cannot be read any more"):
        submit.resubmission(desk.tx, over.id, user="alice")


def test_a_job_submitted_again_passes_the_rules(desk: FrontDesk, tmp_path: Path):
    desk = replace(desk, directory=tmp_path)
    over = ended(desk)
    (tmp_path / "50-closed.toml").write_text('[[rule]]\nname = "closed"\nreject = "Nothing is let in today."\n')
    with pytest.raises(errors.RefusedByRule, match="Nothing is let in today"):
        desk.again(over.id)


def test_a_job_submitted_again_and_again_asks_for_the_same(desk: FrontDesk, tmp_path: Path):
    (tmp_path / "50-more.toml").write_text(
        '[[rule]]\nname = "more"\nadd_constraint = "mem = 64"\nadd_constraint_after_validation = "drain = \'NO\'"\n'
    )
    desk = replace(desk, directory=tmp_path)
    over = ended(desk, properties="cputype = 'epyc'")
    [copy] = desk.again(over.id)
    copy = run(desk.tx, copy, [resources.listed(desk.tx)[0].id], at=NOW + 5)
    copy = step(desk.tx, step(desk.tx, copy, JobState.FINISHING), JobState.TERMINATED, at=NOW + 9)
    [second] = desk.again(copy.id)
    assert second.properties == copy.properties == over.properties


LIMIT = """
[[rule]]
name = "few"
when = "waiting_jobs_after > 3"
reject = "At most 3 jobs of {user} wait."
"""


def test_submissions_at_once_are_counted_again_when_they_are_stored(desk: FrontDesk, tmp_path: Path):
    (tmp_path / "50-few.toml").write_text(LIMIT)
    desk = replace(desk, directory=tmp_path)
    asked = [desk.counted(command="true") for _ in range(10)]
    asked += [desk.counted(command="true", array=["", ""]) for _ in range(2)]
    cluster = desk.existing.now(desk.tx)
    done = submit.submit_all(desk.tx, asked, cluster=cluster, config=desk.config, now=NOW)
    assert [isinstance(one, StoredJobs) for one in done] == [True] * 3 + [False] * 9
    assert "At most 3 jobs of alice wait." in str(done[-1])
    late = submit.submit_all(desk.tx, asked[:1], cluster=cluster, config=desk.config, now=NOW)
    assert isinstance(late[0], errors.RefusedByRule)


def test_of_sixty_reservations_at_once_the_two_allowed_ones_get_in(desk: FrontDesk):
    asked = [desk.counted(reservation=NOW + 60 * place, command="true") for place in range(1, 61)]
    done = submit.submit_all(desk.tx, asked, cluster=desk.existing.now(desk.tx), config=desk.config, now=NOW)
    assert [isinstance(one, StoredJobs) for one in done] == [True] * 2 + [False] * 58


def test_what_a_user_writes_is_stored_as_it_was_written(desk: FrontDesk):
    nasty = "x'); DROP TABLE jobs; -- \" \\ é %s {user}"
    [job] = desk.submit(command=nasty, name=nasty, project=nasty, array=[nasty], initial_request=nasty)
    assert jobs.get(desk.tx, job.id).command == f"{nasty} {nasty}"
    assert (job.name, job.project, job.initial_request) == (nasty, nasty, nasty)


def test_nobody_enters_a_container_whose_owner_did_not_let_them_in(desk: FrontDesk):
    [closed] = desk.submit(types=["container"])
    [open_] = desk.submit(types=["container", "guests=carol,bob"])
    [lab] = desk.submit(types=["container=lab"])
    [public] = desk.submit(types=["container=hall", "guests=*"])
    bob = replace(desk, user="bob")
    for types in (f"inner={closed.id}", f"inner={lab.id}", "inner=lab", "container=lab"):
        with pytest.raises(errors.ContainerClosed, match="belongs to alice, who did not let bob in"):
            bob.submit(types=[types])
        assert len(desk.submit(types=[types])) == 1
    for types in (f"inner={open_.id}", f"inner={public.id}", "inner=hall", "container=hall"):
        assert len(bob.submit(types=[types])) == 1
