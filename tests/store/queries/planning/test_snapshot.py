"""The snapshot holds what the scheduler needs of one instant, and nothing breaks it."""

from dataclasses import replace

import pytest
from msgspec import structs
from msgspec.structs import replace as replaced
from sqlalchemy import update

from oarlock.lang.where import check, parse
from oarlock.model.job import JobState, Reservation, move
from oarlock.model.resource import ResourceOrder, ResourceState
from oarlock.model.snapshot import (
    Choice,
    Dependency,
    PlacedJob,
    Promise,
    Queue,
    QuotaRule,
    Shape,
    Snapshot,
    Usage,
    WaitingJob,
)
from oarlock.model.submission import Level, ResourceGroup
from oarlock.model.submission_errors import UnknownProperty
from oarlock.store import tables
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import jobs, moves, new_jobs, shapes
from oarlock.store.queries.planning import plans, snapshot
from oarlock.store.queries.site import administration
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, choice, new, run, step
from tests.store.queries.job.test_jobs import counted

S = JobState
HOUR = 3600


def read(tx: Tx, *order: ResourceOrder, now: int = NOW) -> Snapshot:
    found = snapshot.read(tx, order=order, karma_window=30 * 86400, now=now)
    assert found.broken == ()
    return found.snapshot


def test_an_empty_cluster_is_read(tx: Tx):
    found = read(tx)
    assert (found.resources.ids, found.waiting, found.placed, found.shapes) == ((), (), (), ())
    assert [queue.name for queue in found.queues] == ["admin", "default", "besteffort"]


def test_resources_that_are_not_dead_are_columns(tx: Tx):
    numbers = add_nodes(tx, ["a", "b"])
    resources.set_state(tx, numbers[1:2], ResourceState.DEAD, at=NOW)
    table = read(tx).resources
    assert table.ids == (numbers[0], numbers[2], numbers[3])
    assert set(table.columns) == set(properties.types(tx))
    assert {name: table.columns[name] for name in ("resource_id", "network_address", "core", "cpu")} == {
        "resource_id": table.ids,
        "network_address": ("a", "b", "b"),
        "core": (0, 2, 3),
        "cpu": (None, None, None),
    }


def test_resources_come_in_the_order_of_the_site(tx: Tx):
    values = [("s2", 1), (None, 2), ("s1", None), ("s2", 3), ("S3", 2)]
    first, second, third, fourth, fifth = resources.add(tx, [{"switch": s, "cpu": c} for s, c in values], at=NOW)
    switch, cpu, number = ResourceOrder("switch"), ResourceOrder("cpu"), ResourceOrder("resource_id")
    for order, expected in [
        ((), (first, second, third, fourth, fifth)),
        ((switch,), (second, fifth, third, first, fourth)),
        ((replace(switch, descending=True), replace(cpu, descending=True)), (fourth, first, third, fifth, second)),
        ((ResourceOrder("Switch"), replace(number, descending=True)), (second, fifth, third, fourth, first)),
        ((cpu,), (third, first, second, fifth, fourth)),
    ]:
        assert read(tx, *order).resources.ids == expected, order


def test_an_order_by_a_column_there_is_none_of_is_refused(tx: Tx):
    with pytest.raises(UnknownProperty, match="swich"):
        read(tx, ResourceOrder("swich"))


def test_jobs_that_ask_the_same_share_a_shape(tx: Tx):
    add_nodes(tx, ["a"])
    same = {"asked": ["{cpu > 1}/network_address=1/core=2,walltime=1", "/core=1,walltime=2"], "where": "switch = 's1'"}
    first, second = new_jobs.add(tx, [new(**same), new(**same)])
    third = add_job(tx, "/core=1,walltime=3", where="switch = 's1'")
    fourth = add_job(tx, "/core=1,walltime=3")
    types = properties.types(tx)
    condition = check(parse("switch = 's1'"), types)
    core = ResourceGroup((Level("core", 1),))
    found = read(tx)
    assert found.shapes == (
        Shape(
            (ResourceGroup((Level("network_address", 1), Level("core", 2)), check(parse("cpu > 1"), types)),), condition
        ),
        Shape((core,), condition),
        Shape((core,), None),
    )
    m = choice(tx, first)
    assert {job.job_id: job.choices for job in found.waiting} == {
        first.id: (Choice(m, 0, HOUR), Choice(m + 1, 1, 2 * HOUR)),
        second.id: (Choice(m + 2, 0, HOUR), Choice(m + 3, 1, 2 * HOUR)),
        third.id: (Choice(m + 4, 1, 3 * HOUR),),
        fourth.id: (Choice(m + 5, 2, 3 * HOUR),),
    }


