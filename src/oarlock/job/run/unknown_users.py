"""Users who are not found: their jobs wait, since "no such user" is often a directory service that is briefly down.

Only a look-up that worked can show that a user does not exist, and it must show that again after a pause: a job ends in
Error no earlier than `LEAST_SECONDS` after the first such result. Until then all jobs of the user wait, with a reason.
"""

from oarlock.job.run.unit_of_work import UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.job import Job
from oarlock.store.queries.users import user_records
from oarlock.store.queries.users.user_records import AccountDoubt

NOT_FOUND = frozenset({EventType.USER_UNKNOWN, EventType.USER_LOOKUP_ERROR})
"""Launches that failed because the user was not found; they are none of the three attempts of a job."""

LEAST_SECONDS = 600
_WAITS = " (waits: "
_PAUSE = 30  # seconds until the user is looked up again
_SAME_DOUBT = 3600  # seconds after which an older answer counts no more


def postpone(unit: UnitOfWork, user: str, host: str, event: EventType, says: str) -> AccountDoubt | None:
    """Postpone all jobs of a user; return None if the user certainly does not exist.

    `host` is where the look-up was made; empty: on the server.
    """
    now, before = unit.now, user_records.get_doubt(unit.tx, user, host)
    if before is not None and now - before.last > _SAME_DOUBT:
        before = None
    since = before.missing_since if before is not None else 0
    if event is EventType.USER_UNKNOWN:
        if since and now - since >= LEAST_SECONDS:
            return None
        since = since or now
    doubt = AccountDoubt(user, host, since, now, now + _PAUSE, says)
    user_records.put_doubt(unit.tx, doubt)
    return doubt


def sentence(doubt: AccountDoubt) -> str:
    """Return why a job waits, for its owner."""
    return f"{doubt.reason}; it is looked up again every {_PAUSE} s"


def message(job: Job, doubt: AccountDoubt) -> str:
    """Return the message of a job that waits for its account: what it was, and why it waits."""
    return f"{message_without(job)}{_WAITS}{sentence(doubt)})"


def message_without(job: Job) -> str:
    """Return the message of a job without the reason why it waited."""
    return job.message.partition(_WAITS)[0]
