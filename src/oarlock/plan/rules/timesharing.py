"""Timesharing and the other job types that matter to planning."""

from collections.abc import Iterable
from typing import NamedTuple

from oarlock.model.errors import OarlockError

ANYBODY = "*"


class BadTimesharing(OarlockError):
    """A timesharing type that is none of the manual's four."""


class SharingClass(NamedTuple):
    """With whom a job shares its resources: jobs of the very same class."""

    user: str
    name: str


def is_besteffort(types: Iterable[str]) -> bool:
    """Return whether a job gives way to every other."""
    return "besteffort" in types


def sharing_class(types: Iterable[str], user: str, name: str | None) -> SharingClass | None:
    """Return a job's timesharing class; None if it does not share.

    `timesharing` alone is `*,*`. `user` stands for the job's own user; `name` (the manual also writes `job_name`) for
    its own name, and an unnamed job falls back to `*`.
    """
    for kind in types:
        word, _, scope = kind.partition("=")
        if word == "timesharing":
            return _class(scope, user, name)
    return None


def _class(scope: str, user: str, name: str | None) -> SharingClass:
    who, comma, what = scope.partition(",")
    if scope and (not comma or who not in {ANYBODY, "user"} or what not in {ANYBODY, "name", "job_name"}):
        raise BadTimesharing(
            f"`timesharing={scope}` is not a way to share.",
            hint="It is one of *,*   user,*   *,name   user,name.",
        )
    return SharingClass(user if who == "user" else ANYBODY, (name or ANYBODY) if what.endswith("name") else ANYBODY)
