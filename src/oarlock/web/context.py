"""One request on its way through the house: who asks, and how it reads and changes what is stored."""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import Struct

from oarlock.model.errors import NotSignedIn
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import audit, requests
from oarlock.store.queries.audit import AuditEntry
from oarlock.web.core import Core
from oarlock.web.identity import Account, Who
from oarlock.web.policy import Power, Site
from oarlock.web.submission_service import Desk

T = TypeVar("T")

LONGEST_ANSWER = 64 * 1024
"""Bytes of an answer that is kept for a request that is sent again, where acting again does no harm."""

_LONGEST_NOTED = 1000  # characters of what was asked


class Nought(Struct, frozen=True):
    """Done; there is nothing to add."""


@dataclass(frozen=True, slots=True)
class Later:
    """The answer of a verb that waits for somebody else: `finish` is awaited when the turn was given back."""

    finish: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Call:
    """What a verb's function is given besides what was asked. `behalf`: for whom an administrator asks."""

    core: Core
    desk: Desk
    site: Site
    verb: str
    caller: Who | None
    request_id: str = ""
    behalf: Account | None = None
    asked: Struct | None = None
    refusals: list[tuple[Struct, str]] = field(default_factory=list)  # of parts of it: what was asked for, and why not

    @property
    def who(self) -> Who:
        """The caller, whose name is known: the dispatcher lets nobody else reach a verb that reads this."""
        if self.caller is None:
            raise NotSignedIn("This server does not know who you are.")
        return self.caller

    @property
    def account(self) -> Account:
        """In whose name it is done."""
        return self.behalf or self.who.account

    @property
    def now(self) -> int:
        """The present instant, in epoch seconds."""
        return int(self.core.clock.now())

    def demand(self, power: Power, owner: str | None = None) -> None:
        """Refuse what the caller may not do."""
        if refusal := self.site.can(self.caller, power, owner):
            raise refusal

    @property
    def reader(self) -> str:
        """On whose budget it reads; all without a name have one together."""
        return "" if self.caller is None else self.caller.name

    def key(self, *, private: bool) -> Hashable:
        """Return what stands for this question: callers with the same key may share one answer.

        A `private` answer depends on what the caller may see: everything for administrators, else what is its own.
        """
        sees = ("all" if self.who.admin else f"own of {self.who.name}") if private else "what everybody may"
        return self.verb, sees, msgspec.json.encode(self.asked)

    async def read(self, question: Callable[[Tx], T], key: Hashable = None) -> T:
        """Read what is stored, at one instant; the question runs in another thread."""
        return await self.core.read(question, user=self.reader, key=key)

    async def change(self, step: Callable[[Tx], T], kind: type[T]) -> T:
        """Do a step in one transaction, once: with the same request id again it only says again what came of it.

        The step may be run twice by the writer, so it does nothing but use its transaction. `kind` is what it gives.
        """

        def once(tx: Tx) -> T:
            known = self._answered(tx)
            if known is not None:
                return msgspec.json.decode(known, type=kind)
            value = step(tx)
            self._remember(tx, value, self.asked)
            return value

        return await self.core.write(once)

    async def do(self, step: Callable[[Tx], None]) -> Nought:
        """Do a step of which there is nothing to tell, once, as `change` does."""

        def told(tx: Tx) -> Nought:
            step(tx)
            return Nought()

        return await self.change(told, Nought)

    async def act(
        self, action: Callable[[], Awaitable[T]], kind: type[T], about: Callable[[T], Struct | None] | None = None
    ) -> T:
        """Do something that has transactions of its own and does no harm when it is done twice; answer it once.

        A server that dies between the action and its answer acts again when asked again, and so does one whose answer
        was too long to be kept. `about` says what to note as
        asked for, where the words of the request do not say what it was done to; nothing, if nothing was done.
        """
        known = await self.core.read(self._answered)
        if known is not None:
            return msgspec.json.decode(known, type=kind)
        value = await action()

        def remember(tx: Tx) -> None:
            if self._answered(tx) is None:
                self._remember(tx, value, about(value) if about else self.asked, longest=LONGEST_ANSWER)

        await self.core.write(remember)
        return value

    def _answered(self, tx: Tx) -> str | None:
        return requests.answer(tx, user=self.who.name, request_id=self.request_id, verb=self.verb)

    def _remember(self, tx: Tx, value: object, asked: Struct | None, *, longest: int | None = None) -> None:
        answer = msgspec.json.encode(value).decode()
        if longest is None or len(answer) <= longest:
            requests.remember(
                tx, user=self.who.name, request_id=self.request_id, verb=self.verb, answer=answer, at=self.now
            )
        if asked is not None:
            self.note(tx, asked)

    def note(self, tx: Tx, asked: Struct | None = None) -> None:
        """Write down who asks for which change; what the request says, if nothing else is given."""
        audit.add(tx, entry(self.who, self.behalf, self.verb, asked or self.asked, now=self.now))

    async def ask(self, question: Callable[[Tx], T], key: Hashable = None) -> T:
        """Look for what fulfils a condition that the caller wrote, behind the store's second fence."""
        return await self.core.ask(question, user=self.reader, key=key)


def entry(
    who: Who | None, behalf: Account | None, verb: str, asked: Struct | None, *, now: int = 0, refused: str = ""
) -> AuditEntry:
    """Return the entry of the audit for a request; what was asked is cut short when it is very long."""
    text = "" if asked is None else msgspec.json.encode(asked).decode()
    name, channel = (who.name, who.channel) if who else ("", "network")
    return AuditEntry(now, name, behalf.name if behalf else "", verb, channel, text[:_LONGEST_NOTED], refused)