def test_a_waiting_job_has_all_that_decides_its_place(tx: Tx):
    add_nodes(tx, ["a"])
    ended, failed, waiting = (add_job(tx) for _ in range(3))
    step(tx, structs.replace(ended, exit_code=256), S.ERROR)
    step(tx, failed, S.HOLD)
    job = add_job(
        tx,
        user="bob",
        queue="admin",
        project="p",
        name="n",
        types=("deploy", "timesharing=*,*"),
        reservation=Reservation.TO_SCHEDULE,
        start=NOW + 100,
        after=(ended.id, failed.id, waiting.id),
    )
    assert read(tx).waiting[-1] == WaitingJob(
        job_id=job.id,
        user="bob",
        queue="admin",
        choices=(Choice(choice(tx, job), 0, HOUR),),
        project="p",
        name="n",
        submitted=NOW,
        types=("deploy", "timesharing=*,*"),
        reservation=Reservation.TO_SCHEDULE,
        start=NOW + 100,
        after=(
            Dependency(ended.id, S.ERROR, 256),
            Dependency(failed.id, S.HOLD, None),
            Dependency(waiting.id, S.WAITING, None),
        ),
    )


def test_held_and_ended_jobs_are_not_there(tx: Tx):
    cores = add_nodes(tx, ["a"])
    add_job(tx, state=S.HOLD)
    job = step(tx, run(tx, add_job(tx), cores), S.FINISHING)
    step(tx, job, S.TERMINATED)
    found = read(tx)
    assert (found.waiting, found.placed) == ((), ())


@pytest.mark.parametrize("state", [S.TO_LAUNCH, S.LAUNCHING, S.RUNNING])
def test_a_job_that_holds_resources_is_placed(tx: Tx, state: JobState):
    cores = add_nodes(tx, ["a", "b"])
    job = add_job(tx, ["/core=1,walltime=1", "/core=3,walltime=2"], types=("besteffort",), checkpoint=60, name="n")
    moldable = choice(tx, job)
    job = run(tx, job, cores[1:], at=NOW - 10, until=state)
    assert read(tx).placed == (
        PlacedJob(
            job_id=job.id,
            moldable_id=moldable,
            user="ada",
            queue="default",
            state=state,
            start=NOW - 10,
            stop=NOW - 10 + HOUR,
            resources=tuple(cores[1:]),
            name="n",
            types=("besteffort",),
            checkpoint=60,
        ),
    )


def test_time_spent_suspended_is_added_to_the_end(tx: Tx):
    cores = add_nodes(tx, ["a"])
    job = step(tx, run(tx, add_job(tx), cores), S.SUSPENDED, at=NOW + 100)
    assert [(p.state, p.stop) for p in read(tx, now=NOW + 150).placed] == [(S.SUSPENDED, NOW + HOUR + 50)]
    job = step(tx, structs.replace(job, suspended=True), S.RESUMING, at=NOW + 200)
    assert [(p.state, p.stop) for p in read(tx, now=NOW + 210).placed] == [(S.RESUMING, NOW + HOUR + 110)]
    job = step(tx, job, S.RUNNING, at=NOW + 230)
    job = step(tx, job, S.SUSPENDED, at=NOW + 300)
    assert [(p.state, p.stop) for p in read(tx, now=NOW + 301).placed] == [(S.SUSPENDED, NOW + HOUR + 131)]


def test_an_accepted_reservation_is_placed_where_it_was_promised(tx: Tx):
    cores = add_nodes(tx, ["a", "b"])
    job = add_job(tx, reservation=Reservation.TO_SCHEDULE, start=NOW + 500)
    other = add_job(tx)  # has a prediction too, but no promise
    moldable = choice(tx, job)
    plans.write(
        tx,
        now=NOW,
        placed=[plans.Prediction(moldable, NOW + 500, (cores[0], cores[3])), plans.Prediction(moldable + 1, NOW, (1,))],
    )
    accepted = structs.replace(job, reservation=Reservation.SCHEDULED)
    for state in (S.TO_ACK_RESERVATION, S.WAITING):
        accepted = step(tx, accepted, state)
        found = read(tx)
        assert found.placed == (
            PlacedJob(
                job_id=job.id,
                moldable_id=moldable,
                user="ada",
                queue="default",
                state=state,
                start=NOW + 500,
                stop=NOW + 500 + HOUR,
                resources=(cores[0], cores[3]),
                reservation=Reservation.SCHEDULED,
            ),
        )
        assert [waiting.job_id for waiting in found.waiting] == [other.id]


