"""Permissions: one function decides who may do what, for every front end and every verb."""

import os
import pwd
from dataclasses import dataclass
from enum import Enum
from typing import Self

from oarlock.config import Config
from oarlock.job.admission.parse import allow
from oarlock.model.errors import Forbidden, NotSignedIn, OarlockError
from oarlock.settings.kinds import JobVisibility
from oarlock.store.queries.job_pages import JobSight
from oarlock.web.identity import Caller, CallerChannel, TokenScope, UserAccount

SUSPEND = "jobs.suspend"


class RequiredRole(Enum):
    """Who may use a verb."""

    ANYBODY = "anybody, even without a name"
    READERS = "every user; also without a name, where the site does not want one (METRICS_NEED_TOKEN)"
    VIEWERS = "every user; also without a name, where the site shows its overview to everybody (PORTAL_PUBLIC)"
    USERS = "every user"
    SUBMITTERS = "users who may run jobs"
    OWNERS = "the owner of what is asked for, and administrators"
    ADMINS = "administrators"
    AT_SOCKET = "every user, but only on the socket, where the kernel says who it is"
    NODES = "a node, with a token that was made for it (`oarlock token add --node`)"
    SCRIPTS = "whoever has a token that was made for scripts of jobs (`oarlock token add --scripts`)"


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission and the role it requires; every verb is one, and some options of verbs are."""

    name: str
    role: RequiredRole


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The users that this instance serves, and its administrators. `only`: the one user of a plain user's instance."""

    config: Config
    admins: frozenset[str]
    only: str | None = None

    @classmethod
    def of(cls, config: Config) -> Self:
        """Build the policy from the settings and the user that this process runs as."""
        uid = os.geteuid()
        own = pwd.getpwuid(uid).pw_name
        return cls(config, frozenset(config.admins or ("root", own)), only=own if uid else None)

    def caller(
        self, account: UserAccount, channel: CallerChannel, *, scope: TokenScope | None = None, token: str = ""
    ) -> Caller:
        """Return the caller for an account: whether it is an administrator here. `scope`: that of its token."""
        return Caller(account, channel, admin=account.name in self.admins, scope=scope, token=token)

    def can(self, caller: Caller | None, permission: Permission, owner: str | None = None) -> OarlockError | None:
        """Return the refusal if a caller does not have a permission; None if it is allowed.

        `owner` is whose thing it is done to. Before that is known (None) an owners' verb is open to every user.
        """
        if permission.role is RequiredRole.ANYBODY:
            return None
        if caller is None and self.only is None and self._is_public(permission):
            return None
        if caller is None:
            return NotSignedIn(
                "This server does not know who you are.",
                hint="Use its socket, or send a token (`Authorization: Bearer …`) that was made there.",
            )
        if self.only is not None and caller.name != self.only:
            return Forbidden(f"This server is run by {self.only} and serves nobody else.", hint="Use the site's own.")
        return self._refusal(caller, permission, owner)

    def sight(self, caller: Caller | None) -> JobSight | None:
        """Return whose jobs a caller sees; None: everybody's."""
        visibility = self.config.job_visibility
        if visibility is JobVisibility.ALL or (caller is not None and caller.admin):
            return None
        if caller is None:
            return JobSight("")
        return JobSight(caller.name, caller.account.groups if visibility is JobVisibility.PROJECT else ())

    def _is_public(self, permission: Permission) -> bool:
        """Return whether the site allows a permission to callers without a name."""
        if permission.role is RequiredRole.READERS:
            return not self.config.metrics_need_token and self.config.job_visibility is JobVisibility.ALL
        return permission.role is RequiredRole.VIEWERS and self.config.portal_public

    def _refusal(self, caller: Caller, permission: Permission, owner: str | None) -> OarlockError | None:
        if caller.scope is not None or permission.role in _SCOPED:
            return _scope_refusal(caller, permission)
        match permission.role:
            case RequiredRole.ADMINS if not caller.admin and permission.name == SUSPEND:
                return Forbidden(
                    f"Only administrators may suspend and resume running jobs here; {caller.name} is not one.",
                    hint="With USERS_ALLOWED_HOLD_RESUME=yes in the server's settings users may do so with their own.",
                )
            case RequiredRole.ADMINS if not caller.admin:
                return Forbidden(
                    f"Only administrators may do this; {caller.name} is not one.",
                    hint="ADMINS in the server's settings names them.",
                )
            case RequiredRole.OWNERS if owner is not None and owner != caller.name and not caller.admin:
                return Forbidden(f"This belongs to {owner}, not to {caller.name}.", hint="Ask its owner.")
            case RequiredRole.SUBMITTERS:
                return self.runs_jobs(caller.account)
            case RequiredRole.AT_SOCKET if caller.channel is not CallerChannel.SOCKET:
                return Forbidden(
                    "Tokens are made on the server's socket only.", hint="Log in to the server's machine for that."
                )
            case _:
                return None

    @property
    def suspending(self) -> Permission:
        """To stop and continue jobs that run: the owners' power where the site says so, else administrators'."""
        return Permission(
            SUSPEND, RequiredRole.OWNERS if self.config.users_allowed_hold_resume else RequiredRole.ADMINS
        )

    def runs_jobs(self, account: UserAccount) -> OarlockError | None:
        """Return the refusal if a user may not run jobs; None if it may."""
        if account.name == self.only:
            return None
        try:
            allow(account.name, account.uid, self.config)
        except OarlockError as refusal:
            return refusal
        return None


_SCOPED = {
    RequiredRole.NODES: ("Only a node may do this, with a token that was made for it.", "--node NAME"),
    RequiredRole.SCRIPTS: ("Only who has a token that was made for scripts may do this.", "--scripts"),
}


def _scope_refusal(caller: Caller, permission: Permission) -> OarlockError | None:
    """Return the refusal of what only tokens of a scope open, or of what such a token is used for besides."""
    scope = caller.scope
    if scope is None:
        sentence, option = _SCOPED[permission.role]
        return Forbidden(sentence, hint=f"An administrator makes one: `oarlock token add {option}`.")
    if permission.role is not (RequiredRole.NODES if scope.node else RequiredRole.SCRIPTS):
        return Forbidden(f"This token is good for {scope.words} and nothing else.", hint="Use one of your own.")
    if not caller.admin:
        option = "--node NAME" if scope.node else "--scripts"
        return Forbidden(
            f"The token for {scope.words} was made by {caller.name}, who is no longer an administrator.",
            hint=f"An administrator makes another: `oarlock token add {option}`.",
        )
    return None
