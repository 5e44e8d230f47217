"""Identity of callers: vouched for by the kernel or a token, never taken from the request.

Tokens are for those who come over the port: random, shown once, kept only as a hash.
"""

import asyncio
import grp
import hashlib
import os
import pwd
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

KEPT_SECONDS = 60.0
_MOST_KEPT = 10_000
_LOOK_UP_SECONDS = 10.0


class CallerChannel(StrEnum):
    """How a caller came in."""

    SOCKET = "socket"  # the kernel says who it is
    TOKEN = "token"  # noqa: S105  (the name of a channel)
    BROWSER = "browser"  # the cookie of a session
    RELAY = "relay"  # the relay of a login host, which had it from the kernel there
    MUNGE = "munge"  # a credential of munge


@dataclass(frozen=True, slots=True)
class SocketPeer:
    """The process at the other end of a Unix socket, as the kernel saw it when it connected."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class UserAccount:
    """A user of the system."""

    name: str
    uid: int
    groups: tuple[str, ...] = ()

    def is_number(self, uid: int | None) -> bool:
        """Return whether this account has that uid: names are reused. None (kept before uids were) always matches."""
        return uid is None or uid == self.uid


_SCRIPTS = "/scripts"
_RELAY = "/relay/"


@dataclass(frozen=True, slots=True)
class TokenScope:
    """The one thing that a token is good for: a node, the relay of a login host, or the scripts of jobs.

    `cluster`: of which, if not of ours.
    """

    node: str = ""
    cluster: str = ""
    relay: str = ""

    @classmethod
    def parse(cls, text: str) -> "TokenScope | None":
        """Read what is stored with a token; None for one that is as good as its user."""
        if text.startswith(_RELAY):
            return cls(relay=text.removeprefix(_RELAY))
        thing, _, cluster = text.partition("@")
        return cls("" if thing == _SCRIPTS else thing, cluster) if text else None

    def __str__(self) -> str:
        if self.relay:
            return _RELAY + self.relay
        return (self.node or _SCRIPTS) + (f"@{self.cluster}" if self.cluster else "")

    @property
    def words(self) -> str:
        """What it is good for, in words."""
        if self.relay:
            return f"the relay of {self.relay}"
        what = f"the node {self.node}" if self.node else "scripts of jobs"
        return what + (f" of the cluster {self.cluster}" if self.cluster else "")


@dataclass(frozen=True, slots=True)
class Caller:
    """An identified caller, and whether it is an administrator, of the support staff, or leads projects.

    `scope`: it showed a token that is good for that and nothing else; the account is that of the administrator who
    made it. `token`: the hash of its token. `host`: the login host where it asks, if that is proven.
    """

    account: UserAccount
    channel: CallerChannel
    admin: bool = False
    support: bool = False
    leads: tuple[str, ...] = ()
    scope: "TokenScope | None" = None
    token: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        """The user's name."""
        return self.account.name

    @property
    def staff(self) -> bool:
        """Whether the totals, curves and findings of all jobs are shown to it."""
        return self.admin or self.support

    def owner_shown(self, user: str, uid: int | None) -> str:
        """Return whose something is, for a refusal: an earlier account of the caller's own name is another one."""
        is_namesake = user == self.name and not self.account.is_number(uid)
        return f"another {user}" if is_namesake and not self.admin else user

    def owns(self, user: str, uid: int | None) -> bool:
        """Return whether a job of this user name and uid belongs to the caller."""
        return user == self.name and self.account.is_number(uid)


class AccountDirectory:
    """Users by number or name. Look-ups may hang (LDAP, NIS): they have threads of their own, and a deadline.

    An account is kept for a minute. "No such user" is not kept: a directory service that is away says the same.
    Callers who ask for one user at the same time share a look-up.
    """

    def __init__(self, *, kept_seconds: float = KEPT_SECONDS) -> None:
        self._kept_seconds = kept_seconds
        self._kept: dict[int | str, tuple[float, UserAccount]] = {}
        self._under_way: dict[int | str, asyncio.Future[UserAccount | None]] = {}
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="oarlock-accounts")

    async def find(self, key: int | str) -> UserAccount | None:
        """Return the user with this uid or name; None if there is none. `TimeoutError` if it takes too long."""
        kept = self._kept.get(key)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        if key not in self._under_way:
            self._under_way[key] = asyncio.ensure_future(self._look_up(key))
        return await asyncio.wait_for(asyncio.shield(self._under_way[key]), _LOOK_UP_SECONDS)

    async def _look_up(self, key: int | str) -> UserAccount | None:
        try:
            loop = asyncio.get_running_loop()
            account = await loop.run_in_executor(self._threads, _account_of, key)
        finally:
            del self._under_way[key]
        if account is None:
            return None
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[key] = time.monotonic() + self._kept_seconds, account
        return account

    def close(self) -> None:
        """Stop the threads without waiting for look-ups under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _account_of(key: int | str) -> UserAccount | None:
    try:
        user = pwd.getpwuid(key) if isinstance(key, int) else pwd.getpwnam(key)
    except (KeyError, ValueError):
        return None
    groups = (_group_name(gid) for gid in os.getgrouplist(user.pw_name, user.pw_gid))
    return UserAccount(user.pw_name, user.pw_uid, tuple(dict.fromkeys(name for name in groups if name)))


def groups_of(name: str) -> tuple[str, ...]:
    """Return the groups of a user; none for an unknown one. May hang where the directory service does."""
    account = _account_of(name)
    return () if account is None else account.groups


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


_TOKEN_BYTES = 32


def new_token() -> str:
    """Make a new token: 256 random bits, as a text for a header."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> str:
    """Return the hash that is kept of a token. It is random, so a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
