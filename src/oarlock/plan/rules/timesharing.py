"""Timesharing: jobs of one class share their resources."""

from typing import NamedTuple

from oarlock.model.errors import OarlockError
from oarlock.model.job_type import EVERYBODY, SHARING_SCOPE, JobTypes

_ALONE = f"{EVERYBODY},{EVERYBODY}"


class BadTimesharing(OarlockError):
    """A timesharing type that is none of the manual's four."""


class SharingClass(NamedTuple):
    """With whom a job shares its resources: jobs of the very same class."""

    user: str
    name: str


def sharing_class(types: JobTypes, user: str, name: str | None) -> SharingClass | None:
    """Return a job's timesharing class; None if it does not share.

    `timesharing` alone is `*,*`. `user` stands for the job's own user; `name` (the manual also writes `job_name`) for
    its own name, and an unnamed job falls back to `*`.
    """
    scope = types.timesharing
    if scope is None:
        return None
    match = SHARING_SCOPE.fullmatch(scope or _ALONE)
    if match is None:
        raise BadTimesharing(
            f"`timesharing={scope}` is not a way to share.",
            hint="It is one of *,*   user,*   *,name   user,name.",
        )
    of_user, of_name = (part != EVERYBODY for part in match.groups())
    return SharingClass(user if of_user else EVERYBODY, (name or EVERYBODY) if of_name else EVERYBODY)
