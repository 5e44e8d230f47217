"""Who waits for the answer to a reservation is woken; nobody asks again and again."""

import asyncio
from pathlib import Path

from sqlalchemy import event

from oarlock.config import Config
from oarlock.job.explain import ReservationOutcome
from oarlock.model.job import JobState, Reservation
from oarlock.server.core import ServerCore
from oarlock.server.process.clock import RealClock
from oarlock.store.engine.database import Database
from tests.clusters import NOW
from tests.store.cluster import add_job


def _reservation(database: Database, state: JobState = JobState.WAITING) -> int:
    dated = {"reservation": Reservation.TO_SCHEDULE, "start": NOW + 600}
    return database.write(lambda tx: add_job(tx, state=state, **dated)).id


def _core(database: Database, folder: Path) -> ServerCore:
    """A core whose loops do not run: no plan is made."""
    return ServerCore(folder, Config(), database, RealClock(), b"key")


def test_nobody_polls_for_the_answer_to_a_reservation(database: Database, tmp_path: Path):
    job_id, reads = _reservation(database), []

    async def story() -> ReservationOutcome:
        core = _core(database, tmp_path)
        event.listen(database._reader, "begin", reads.append)
        try:
            return await core.answered(job_id, seconds=0.3)
        finally:
            await core.close()

    assert asyncio.run(story()) == ReservationOutcome(accepted=None)
    assert len(reads) == 2  # one at the beginning, one at the end


def test_a_held_reservation_is_answered_at_once(database: Database, tmp_path: Path):
    job_id = _reservation(database, JobState.HOLD)

    async def story() -> ReservationOutcome:
        core = _core(database, tmp_path)
        try:
            async with asyncio.timeout(30):
                return await core.answered(job_id, seconds=3600)
        finally:
            await core.close()

    answer = asyncio.run(story())
    assert (answer.accepted, answer.held) == (None, True)
    assert answer.says == f"The reservation is held; the scheduler answers it after `oarresume {job_id}`."


def test_who_waits_is_woken_when_the_reservation_is_ended_or_held(database: Database, tmp_path: Path):
    ended, held = _reservation(database), _reservation(database)

    async def story() -> list[ReservationOutcome]:
        core = _core(database, tmp_path)
        try:
            async with asyncio.timeout(30):
                waiting = [asyncio.create_task(core.answered(job_id, seconds=3600)) for job_id in (ended, held)]
                await asyncio.sleep(0)  # they begin to wait
                await core.kill([ended], by="root")
                await core.hold([held], by="root")
                return [await task for task in waiting]
        finally:
            await core.close()

    assert [(answer.accepted, answer.held) for answer in asyncio.run(story())] == [(False, False), (None, True)]
