"""Verbs about mails that nobody asks for: which of them a user wants, and what the next digests would say."""

from functools import partial

from msgspec import Struct

from oarlock.insight.digests import compose, due_digests
from oarlock.insight.job_mails import compose_reports, ended_of_users
from oarlock.insight.mails import (
    KINDS,
    MailKind,
    build_mail,
    is_signed,
    kind_of,
    mail_key,
    sender_of,
    stored_mail_key,
    unsubscribe_headers,
    unsubscribe_link,
    user_address,
)
from oarlock.model.errors import Forbidden
from oarlock.settings.kinds import JobReportMails
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import mails
from oarlock.store.queries.users.mails import NewMail
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.core import ServerInterface
from oarlock.web.decode import EmptyRequest, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_MOST_PREVIEWED = 200
_DAY = 86_400


class BadUnsubscribeLink(Forbidden):
    """A link that was not made here, or not for this user."""


class MailChoiceView(Struct, frozen=True):
    """A kind of mails, what it is, and whether the caller wants it."""

    kind: MailKind
    says: str
    wanted: bool


class MailChoicesResponse(Struct, frozen=True):
    """The caller's choices. `address` is where such mails go; empty: nowhere. `digests`: whether they are sent."""

    address: str
    digests: bool
    choices: list[MailChoiceView]


class MailChoiceRequest(VerbRequest):
    """A kind of mails, and whether they are wanted."""

    kind: MailKind
    wanted: bool


class DigestView(Struct, frozen=True):
    """A digest as a mail: its rule, to whom, and the whole message."""

    rule: str
    user: str
    address: str
    message: str


class DigestsResponse(Struct, frozen=True):
    """Digests of the last week and month, and on a portal of jobs that ended in the last day.

    `more`: there are others that were not written.
    """

    digests: list[DigestView]
    more: bool


@verb(
    "mail.choices", "GET /mail/choices",
    role=RequiredRole.USERS, request=EmptyRequest, response=MailChoicesResponse,
    summary="Show which mails you get without asking for them, and where they go.",
)  # fmt: skip
async def show_choices(context: RequestContext, _: EmptyRequest) -> MailChoicesResponse:
    """Return every kind with the caller's choice."""
    user, config = context.user.name, context.core.config
    refused = await context.read(lambda tx: mails.refused_by(tx, user))
    unused = set() if config.mail_job_reports is not JobReportMails.NO else {MailKind.JOB}
    choices = [
        MailChoiceView(kind, says, kind.value not in refused) for kind, says in KINDS.items() if kind not in unused
    ]
    return MailChoicesResponse(user_address(config, user), config.mail_digests, choices)


@verb(
    "mail.choose", "POST /mail/choices",
    role=RequiredRole.USERS, request=MailChoiceRequest, response=EmptyResponse,
    summary="Choose whether you want a kind of mails.",
)  # fmt: skip
async def choose(context: RequestContext, request: MailChoiceRequest) -> EmptyResponse:
    """Store the caller's choice."""
    user, now = context.user.name, context.now
    return await context.do(lambda tx: _choose(tx, user, request.kind, now=now, wanted=request.wanted))


def _choose(tx: Tx, user: str, kind: MailKind, *, now: int, wanted: bool) -> None:
    if wanted:
        mails.accept_kind(tx, user, kind.value)
    else:
        mails.refuse_kind(tx, user, kind.value, now=now)


async def unsubscribe(core: ServerInterface, user: str, kind: str, key: str) -> None:
    """Refuse a kind of mails for the user whose link this is; nobody needs to be signed in."""
    chosen = await _checked(core, user, kind, key)
    await core.write(lambda tx: mails.refuse_kind(tx, user, chosen.value, now=int(core.clock.now())))


async def check_unsubscribe(core: ServerInterface, user: str, kind: str, key: str) -> str:
    """Return what the mails of a link are; raise `BadUnsubscribeLink` if it was not made here."""
    return KINDS[await _checked(core, user, kind, key)]


async def _checked(core: ServerInterface, user: str, kind: str, key: str) -> MailKind:
    stored = await core.read(stored_mail_key)
    if kind not in set(MailKind) or not is_signed(stored, user, MailKind(kind), key):
        raise BadUnsubscribeLink(
            "This link is not one that was sent from here.", hint="Copy the whole link, or sign in and open your page."
        )
    return MailKind(kind)


@verb(
    "digests.preview", "POST /digests/preview",
    role=RequiredRole.ADMINS, request=EmptyRequest, response=DigestsResponse,
    summary="Write the digests of the last week and month as mails, without sending any.",
)  # fmt: skip
async def preview(context: RequestContext, _: EmptyRequest) -> DigestsResponse:
    """Write all digests, also those that were sent already and those for which MAIL_DIGESTS is not set."""
    core, now = context.core, context.now
    key = await core.write(mail_key)
    due = await context.read(partial(due_digests, config=core.config, now=now, again=True))
    views = []
    for digest in due[:_MOST_PREVIEWED]:
        mail = await context.read(partial(compose, config=core.config, digest=digest, key=key, now=now))
        if mail is not None:
            views.append(_view(context, mail, key))
    users = []
    if context.policy.read_only:
        users = await context.read(partial(ended_of_users, config=core.config, since=now - _DAY, until=now))
        for ended in users[:_MOST_PREVIEWED]:
            mail = await context.read(partial(compose_reports, config=core.config, ended=ended, key=key, now=now))
            if mail is not None:
                views.append(_view(context, mail, key))
    return DigestsResponse(views, max(len(due), len(users)) > _MOST_PREVIEWED)


def _view(context: RequestContext, mail: NewMail, key: bytes) -> DigestView:
    config, kind = context.core.config, kind_of(mail.rule)
    headers = {} if kind is None else unsubscribe_headers(unsubscribe_link(config, key, mail.user, kind))
    message = build_mail(
        [mail.address], mail.subject, mail.body, sender=sender_of(config), html=mail.html, headers=headers
    )
    return DigestView(mail.rule, mail.user, mail.address, message.as_string())
