"""Arrays: what members share is stored once, how much is written is bounded, and large ones come in slices."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from oarlock.config import Config
from oarlock.job.admission import submit
from oarlock.job.admission.payload import SubmissionPayload
from oarlock.job.admission.submit import LargeArray
from oarlock.job.run import recover
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model import errors, submission_errors
from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.planning import snapshot
from oarlock.store.tables import metadata
from oarlock.web.identity import UserAccount
from oarlock.web.submission_service import SubmissionService
from tests.bed import run_async
from tests.job.submitter import NOW, Submitter, add_cluster
from tests.store.cluster import rows
from tests.web.nodeless_server import NodelessServer

WIDE = ["+".join(["core=1"] * 30) + ",walltime=1"]  # many rows a member, so that few members make many
MEMBERS = 600


@pytest.fixture
def submitter(tx: Tx) -> Submitter:
    add_cluster(tx)
    return Submitter(tx)


def test_what_members_have_in_common_is_stored_once_an_array(submitter: Submitter):
    long = {"command": "c" * 5000, "environment": {"A": "e" * 5000}, "initial_request": "i" * 5000}
    added = submitter.submit(array=[str(place) for place in range(50)], **long)
    texts = "coalesce(length(command), 0) + length(job_env) + length(initial_request)"
    [(own,)], [(shared,)] = (rows(submitter.tx, f"SELECT sum({texts}) FROM {name}") for name in ("jobs", "array_texts"))
    assert own < 200
    assert shared < 16_000
    assert [job.command for job in added] == [f"{'c' * 5000} {place}" for place in range(50)]
    assert {job.environment for job in added} == {'{"A": "' + "e" * 5000 + '"}'}
    assert {job.initial_request for job in added} == {"i" * 5000}


def test_members_without_parameters_have_the_command_of_the_array(submitter: Submitter):
    assert [job.command for job in submitter.submit(command="a", array=["", "b"])] == ["a", "a b"]
    assert [job.command for job in submitter.submit(types=["noop"], command=None, array=["", ""])] == [None, None]
    assert [job.command for job in submitter.submit(command="a", array=["b"])] == ["a b"]


def test_an_array_that_makes_too_many_rows_is_refused_with_the_numbers(submitter: Submitter):
    groups = "+".join(["core=1"] * 250) + ",walltime=1"
    with pytest.raises(errors.TooLong) as refused:
        submitter.admit(command="true", resources=[groups] * 64, array=[""] * 1000)
    assert "1000 jobs with 64 alternatives (16000 groups of resources in all)" in str(refused.value)
    assert "make 32067000 rows; at most 1000000 are stored." in str(refused.value)


def test_an_array_that_writes_too_many_bytes_is_refused(submitter: Submitter):
    with pytest.raises(errors.TooLong, match=r"would write .* bytes; at most 268435456 are stored"):
        submitter.admit(command="true", directory="/" + "d" * 4000, array=[""] * 100_000)


def test_the_limit_of_an_array_is_a_type_of_its_jobs(submitter: Submitter):
    before = submitter.submit(command="first")[0].id
    members = submitter.submit(command="a", array=[""] * 3, at_once=2, after=[before])
    assert [job.types for job in members] == [("at_once=2",)] * 3
    waits_for = [(job.id, before) for job in members]
    assert rows(submitter.tx, "SELECT job_id, job_id_required FROM job_dependencies ORDER BY 1, 2") == waits_for


def test_a_limit_and_a_date_are_refused_together(submitter: Submitter):
    with pytest.raises(submission_errors.BadArray, match="Jobs of an array that is a reservation all begin"):
        submitter.submit(command="a", array=["", ""], at_once=1, reservation=NOW + 1000)


@pytest.mark.parametrize("limit", [-1, 100_001])
def test_a_limit_that_means_nothing_is_refused(submitter: Submitter, limit: int):
    with pytest.raises(submission_errors.BadArray, match=f"{limit} jobs of an array cannot run at the same time"):
        submitter.submit(command="a", array=["", ""], at_once=limit)


# Large ones, in slices.

ADA = UserAccount("ada", 1001, ())


def _core(database: Database, folder: Path) -> NodelessServer:
    database.write(add_cluster)
    return NodelessServer(folder, Config(), database)


def _array(**more: Any) -> SubmissionPayload:
    return SubmissionPayload(command="run", resources=WIDE, array=[f"p{place}" for place in range(MEMBERS)], **more)


@run_async
async def test_others_get_their_turn_between_the_slices_of_an_array(database: Database, tmp_path: Path):
    service = SubmissionService(_core(database, tmp_path))
    large = asyncio.create_task(service.take(_array(at_once=MEMBERS - 2), ADA, request_id="large"))
    await _begun(database)
    small = await service.take(SubmissionPayload(command="true"), UserAccount("bob", 1002, ()), request_id="small")
    assert not large.done()
    taken = await large
    assert len(taken.ids) == MEMBERS
    assert small.first.id not in taken.ids
    with database.read() as tx:
        members = jobs.get_many(tx, taken.ids)
        assert [(job.id, job.array_index, job.command) for job in members] == [
            (number, place + 1, f"run p{place}") for place, number in enumerate(taken.ids)
        ]
        assert members[0] == taken.first
        assert {job.cpuset_name for job in members} == {f"ada_{number}" for number in taken.ids}
        assert len(snapshot.read(tx, karma_window=1, now=NOW).snapshot.waiting) == MEMBERS - 2 + 1
        assert {job.types for job in members} == {(f"at_once={MEMBERS - 2}",)}
    assert (await service.take(_array(), ADA, request_id="large")).ids == taken.ids


async def _begun(database: Database) -> None:
    """Wait until some of an array was written."""
    for _ in range(10_000):
        with database.read() as tx:
            if tx.execute(select(func.count()).select_from(metadata.tables["array_members"])).scalar_one():
                return
        await asyncio.sleep(0.001)
    raise AssertionError("no slice was written")


@run_async
async def test_a_large_array_is_counted_again_when_its_last_slice_is_stored(database: Database, tmp_path: Path):
    limit = f'[[rule]]\nname = "few"\nwhen = "waiting_jobs_after > {MEMBERS}"\nreject = "Enough jobs wait."\n'
    (tmp_path / "50-few.toml").write_text(limit)
    database.write(add_cluster)
    service = SubmissionService(NodelessServer(tmp_path, Config(admission_rules_dir=tmp_path), database))
    large = asyncio.create_task(service.take(_array(), ADA, request_id="large"))
    await _begun(database)
    await service.take(SubmissionPayload(command="true"), ADA, request_id="small")
    with pytest.raises(submission_errors.RefusedByRule, match="Enough jobs wait"):
        await large
    with database.read() as tx:
        assert jobs.count(tx) == {JobState.WAITING: 1}


@run_async
async def test_a_large_array_that_nobody_waits_for_any_more_leaves_nothing(database: Database, tmp_path: Path):
    service = SubmissionService(_core(database, tmp_path))
    before = _counted(database)
    large = asyncio.create_task(service.take(_array(), ADA, request_id="large"))
    await _begun(database)
    large.cancel()
    with pytest.raises(asyncio.CancelledError):
        await large
    if service._removals:
        await asyncio.wait(service._removals)
    assert _counted(database) == before


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_server_that_dies_between_slices_leaves_no_member_and_no_row(
    database: Database, tmp_path: Path, written: int
):
    core = _core(database, tmp_path)
    before = _counted(database)
    large = database.write(lambda tx: _begin(tx, core.config))
    for places in list(large.slices)[:written]:
        database.write(lambda tx: new_jobs.add_array_slice(tx, large.incoming, places))  # noqa: B023
    with database.read() as tx:
        assert jobs.count(tx) == {}
        assert snapshot.read(tx, karma_window=1, now=NOW).snapshot.waiting == ()
    database.write(lambda tx: recover.begin(tx, StepContext(core.config, b"key"), now=NOW))
    assert _counted(database) == before


def _begin(tx: Tx, config: Config) -> LargeArray:
    front = Submitter(tx, config)
    asked = front.counted(command="run", resources=WIDE, array=[""] * MEMBERS)
    begun = submit.begin_large(tx, asked, cluster=front.existing.now(tx), config=config, now=NOW)
    assert isinstance(begun, LargeArray)
    return begun


def test_a_restart_keeps_an_array_that_was_stored_to_its_end(database: Database, tmp_path: Path):
    core = _core(database, tmp_path)
    large = database.write(lambda tx: _begin(tx, core.config))
    for places in large.slices:
        database.write(lambda tx: new_jobs.add_array_slice(tx, large.incoming, places))  # noqa: B023
    database.write(lambda tx: submit.finish_large(tx, large, now=NOW))
    database.write(lambda tx: recover.begin(tx, StepContext(core.config, b"key"), now=NOW))
    with database.read() as tx:
        assert jobs.count(tx) == {JobState.WAITING: MEMBERS}


def test_numbers_of_an_array_under_way_are_not_given_again(database: Database, tmp_path: Path):
    core = _core(database, tmp_path)
    large = database.write(lambda tx: _begin(tx, core.config))
    database.write(lambda tx: tx.info.clear())  # as on a new connection
    [job] = database.write(lambda tx: Submitter(tx, core.config).submit())
    assert job.id not in large.incoming.numbers


def _counted(database: Database) -> dict[str, int]:
    with database.read() as tx:
        return {
            table.name: tx.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
            if table.name != "instance"  # what a start notes of itself
        }
