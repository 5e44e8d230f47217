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
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.web.identity import Caller, CallerChannel, TokenScope, UserAccount

SUSPEND = "jobs.suspend"

FROM_LOGIN_HOSTS = frozenset({CallerChannel.RELAY, CallerChannel.MUNGE})
"""Channels on which another host vouches for the caller."""


class RequiredRole(Enum):
    """Who may use a verb."""

    ANYBODY = "anybody, even without a name"
    READERS = "every user; also without a name, where the site does not want one (METRICS_NEED_TOKEN)"
    VIEWERS = "every user; also without a name, where the site shows its overview to everybody (PORTAL_PUBLIC)"
    USERS = "every user"
    SUBMITTERS = "users who may run jobs"
    OWNERS = "the owner of what is asked for, and administrators"
    ADVISERS = "the owner of a job, leaders of its project (PROJECT_LEADERS), support staff (SUPPORT), administrators"
    HELPERS = "the owner of a job, support staff (SUPPORT) and administrators"
    STAFF = "support staff (SUPPORT) and administrators"
    ADMINS = "administrators"
    AT_SOCKET = "every user, but only where a kernel says who it is: on the socket, or on a login host"
    NODES = "a node, with a token that was made for it (`oarlock token add --node`)"
    SCRIPTS = "whoever has a token that was made for scripts of jobs (`oarlock token add --scripts`)"


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission and the role it requires; every verb is one, and some options of verbs are."""

    name: str
    role: RequiredRole


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The users that this instance serves, and its administrators. `only`: the one user of a plain user's instance.

    `read_only`: it shows a cluster that others run (`oarlock portal`).
    """

    config: Config
    admins: frozenset[str]
    only: str | None = None
    read_only: bool = False

    @classmethod
    def of(cls, config: Config) -> Self:
        """Build the policy from the settings and the user that this process runs as."""
        uid = os.geteuid()
        own = pwd.getpwuid(uid).pw_name
        everybody = uid == 0 or config.serve_everybody
        return cls(config, frozenset(config.admins or ("root", own)), only=None if everybody else own)

    def caller(
        self, account: UserAccount, channel: CallerChannel, *, scope: TokenScope | None = None, token: str = "",
        host: str = "",
    ) -> Caller:  # fmt: skip
        """Return the caller for an account: whether it is an administrator here. `scope`: that of its token.

        What a login host says of somebody makes no administrator, unless the site says so of that host: whoever is
        root there could be anybody.
        """
        is_elsewhere = channel in FROM_LOGIN_HOSTS and host not in self.config.admin_login_hosts
        return Caller(
            account,
            channel,
            admin=account.name in self.admins and not is_elsewhere,
            support=self._is_support(account),
            leads=tuple(project for project, users in self.config.project_leaders.items() if account.name in users),
            scope=scope,
            token=token,
            host=host,
        )

    def _is_support(self, account: UserAccount) -> bool:
        names = {account.name, *(f"@{group}" for group in account.groups)}
        return not names.isdisjoint(self.config.support)

    def can(
        self, caller: Caller | None, permission: Permission, owner: str | None = None, project: str = "", what: str = ""
    ) -> OarlockError | None:
        """Return the refusal if a caller does not have a permission; None if it is allowed.

        `owner` is whose thing it is done to, `project` that of the job, and `what` its name in a refusal. Before the
        owner is known (None) an owners' verb is open to every user.
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
        return self._refusal(caller, permission, owner, project, what or "This")

    def sight(self, caller: Caller | None) -> JobSight | None:
        """Return whose jobs a caller sees; None: everybody's."""
        visibility = self.config.job_visibility
        if visibility is JobVisibility.ALL or (caller is not None and caller.staff):
            return None
        if caller is None:
            return JobSight("")
        groups = caller.account.groups if visibility is JobVisibility.PROJECT else ()
        return JobSight(caller.name, (*groups, *caller.leads))

    @property
    def shows_groups(self) -> bool:
        """Whether members of a group see what the others of it have."""
        return self.config.job_visibility is not JobVisibility.OWN

    def _is_public(self, permission: Permission) -> bool:
        """Return whether the site allows a permission to callers without a name."""
        if permission.role is RequiredRole.READERS:
            return not self.config.metrics_need_token and self.config.job_visibility is JobVisibility.ALL
        return permission.role is RequiredRole.VIEWERS and self.config.portal_public

    def _refusal(
        self, caller: Caller, permission: Permission, owner: str | None, project: str, what: str
    ) -> OarlockError | None:
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
            case RequiredRole.STAFF if not caller.staff:
                return Forbidden(
                    f"Only support staff and administrators may see this; {caller.name} is neither.",
                    hint="SUPPORT in the server's settings names the staff.",
                )
            case role if role in _OF_OWNERS and owner not in {None, caller.name} and not _helps(caller, role, project):
                return Forbidden(f"{what} belongs to {owner}, not to {caller.name}.", hint="Ask its owner.")
            case RequiredRole.SUBMITTERS:
                return self.runs_jobs(caller.account)
            case RequiredRole.AT_SOCKET:
                return self._token_refusal(caller)
            case _:
                return None

    def _token_refusal(self, caller: Caller) -> OarlockError | None:
        """Return the refusal unless a kernel, or munge, says who asks for a token or a link to the portal."""
        if caller.channel is CallerChannel.SOCKET or (caller.channel in FROM_LOGIN_HOSTS and caller.admin):
            return None
        if caller.channel not in FROM_LOGIN_HOSTS:
            return Forbidden(
                "Tokens are made on the server's socket only.", hint="Log in to the server's machine for that."
            )
        if caller.name in self.admins or caller.support:
            return Forbidden(
                f"{caller.name} has more rights on the server than here; what would carry them is made there only.",
                hint="Log in to the server's machine; or ADMIN_LOGIN_HOSTS in its settings names this host.",
            )
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


_RELAY_ONLY = "Such a token is for `oarlock relay`, which says for whom it asks."
_SCOPED = {
    RequiredRole.NODES: ("Only a node may do this, with a token that was made for it.", "--node NAME"),
    RequiredRole.SCRIPTS: ("Only who has a token that was made for scripts may do this.", "--scripts"),
}


_OF_OWNERS = {RequiredRole.OWNERS, RequiredRole.ADVISERS, RequiredRole.HELPERS}


def _helps(caller: Caller, role: RequiredRole, project: str) -> bool:
    """Return whether a caller may do to a job of somebody else what a role stands for."""
    if role is RequiredRole.OWNERS:
        return caller.admin
    return caller.staff or (role is RequiredRole.ADVISERS and project in caller.leads)


def _scope_refusal(caller: Caller, permission: Permission) -> OarlockError | None:
    """Return the refusal of what only tokens of a scope open, or of what such a token is used for besides."""
    scope = caller.scope
    if scope is None:
        sentence, option = _SCOPED[permission.role]
        return Forbidden(sentence, hint=f"An administrator makes one: `oarlock token add {option}`.")
    if scope.relay:
        return Forbidden(f"This token is good for {scope.words} and nothing else.", hint=_RELAY_ONLY)
    if permission.role is not (RequiredRole.NODES if scope.node else RequiredRole.SCRIPTS):
        return Forbidden(f"This token is good for {scope.words} and nothing else.", hint="Use one of your own.")
    if not caller.admin:
        option = "--node NAME" if scope.node else "--scripts"
        return Forbidden(
            f"The token for {scope.words} was made by {caller.name}, who is no longer an administrator.",
            hint=f"An administrator makes another: `oarlock token add {option}`.",
        )
    return None
