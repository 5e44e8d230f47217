"""Mails that nobody asks for, put into the queue of mails: digests once a week or month, in working hours only, and
what jobs of a cluster that others run used, a while after their end."""

import logging
from functools import partial

from oarlock.insight.days import is_working_hour
from oarlock.insight.digests import DueDigest, compose, due_digests
from oarlock.insight.job_mails import compose_reports, ended_of_users
from oarlock.insight.mails import mail_key
from oarlock.server.core import ServerCore
from oarlock.settings.kinds import JobReportMails
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import unmeasured
from oarlock.store.queries.users import mails
from oarlock.store.queries.users.mails import NewMail

log = logging.getLogger(__name__)

_REPORTED = "jobs reported until"
_COMPLETE = 900
"""Seconds after the end of a job until its summary and energy are complete."""
_APART = 600  # seconds between two mails about the jobs of a user
_PATIENCE = 86_400  # seconds for which it is waited that an engine which is away has a summary
_AT_ONCE = 20  # digests of one look: each reads the jobs of a week


class DigestSender:
    """Stores digests that are due; the queue of mails sends them.

    Who had nothing to be told is not looked at again until the server restarts or the next week begins.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._empty: set[DueDigest] = set()

    async def store_due(self) -> None:
        """Write some of the digests that are due; the others are written at the next look."""
        now, config = int(self._core.clock.now()), self._core.config
        if not is_working_hour(now, config.mail_hours):
            return
        due = set(await self._core.read(partial(due_digests, config=config, now=now)))
        self._empty &= due
        key = await self._core.write(mail_key)
        for digest in sorted(due - self._empty)[:_AT_ONCE]:
            await self._store(digest, key, now)

    async def _store(self, digest: DueDigest, key: bytes, now: int) -> None:
        mail = await self._core.read(partial(compose, config=self._core.config, digest=digest, key=key, now=now))
        if mail is None:
            self._empty.add(digest)
            return

        def store(tx: Tx) -> None:
            # Looked at again where it is written: the user may have refused it meanwhile.
            if digest in due_digests(tx, self._core.config, now=now):
                mails.add(tx, mail, now=now)

        await self._core.write(store)
        log.info("digest written", extra={"user": digest.user, "rule": digest.rule})


class JobReportSender:
    """Stores mails about jobs that ended. A first start tells nothing of those that ended before it."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    async def store_due(self) -> None:
        """Write the mails about jobs that ended since the last ones, each user one."""
        config, now = self._core.config, int(self._core.clock.now())
        if config.mail_job_reports is JobReportMails.NO:
            return
        stored = await self._core.read(lambda tx: facts.get(tx, _REPORTED))
        if stored is None:
            await self._core.write(lambda tx: facts.put(tx, _REPORTED, str(now)))
            return
        since = int(stored)
        until = await self._core.read(partial(_all_summarised_until, since=since, now=now))
        if until - since < _APART:
            return
        key = await self._core.write(mail_key)

        def write(tx: Tx) -> list[NewMail]:
            users = ended_of_users(tx, config, since=since, until=until)
            written = [compose_reports(tx, config, ended, key=key, now=now) for ended in users]
            return [mail for mail in written if mail is not None]

        due = await self._core.read(write)

        def store(tx: Tx) -> None:
            for mail in due:
                mails.add(tx, mail, now=now)
            facts.put(tx, _REPORTED, str(until))

        await self._core.write(store)
        if due:
            log.info("reports of jobs written", extra={"mails": len(due)})


def _all_summarised_until(tx: Tx, *, since: int, now: int) -> int:
    """Return the instant up to which all jobs that ended have their summary."""
    until = now - _COMPLETE
    waits = unmeasured.first_without(tx, since=max(since, now - _PATIENCE), until=until)
    return until if waits is None else waits - 1
