"""Clients that wait for jobs: they hear of what was written, and cost no reading in between."""

import asyncio
import contextlib

from oarlock.model.job import Job, JobState
from oarlock.server.sessions.job_watch import JobStanding, JobWatch
from tests.bed import run_async

_A_WHILE = 0.2  # seconds; a look is followed by a pause of a tenth of it


class _Jobs:
    """Jobs as they stand, and how often they were read."""

    def __init__(self) -> None:
        self.reads, self.state = 0, JobState.WAITING

    async def read(self, _question: object) -> dict[int, JobStanding]:
        self.reads += 1
        return {
            number: JobStanding(Job(id=number, state=self.state, user="ada", queue="default")) for number in range(100)
        }


@run_async
async def test_terminals_that_wait_are_told_of_a_change_and_read_nothing_else():
    jobs = _Jobs()
    watch = JobWatch(jobs.read)
    with contextlib.ExitStack() as stack:
        followers = [stack.enter_context(watch.follow(number)) for number in range(100)]
        assert {(await follower.next()).state for follower in followers} == {JobState.WAITING}
        idle = [asyncio.create_task(follower.next()) for follower in followers]
        await asyncio.wait(idle, timeout=_A_WHILE)
        before = jobs.reads
        assert (await asyncio.wait(idle, timeout=_A_WHILE))[0] == set()
        assert jobs.reads == before
        jobs.state = JobState.RUNNING
        watch.wake()
        assert {(await told).state for told in idle} == {JobState.RUNNING}
        assert jobs.reads == before + 1
    await watch.close()
