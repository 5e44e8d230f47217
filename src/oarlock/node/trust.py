"""Check that only root or we can write a directory and all above it, before files in it are trusted."""

from __future__ import annotations

import grp
import os
import pwd
import stat

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeDirectory(Exception):
    """A directory that belongs to somebody else, or that others can write."""


def make(path: str, mode: int) -> None:
    """Make a directory and those above it, whatever the umask says; one that is there is left as it is."""
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        make(parent, 0o755)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    os.chmod(path, mode)


def prepare(path: str, mode: int) -> None:
    """Make a directory of ours, or raise `UnsafeDirectory` if others own or can write it, or one above it.

    One that others can only read is closed to them as `mode` says.
    """
    make(path, mode)
    check(path)
    there = stat.S_IMODE(os.stat(path).st_mode)
    if there & ~mode & 0o777:
        os.chmod(path, there & mode)


def check(path: str) -> None:
    """Raise `UnsafeDirectory` unless a directory and all above it belong to root or to us and nobody else writes them.

    A directory above it may have the sticky bit, as /tmp does: there nobody can replace what is not theirs.
    """
    # As written and without links: both ways to it must be safe, since either may be walked.
    for spelling in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        parts = spelling.strip("/").split("/")
        for depth in range(len(parts) + 1):
            _check_one("/" + "/".join(parts[:depth]), is_last=depth == len(parts))


def _check_one(path: str, *, is_last: bool) -> None:
    about = os.lstat(path)
    if about.st_uid not in {0, os.geteuid()}:
        raise UnsafeDirectory(f"{path} belongs to {_user(about.st_uid)}, not to root or {_user(os.geteuid())}")
    if stat.S_ISLNK(about.st_mode):
        return  # a link's mode means nothing; who could replace it is checked at the directory that holds it
    if not stat.S_ISDIR(about.st_mode):
        raise UnsafeDirectory(f"{path} is not a directory")
    writers = about.st_mode & _OTHERS_WRITE
    if writers == stat.S_IWGRP and _is_private(about.st_gid):
        return
    if writers and (is_last or not about.st_mode & stat.S_ISVTX):
        raise UnsafeDirectory(f"others than its owner can write {path} (mode {stat.S_IMODE(about.st_mode):04o})")


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _is_private(gid: int) -> bool:
    """Return whether a group has one member, us: many systems give each user a group and a umask of 002."""
    if os.geteuid() == 0 or gid != os.getegid():
        return False
    try:
        name, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}
