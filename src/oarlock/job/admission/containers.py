"""Entry into containers: their owners say whose jobs may run inside of them."""

from oarlock.model.job import FINAL, Job, JobState
from oarlock.model.job_type import EVERYBODY, JobTypes, container_type, parse_types
from oarlock.model.submission_errors import ContainerClosed
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs


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
    return [job for job in candidates if is_open(job)]


def is_open(job: Job) -> bool:
    """Return whether a job is a container that is not over."""
    over = job.state in FINAL or job.state is JobState.FINISHING
    return parse_types(job.types).is_container and not over