def test_an_accepted_reservation_whose_place_was_lost_waits_for_another(tx: Tx):
    add_nodes(tx, ["a"])
    job = add_job(tx, reservation=Reservation.SCHEDULED, start=NOW + 500)
    [waiting] = read(tx).waiting
    assert (waiting.job_id, waiting.reservation, waiting.start) == (job.id, Reservation.SCHEDULED, NOW + 500)


def test_a_job_that_asks_for_a_dropped_property_is_left_out_and_named(tx: Tx):
    add_nodes(tx, ["a"])
    properties.add(tx, "gpu", int)
    fine = add_job(tx)
    broken = [
        add_job(tx, where="gpu > 0"),
        add_job(tx, "{gpu > 0}/core=1,walltime=1"),
        add_job(tx, ["/core=1,walltime=1", "/gpu=1,walltime=1"]),
    ]
    properties.drop(tx, "gpu", at=NOW)
    unreadable = add_job(tx)
    tx.exec_driver_sql(f"UPDATE jobs SET properties = 'cpu >' WHERE job_id = {unreadable.id}")
    found = snapshot.read(tx, karma_window=0, now=NOW)
    assert [job.job_id for job in found.snapshot.waiting] == [fine.id]
    assert [number for number, _ in found.broken] == [job.id for job in [*broken, unreadable]]
    assert all("`gpu`" in why for _, why in found.broken[:3])
    assert "ends too early" in found.broken[3][1]


def test_usage_sums_the_windows_that_begin_in_time(tx: Tx):
    day = 86400
    columns = "window_start window_stop accounting_user accounting_project queue_name consumption_type consumption"
    insert_rows(
        tx,
        "accounting",
        columns.split(),
        [
            (start, start + day - 1, user, project, queue, kind, used)
            for start, user, project, queue, kind, used in [
                (0, "ada", "p", "default", "USED", 1_000_000),  # too old
                (day, "ada", "p", "default", "USED", 1),
                (day, "bob", "p", "default", "USED", 2),
                (2 * day, "ada", "q", "default", "USED", 4),
                (2 * day, "ada", "q", "default", "ASKED", 8),
                (2 * day, "ada", "q", "besteffort", "ASKED", 16),
                (3 * day, "ada", "q", "default", "ASKED", 1_000_000),  # not yet
            ]
        ],
    )
    found = snapshot.read(tx, karma_window=2 * day, now=3 * day).snapshot
    assert found.usage == {
        "besteffort": Usage(requested=16, requested_by_user={"ada": 16}),
        "default": Usage(
            used=7,
            requested=8,
            used_by_user={"ada": 5, "bob": 2},
            requested_by_user={"ada": 8},
            used_by_project={"p": 3, "q": 4},
        ),
    }


def test_what_was_used_counts_half_after_a_half_life(tx: Tx):
    day = 86400
    columns = "window_start window_stop accounting_user accounting_project queue_name consumption_type consumption"
    rows = [
        (0, "ada", "p", "default", "USED", 800),
        (2 * day, "ada", "q", "default", "USED", 4),
        (2 * day, "bob", "p", "default", "USED", 2),
        (2 * day, "bob", "p", "default", "ASKED", 1_000_000),
        (3 * day, "ada", "q", "default", "USED", 1_000_000),  # not yet
        (2 * day, "cyd", "p", "heavy", "USED", 8),
    ]
    insert_rows(tx, "accounting", columns.split(), [(start, start + day - 1, *rest) for start, *rest in rows])

    def decayed() -> dict[str, dict[str, float]]:
        found = snapshot.read(tx, karma_window=day, half_life=day, now=3 * day).snapshot
        return {queue: usage.decayed_by_user for queue, usage in found.usage.items()}

    assert decayed() == {"default": {}, "heavy": {}}
    administration.add_queue(tx, Queue("heavy", 5, "easy+multifactor"))
    assert decayed() == {"default": {"ada": 102.0, "bob": 1.0}, "heavy": {"cyd": 4.0}}


