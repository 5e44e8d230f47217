"""Digests that nobody asks for: put into the queue of mails once a week or month, in working hours only."""

import logging
from functools import partial

from oarlock.insight.days import is_working_hour
from oarlock.insight.digests import DueDigest, compose, due_digests
from oarlock.insight.mails import mail_key
from oarlock.server.core import ServerCore
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import mails

log = logging.getLogger(__name__)

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
