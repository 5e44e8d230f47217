"""One request on its way through the house: who asks, and how it reads and changes what is stored."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from oarlock.model.errors import NotSignedIn
from oarlock.store.tx import Tx
from oarlock.web.core import Core
from oarlock.web.policy import Power, Site
from oarlock.web.who import Account, Who

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """What a verb's function is given besides what was asked. `behalf`: for whom an administrator asks."""

    core: Core
    site: Site
    verb: str
    caller: Who | None
    request_id: str = ""
    behalf: Account | None = None

    @property
    def who(self) -> Who:
        """The caller, whose name is known: the dispatcher lets nobody else reach a verb that reads this."""
        if self.caller is None:
            raise NotSignedIn("This server does not know who you are.")
        return self.caller

    @property
    def now(self) -> int:
        """The present instant, in epoch seconds."""
        return self.core.clock.now()

    def demand(self, power: Power, owner: str | None = None) -> None:
        """Refuse what the caller may not do."""
        if refusal := self.site.can(self.caller, power, owner):
            raise refusal

    async def read(self, question: Callable[[Tx], T]) -> T:
        """Read what is stored, at one instant; the question runs in another thread."""
        return await self.core.read(question)

    async def ask(self, question: Callable[[Tx], T]) -> T:
        """Look for what fulfils a condition that the caller wrote, behind the store's second fence."""

        def asked() -> T:
            with self.core.database.ask() as tx:
                return question(tx)

        return await asyncio.to_thread(asked)
