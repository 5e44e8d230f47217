"""Become the user of a job: look the account up, drop root, and check each step."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Callable
from typing import NamedTuple

LOWEST_UID = 1000
"""Accounts below are the system's; a setting of the server overrides it."""

_LOOK_UP_DESCRIPTORS = 8

CACHE_SECONDS = 60.0
"""How long an account is cached; a change of a user's groups takes effect within this time."""


class UserRefused(Exception):
    """A user that no job runs as here."""


class UserMissing(UserRefused):
    """A look-up that worked found no such account."""


class LookUpFailed(UserRefused):
    """The account could not be looked up: it is not known whether it exists."""


class PrivilegesNotDropped(Exception):
    """Root could not be given up for good; nothing may be executed."""


class User(NamedTuple):
    """An account of this node."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def account(name: str) -> pwd.struct_passwd:
    """Return the entry of an account, `UserMissing` if there is none, `LookUpFailed` if that could not be found out.

    Python says "not found" for every error (a directory service that is away, no descriptor left), so the C library is
    asked once more for its error number.
    """
    try:
        return pwd.getpwnam(name)
    except KeyError:
        number = _descriptor_error() or _look_up_error(name)
    if number:
        raise LookUpFailed(f"user `{name}` could not be looked up: {os.strerror(number)}")
    raise UserMissing(f"user `{name}` is not known on this node")


def _descriptor_error() -> int:
    """Return the error number if the few descriptors that a look-up needs are not left: some services hide that."""
    fds: list[int] = []
    try:
        while len(fds) < _LOOK_UP_DESCRIPTORS:
            fds.append(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EMFILE
    finally:
        for fd in fds:
            os.close(fd)
    return 0


def _look_up_error(name: str) -> int:
    """Return the error number of a look-up, 0 if it worked."""
    import ctypes

    look_up = ctypes.CDLL(None).getpwnam_r
    entry, result = ctypes.create_string_buffer(512), ctypes.c_void_p()  # larger than any `struct passwd`
    for size in (1 << 14, 1 << 20):
        buffer = ctypes.create_string_buffer(size)
        number = int(look_up(os.fsencode(name), entry, buffer, ctypes.c_size_t(size), ctypes.byref(result)))
        if number != errno.ERANGE:
            break
    return number


def resolve(name: str, uid: int | None, *, lowest: int = LOWEST_UID) -> User:
    """Look an account up; raise `UserRefused` if no job may run as it. A directory service may take long."""
    entry = account(name)
    if uid is not None and uid != entry.pw_uid:
        raise UserRefused(f"user `{name}` has uid {uid} on the server and {entry.pw_uid} on this node")
    if os.geteuid() != 0:
        if entry.pw_uid != os.geteuid():
            raise UserRefused(f"this node runs jobs of uid {os.geteuid()} only, not of `{name}`")
    elif entry.pw_uid == 0 or entry.pw_uid < lowest:
        raise UserRefused(f"user `{name}` has uid {entry.pw_uid}; jobs run as uid {max(lowest, 1)} or above")
    groups = os.getgrouplist(name, entry.pw_gid)
    return User(name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir, entry.pw_shell or "/bin/sh")


class AccountCache:
    """Cache of accounts: a directory service may be slow, and many jobs of a user start at once."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int | None], tuple[float, User]] = {}

    def get(self, name: str, uid: int | None, *, now: float) -> User | None:
        """Return an account that was looked up at most a minute ago; `None` if it must be looked up."""
        since, user = self._entries.get((name, uid), (0.0, None))
        return user if user is not None and now - since < CACHE_SECONDS else None

    def add(self, user: User, uid: int | None, *, now: float) -> None:
        """Remember an account that was looked up now, for a launch with this uid; forget the old ones."""
        fresh = {key: entry for key, entry in self._entries.items() if now - entry[0] < CACHE_SECONDS}
        self._entries = {**fresh, (user.name, uid): (now, user)}


def become(user: User) -> None:
    """Drop root for good: groups first, while that is still allowed; then check that root cannot be regained."""
    if os.geteuid() != 0:
        return
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)  # before the uid: only root may change gids
    os.setresuid(user.uid, user.uid, user.uid)
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise PrivilegesNotDropped(f"the ids are {os.getresuid()} and {os.getresgid()} after the drop to {user.name}")
    _check_irreversible(user)


def become_temporarily(user: User) -> None:
    """Become the user until `come_back`: root stays the saved id. What is executed meanwhile has it no more.

    Exec makes the saved ids those of the user, by the rules of POSIX; before it nothing may run that is not ours.
    """
    if os.geteuid() != 0:
        return
    # Groups before the ids: afterwards we may not change them.
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, 0)
    os.setresuid(user.uid, user.uid, 0)
    if os.getresuid() != (user.uid, user.uid, 0) or os.getresgid() != (user.gid, user.gid, 0):
        raise PrivilegesNotDropped(
            f"the ids are {os.getresuid()} and {os.getresgid()} when {user.name} is to be served"
        )


def return_to_root(groups: list[int]) -> None:
    """Become root again with these groups, if the saved uid is root."""
    if os.getresuid()[2] != 0:
        return
    os.setresuid(0, 0, 0)  # first: the other two need root
    os.setresgid(0, 0, 0)
    os.setgroups(groups)


def _check_irreversible(user: User) -> None:
    tries: tuple[Callable[[], None], ...] = (_all_ids_root, lambda: os.setuid(0), lambda: os.setgid(0))
    for regain in tries:
        try:
            regain()
        except PermissionError:
            continue
        raise PrivilegesNotDropped(f"root could be had back after the drop to {user.name}")


def _all_ids_root() -> None:
    os.setresuid(0, 0, 0)
