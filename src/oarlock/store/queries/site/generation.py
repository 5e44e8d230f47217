"""Generations: which of its states a database goes on from. A restart keeps it; a restore, or a new database, does not.

Two things tell that a database is older than what was done with it: a count in the database, raised while it is written
to, with a copy in a file of the state directory; and the numbers of jobs that nodes have seen.
"""

import logging
import os
import secrets
from pathlib import Path

from oarlock.model.event import Event, EventType
from oarlock.store.engine import facts
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx, highest_id, skip_ids
from oarlock.store.queries.cluster import events
from oarlock.store.tables import jobs, resources

log = logging.getLogger(__name__)

_GENERATION, _MARK, _SURVEY = "generation", "mark", "to survey"
_RESOURCE = resources.c.resource_id
_GAP = 1000  # job numbers skipped after a restore: the mark file and the nodes may not have seen the last few


def current(tx: Tx) -> str:
    """Return the present generation; a database that has none begins its first."""
    return facts.get_or_set(tx, _GENERATION, secrets.token_hex(8))


def begin(tx: Tx, why: str, *, above: int = 0, now: int) -> str:
    """Begin a generation: jobs get numbers well above all allocated before, and an event has the reason."""
    name = secrets.token_hex(8)
    facts.put(tx, _GENERATION, name)
    facts.put(tx, _SURVEY, name)
    first = skip_jobs(tx, above)
    says = f"{why}; generation {name} of the database begins with job {first}"
    events.add(tx, [Event(EventType.NEW_GENERATION, now, says)])
    return name


def pop_survey_request(tx: Tx) -> bool:
    """Return, once a generation, whether all nodes are to be asked what they still run of others."""
    return facts.pop(tx, _SURVEY) is not None


def highest_job(tx: Tx) -> int:
    """Return the highest number of a job that was given, or is never given."""
    return highest_id(tx, jobs.c.job_id)


def skip_jobs(tx: Tx, above: int) -> int:
    """Never allocate job numbers up to this one and about a thousand more; return the next that is allocated."""
    reached = max(above, highest_job(tx))
    return skip_ids(tx, jobs.c.job_id, (reached // _GAP + 2) * _GAP)


class MarkFile:
    """The copy of a database's count in the state directory, with the highest number of a job.

    It is written after the database, so that it is never ahead of the database that it belongs to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[int, int]:
        """Return the count and the highest number of a job; zeros where there is no file, or none that makes sense."""
        try:
            count, job = self._path.read_text().split()
            return int(count), int(job)
        except FileNotFoundError:
            return 0, 0
        except (OSError, ValueError) as problem:
            log.warning("%s cannot be read: %s", self._path, problem)
            return 0, 0

    def write(self, count: int, job: int) -> None:
        """Replace the file; on the disk before returning."""
        partial = self._path.with_name(f"{self._path.name}.partial")
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(f"{count} {job}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)


class GenerationMarks:
    """Raises the count of a database and of its file while the database is written to; an idle server does not."""

    def __init__(self, database: Database, file: MarkFile) -> None:
        self._database, self._file = database, file
        self._ids: dict[object, int] | None = None  # the numbers that were given when the count was last raised

    def check(self, *, now: int) -> bool:
        """Begin a generation if the database is older than its file says, or was restored; then raise the count.

        Return whether the database is a new one.
        """
        count, job = self._file.read()

        def look(tx: Tx) -> bool:
            is_new = facts.get(tx, _GENERATION) is None and highest_job(tx) == highest_id(tx, _RESOURCE) == 0
            source = facts.pop(tx, facts.RESTORED)
            if source is not None:
                begin(tx, f"the database was restored from {source}", above=job, now=now)
            elif int(facts.get(tx, _MARK) or 0) < count:
                begin(
                    tx, "the database is older than what the last server left: a copy was put back", above=job, now=now
                )
            current(tx)
            facts.put(tx, _MARK, str(max(count, int(facts.get(tx, _MARK) or 0))))
            return is_new

        is_new = self._database.write(look)
        self.renew()
        return is_new

    def renew(self) -> None:
        """Raise the count if anything was written since the last time. Blocks until both are on disk."""
        raised = self._database.write(self._raise)
        # The database first: a file ahead of its database would look like a restored copy after a crash.
        if raised is not None:
            self._file.write(*raised)

    def _raise(self, tx: Tx) -> tuple[int, int] | None:
        ids = dict(tx.info.get("next ids", {}))
        if ids == self._ids:
            return None
        self._ids = ids
        count = int(facts.get(tx, _MARK) or 0) + 1
        facts.put(tx, _MARK, str(count))
        return count, highest_job(tx)
