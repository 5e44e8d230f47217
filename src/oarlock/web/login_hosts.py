"""Callers on login hosts: the relay there, or munge, says who asks, and thereby where."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from oarlock import munge
from oarlock.config import Config
from oarlock.model.errors import NotSignedIn, Unavailable
from oarlock.store.queries.users.user_records import StoredToken
from oarlock.web.identity import TokenScope, token_hash

log = logging.getLogger(__name__)

_THREADS = 4  # for munge, and for look-ups of names
_KEPT_SECONDS = 300.0
_RELAY = "relay"
_WORDS_OF_RELAY = 2  # its key, and the number of the user

FindToken = Callable[[str], Awaitable[StoredToken | None]]
"""Returns the valid token of a hash."""


class ProvenUser(NamedTuple):
    """A user by number, and the login host where it is; an empty text if that is not proven."""

    uid: int
    host: str


class RelayedUser(NamedTuple):
    """A user whom a relay names, and the token by which the relay is known."""

    user: ProvenUser
    key: StoredToken


class LoginHostIdentity:
    """Reads what relays and munge say of a caller."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oarlock-munge")
        self._hosts: dict[str, str] = {}
        self._until = 0.0

    def close(self) -> None:
        """Stop the threads without waiting for what is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def relayed(self, authorization: str, find_token: FindToken) -> RelayedUser | None:
        """Return whom a relay names; None if the header is not a relay's. `NotSignedIn` if its key is not valid."""
        scheme, *words = authorization.split(" ")
        if scheme.lower() != _RELAY:
            return None
        token = None
        if len(words) == _WORDS_OF_RELAY and words[1].isascii() and words[1].isdecimal():
            token = await find_token(token_hash(words[0]))
        scope = None if token is None else TokenScope.parse(token.scope)
        if token is None or scope is None or not scope.relay:
            raise NotSignedIn(
                "The key of this host's relay is not known here, or no longer.",
                hint="An administrator makes another: `oarlock token add --relay HOST`.",
            )
        return RelayedUser(ProvenUser(int(words[1]), scope.relay), token)

    async def by_munge(self, authorization: str, request: str) -> ProvenUser | None:
        """Return who had a credential made for this request; None if the header has none."""
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != munge.SCHEME.lower():
            return None
        path = self._config.munge_socket
        if path is None:
            raise NotSignedIn(
                "This server takes no credentials of munge.",
                hint="MUNGE_SOCKET in its settings; or a token, which `oarlock token add NAME --save` makes there.",
            )
        loop = asyncio.get_running_loop()
        try:
            made = await loop.run_in_executor(self._threads, munge.decode, credential.strip(), str(path))
        except munge.CredentialRefused as refused:
            raise NotSignedIn(
                f"The credential of munge is refused: {refused}.",
                hint="`munge -n | ssh SERVER unmunge` on the login host shows what both think of each other.",
            ) from refused
        except munge.MungeAway as away:
            log.warning("munge is away", extra={"why": str(away)})
            raise Unavailable(
                "The server cannot ask munge who you are; nothing was done.", hint="Try again in a moment."
            ) from away
        if made.payload != request.encode():
            raise NotSignedIn("The credential of munge was made for another request.", hint="Each request needs one.")
        return ProvenUser(made.uid, await self._host(made.host))

    async def _host(self, address: str) -> str:
        """Return which of LOGIN_HOSTS has an address."""
        if not self._config.login_hosts or not address:
            return ""
        if time.monotonic() >= self._until:
            loop = asyncio.get_running_loop()
            self._hosts = await loop.run_in_executor(self._threads, _addresses, self._config.login_hosts)
            self._until = time.monotonic() + _KEPT_SECONDS
        return self._hosts.get(address, "")


def _addresses(names: Sequence[str]) -> dict[str, str]:
    """Return the hosts by address; those that have none are left out, and logged."""
    hosts: dict[str, str] = {}
    for name in names:
        try:
            places = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError as problem:
            log.warning("a login host has no address", extra={"node": name, "why": problem.strerror or str(problem)})
            continue
        hosts.update((str(place[0]), name) for *_, place in places)
    return hosts