def test_the_last_two_runs_are_read_where_a_queue_predicts(tx: Tx):
    add_nodes(tx, ["node1"])
    for user, start, stop in [("ada", 10, 15), ("ada", 20, 27), ("ada", 30, 39), ("bob", 5, 6), ("cyd", 5, 9)]:
        past = add_job(tx, user=user)
        tx.execute(
            update(tables.jobs)
            .where(tables.jobs.c.job_id == past.id)
            .values(state="Terminated", start_time=start, stop_time=stop)
        )
    never_ran = add_job(tx, user="ada")
    tx.execute(update(tables.jobs).where(tables.jobs.c.job_id == never_ran.id).values(state="Error"))
    for user in ("ada", "bob", "dan"):
        add_job(tx, user=user)
    assert read(tx).recent == {}
    administration.add_queue(tx, Queue("quick", 5, "easy+predict"))
    assert read(tx).recent == {"ada": (9, 7), "bob": (1,)}


def test_what_jobs_were_told_is_read_where_their_queue_keeps_dates(tx: Tx):
    administration.add_queue(tx, Queue("kept", 5, "conservative"))
    first, _, third = resources.add(tx, [{"network_address": name} for name in "abc"], at=NOW)
    asked = ["/resource_id=2,walltime=1", "/resource_id=1,walltime=2"]
    told, untold, elsewhere, held = new_jobs.add(
        tx, [new(asked=asked, queue=q) for q in ("kept", "kept", "default", "kept")]
    )
    chosen = {job.id: choice(tx, job) for job in (told, elsewhere, held)}
    step(tx, held, S.HOLD)
    plans.write(tx, now=NOW, placed=[plans.Prediction(number, NOW + 60, (first, third)) for number in chosen.values()])
    found = read(tx)
    assert found.promised == {told.id: Promise(chosen[told.id], NOW + 60, (first, third))}
    assert {job.job_id for job in found.waiting} == {told.id, untold.id, elsewhere.id}


def test_of_a_queue_that_keeps_dates_everybody_is_looked_at(tx: Tx):
    administration.add_queue(tx, Queue("kept", 5, "conservative"))
    asked = ["/resource_id=1,walltime=1"]
    kept, others = (new_jobs.add(tx, [new(asked=asked, queue=queue)] * 5) for queue in ("kept", "default"))
    found = snapshot.read(tx, karma_window=HOUR, now=NOW, depth=2)
    assert [job.job_id for job in found.snapshot.waiting] == [job.id for job in [*kept, *others[:2]]]
    assert found.left == 3


def test_quotas_are_in_it(tx: Tx):
    rules = [QuotaRule("*", "*", "*", "/", jobs=10)]
    administration.put_quotas(tx, dict(enumerate(rules)))
    assert read(tx).quotas == tuple(rules)


def test_the_number_of_queries_does_not_grow_with_the_jobs(tx: Tx):
    cores = add_nodes(tx, [f"n{n}" for n in range(50)])
    some = new_jobs.add(tx, [new(types=("deploy",), after=(1,)) for _ in range(3)])
    with counted(tx) as few:
        read(tx)
    new_jobs.add(tx, [new() for _ in range(500)])
    jobs.assign(tx, {choice(tx, job): cores[n : n + 1] for n, job in enumerate(some)})
    moves.record(tx, [move(job, S.TO_LAUNCH, at=NOW, why="") for job in some])
    with counted(tx) as many:
        read(tx)
    assert len(many) == len(few) <= 16


def test_a_memory_of_too_many_requests_is_full(tx: Tx):
    add_nodes(tx, ["a"])
    memory = snapshot.SnapshotCache()
    snapshot.read(tx, karma_window=HOUR, now=NOW, memory=memory)
    for count in (2_000, 2_001):
        add_job(tx, f"/core={count},walltime=1")
        memory.requests.shapes += [None] * (count - 1 - len(memory.requests.shapes))  # as if so many had been read
        snapshot.read(tx, karma_window=HOUR, now=NOW, memory=memory)
        assert (len(memory.requests.shapes), memory.is_full) == (count, count > 2_000)


