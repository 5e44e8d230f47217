"""Refusals that come again are counted, and the count is written when their time is over."""

import asyncio

from oarlock.store.queries.users.user_records import AuditEntry
from oarlock.web.refusals import MOST_DIFFERENT, MOST_USERS, RefusalRecorder

NO = "Only administrators may do this."


def _entry(user: str = "bob", asked: str = "") -> AuditEntry:
    return AuditEntry(0, user, "", "queues.stop", "socket", asked, NO)


def _recorded(entries: list[AuditEntry]) -> list[AuditEntry]:
    """Record refusals and let their window end."""
    written: list[AuditEntry] = []

    async def run() -> None:
        over = asyncio.Event()

        async def write(entry: AuditEntry) -> None:
            written.append(entry)
            if "more)" in entry.refused or "other requests)" in entry.refused:
                over.set()

        recorder = RefusalRecorder(write, window=0.05)
        for entry in entries:
            await recorder.record(entry)
        await asyncio.wait_for(over.wait(), 10)

    asyncio.run(run())
    return written


def test_the_same_refusal_is_written_once_and_later_how_often_it_came():
    written = _recorded([_entry()] * 8)
    assert [entry.refused for entry in written] == [NO, f"{NO} (7 more)"]


def test_beyond_a_few_different_ones_refusals_are_only_counted():
    written = _recorded([_entry(asked=str(number)) for number in range(500)])
    assert len(written) == MOST_DIFFERENT + 1
    assert (written[-1].asked, written[-1].refused) == ("499", f"{NO} (and {499 - MOST_DIFFERENT} other requests)")


def test_however_many_users_are_refused_the_rows_stay_few():
    written = _recorded([_entry(user=f"u{number}") for number in range(5 * MOST_USERS)])
    assert len(written) == MOST_USERS + MOST_DIFFERENT + 1
