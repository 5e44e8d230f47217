"""The owners of jobs: user, account and name, as labels.

What the path of a cgroup does not say is looked up, or taken from the environment of the job's processes.
"""

import pwd
import time
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol

from oarlock.node.measure.discovery import Key
from oarlock.node.measure.layout import CgroupIdentity

PATIENCE_SECONDS = 10.0
"""How long the series of a new job wait for a look-up, so that they do not change their labels soon after."""


class JobFacts(NamedTuple):
    """What a resource manager knows about a job; empty is "it does not say"."""

    user: str = ""
    account: str = ""
    name: str = ""
    job: str = ""  # its number, where its cgroup is called otherwise


_NOTHING = JobFacts()


class JobOwner(NamedTuple):
    """Whose a measured cgroup is; the fields that families turn into labels."""

    job: str
    user: str = ""
    uid: str = ""
    account: str = ""
    node: str = ""  # where several nodes share this machine
    name: str = ""
    manager: str = ""


class OwnerLookup(Protocol):
    """Looks up facts of jobs. A call never waits: what is not known yet is None, and is looked up in the background."""

    def facts(self, job: str) -> JobFacts | None:
        """Return what is known of a job; None while it is looked up."""

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all jobs but these."""


class JobOwners:
    """Remember the owner of each job; ask the look-up, if there is one, until it knows."""

    def __init__(self, look_up: OwnerLookup | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._look_up = look_up
        self._clock = clock
        self._cache: dict[Key, tuple[CgroupIdentity, JobFacts, JobOwner]] = {}
        self._since: dict[Key, float] = {}

    def owner(self, key: Key, identity: CgroupIdentity) -> JobOwner | None:
        """Return a job's owner; the same object while nothing changed. None while a look-up is under way."""
        if self._look_up:
            facts = self._look_up.facts(identity.job)
        else:
            facts = _of_account(identity.account) if identity.account else _NOTHING
        if facts is None:
            since = self._since.setdefault(key, self._clock())
            if self._clock() - since < PATIENCE_SECONDS:
                return None
            facts = _NOTHING
        entry = self._cache.get(key)
        if entry and entry[0] is identity and entry[1] is facts:
            return entry[2]
        owner = describe_owner(identity, facts)
        if entry and entry[2] == owner:
            owner = entry[2]
        self._cache[key] = (identity, facts, owner)
        return owner

    def keep(self, present: Collection[Key]) -> None:
        """Forget all jobs but these."""
        if len(present) != len(self._cache) or any(key not in present for key in self._cache):
            self._cache = {key: entry for key, entry in self._cache.items() if key in present}
            self._since = {key: since for key, since in self._since.items() if key in present}
            if self._look_up:
                named = {entry[0].job for entry in self._cache.values()}
                self._look_up.keep(named | {key[2] for key in present})


def describe_owner(identity: CgroupIdentity, facts: JobFacts) -> JobOwner:
    """Combine what the path says with what was looked up; the resource manager's user wins."""
    user = facts.user or identity.user or (user_name(identity.uid) if identity.uid is not None else "")
    uid = str(identity.uid) if identity.uid is not None else user_number(user)
    return JobOwner(
        facts.job or identity.job, user, uid, facts.account, identity.host or "", facts.name, identity.layout
    )


@lru_cache(maxsize=4096)
def _of_account(account: str) -> JobFacts:
    """Return one object for an account, so that nothing seems to have changed."""
    return JobFacts(account=account)


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Return the name of a uid; the number itself if it is unknown."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@lru_cache(maxsize=4096)
def user_number(name: str) -> str:
    """Return the number of a user as a text; empty where the system does not know the name."""
    try:
        return str(pwd.getpwnam(name).pw_uid) if name else ""
    except KeyError:
        return ""
