"""Containers: inner jobs end with their container, and only invited users enter it."""

from collections.abc import Collection

from oarlock.job.run import kill
from oarlock.job.run.unit_of_work import UnitOfWork
from oarlock.model.job import FINAL, HOLDS_RESOURCES, Job, JobState
from oarlock.model.job_type import EVERYBODY, JobTypes, container_type, parse_types
from oarlock.model.submission_errors import ContainerClosed
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs


def end_orphans(unit: UnitOfWork, ids: Collection[int]) -> None:
    """End inner jobs whose container is over. One that is held is not; and whoever waits for a name waits on."""
    orphans = [unit.jobs[number] for number in ids if number in unit.jobs]
    numbers = {int(name) for job in orphans if (name := parse_types(job.types).inner or "").isdecimal()}
    live = {job.id for job in jobs.existing(unit.tx, numbers) if _is_open(job)}
    lost = [job for job in orphans if _is_lost(job, live)]
    for job in lost:
        kill.end_all(unit, [job.id], f"its container `{parse_types(job.types).inner}` is over")


def check_entry(tx: Tx, user: str, types: JobTypes) -> None:
    """Refuse a job that enters a container whose owner did not let the user in (`ContainerClosed`).

    Containers of one name are one: who opens another of that name, or enters it, needs the consent of all owners.
    """
    for container in _of_the_same_name(tx, types):
        guests = parse_types(container.types).guests
        if user != container.user and guests.isdisjoint({user, EVERYBODY}):
            raise ContainerClosed(
                f"Container {container.id} belongs to {container.user}, who did not let {user} in.",
                hint=f"Its owner does that when submitting it: -t guests={user}, or guests=* for everybody.",
            )


def _of_the_same_name(tx: Tx, types: JobTypes) -> list[Job]:
    """Return the containers that a job would share: by the number it names, and by names."""
    named = types.inner or ""
    numbered = jobs.existing(tx, [int(named)]) if named.isdecimal() else []
    opened = (types.container, *(parse_types(job.types).container for job in numbered))
    names = {"" if named.isdecimal() else named, *(name for name in opened if name)} - {""}
    candidates = [
        *numbered,
        *(job for name in sorted(names) for job in jobs.of_type(tx, container_type(name))),
    ]
    return [job for job in candidates if _is_open(job)]


def _is_lost(job: Job, live: set[int]) -> bool:
    name = parse_types(job.types).inner or ""
    if job.state in HOLDS_RESOURCES:
        return job.state is not JobState.FINISHING
    return job.state is JobState.WAITING and name.isdecimal() and int(name) not in live


def _is_open(job: Job) -> bool:
    """Return whether a job is a container that is not over."""
    over = job.state in FINAL or job.state is JobState.FINISHING
    return parse_types(job.types).is_container and not over