def agree(tx: Tx, memory: snapshot.SnapshotCache, depth: int | None = None) -> Snapshot:
    """Read with a memory, and compare that with what a reader without one reads."""
    plain, remembered = (
        snapshot.read(tx, karma_window=HOUR, now=NOW, depth=depth, memory=one).snapshot for one in (None, memory)
    )
    kept = remembered.shapes
    assert [
        [(kept[one.shape], one.moldable_id, one.walltime) for one in job.choices] for job in remembered.waiting
    ] == [[(plain.shapes[one.shape], one.moldable_id, one.walltime) for one in job.choices] for job in plain.waiting]
    without = [replaced(job, choices=()) for job in remembered.waiting]
    assert without == [replaced(job, choices=()) for job in plain.waiting]
    assert replaced(remembered, waiting=(), shapes=()) == replaced(plain, waiting=(), shapes=())
    return remembered


@pytest.mark.parametrize("depth", [None, 5])
def test_a_reader_that_remembers_reads_the_same_snapshot(tx: Tx, depth: int | None):
    memory = snapshot.SnapshotCache()
    numbers = add_nodes(tx, ["a", "b"])
    first, second = (add_job(tx, asked) for asked in ("/core=1,walltime=1", "/core=2,walltime=1"))
    before = agree(tx, memory, depth)
    third = add_job(tx, "/core=2,walltime=3", after=(second.id,))
    after = agree(tx, memory, depth)
    assert after.resources is before.resources
    assert [one is other for one, other in zip(before.waiting, after.waiting, strict=False)] == [True, True]
    assert after.shapes == before.shapes
    run(tx, first, numbers[:1])
    step(tx, second, S.HOLD)
    changed = agree(tx, memory, depth)
    assert [job.job_id for job in changed.waiting] == [third.id]
    assert changed.shapes == before.shapes  # so that numbers stay what they are
    resources.set_state(tx, numbers[1:2], ResourceState.SUSPECTED, at=NOW)
    shapes.set_walltimes(tx, {choice(tx, third): 77})
    later = agree(tx, memory, depth)
    assert later.resources is not after.resources
    assert later.waiting[0].choices[0].walltime == 77
    properties.add(tx, "gpu_model", str)
    agree(tx, memory, depth)


def test_of_a_long_queue_what_is_new_is_read_and_what_waits_is_remembered(tx: Tx):
    memory, cores = snapshot.SnapshotCache(), add_nodes(tx, ["a", "b"])
    first, *_, last = new_jobs.add(tx, [new(types=("deploy",)) for _ in range(1_100)])
    dependent = add_job(tx, after=(first.id,))
    reserved = add_job(tx, reservation=Reservation.TO_SCHEDULE, start=NOW + 500)
    before = agree(tx, memory)
    launched = run(tx, last, cores[:1], until=S.LAUNCHING)
    step(tx, structs.replace(reserved, reservation=Reservation.SCHEDULED), S.TO_ACK_RESERVATION)
    step(tx, first, S.ERROR)
    added = add_job(tx, "/core=2,walltime=3", types=("besteffort",))
    after = agree(tx, memory)
    assert [job.job_id for job in after.waiting[-2:]] == [dependent.id, added.id]
    assert [job.after for job in after.waiting[-2:]] == [(Dependency(first.id, S.ERROR, None),), ()]
    assert after.waiting[0] is before.waiting[1]
    jobs.unassign(tx, [launched.assigned])
    step(tx, structs.replace(launched, assigned=0, start=0), S.WAITING)
    assert last.id in [job.job_id for job in agree(tx, memory).waiting]
    properties.add(tx, "gpu_model", str)
    agree(tx, memory)


def test_changes_by_hand_in_a_long_queue_are_read_within_ten_minutes(tx: Tx):
    memory, _ = snapshot.SnapshotCache(), add_nodes(tx, ["a"])
    new_jobs.add(tx, [new() for _ in range(1_000)])

    def projects(now: int) -> set[str]:
        return {job.project for job in snapshot.read(tx, karma_window=HOUR, now=now, memory=memory).snapshot.waiting}

    assert projects(NOW) == {"default"}
    tx.execute(update(tables.jobs).values(project="other"))
    assert [projects(NOW + seconds) for seconds in (1, 599, 600)] == [{"default"}, {"default"}, {"other"}]
