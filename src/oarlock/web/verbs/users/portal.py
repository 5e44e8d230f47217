"""Verbs about what the portal keeps: lists under a name, and notices to all; and who has which role."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, NotFound, TooMuch
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import portal_records
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import EmptyRequest, Id, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_MOST_VIEWS = 50
_HOUR = 3600
_NAME = Meta(min_length=1, max_length=60)


class SavedView(Struct, frozen=True):
    """A list of jobs that is kept: its name, and what follows the question mark in its address."""

    name: str
    query: str


class SavedViewsResponse(Struct, frozen=True):
    """One's own lists, by name."""

    views: list[SavedView]


@verb(
    "views.list", "GET /views",
    role=RequiredRole.USERS, request=EmptyRequest, response=SavedViewsResponse,
    summary="List the filters and orders of the list of jobs that you keep under a name.",
)  # fmt: skip
async def list_views(context: RequestContext, _request: EmptyRequest) -> SavedViewsResponse:
    """Return one's lists."""
    rows = await context.read(lambda tx: portal_records.views_of(tx, context.user.name))
    return SavedViewsResponse([SavedView(*row) for row in rows])


class SaveViewRequest(VerbRequest):
    """A name, and what follows the question mark in the address of the list."""

    name: Annotated[str, _NAME]
    query: Annotated[str, Meta(max_length=1000)]


@verb(
    "views.save", "POST /views",
    role=RequiredRole.USERS, request=SaveViewRequest, response=EmptyResponse,
    summary="Keep a filter and order of the list of jobs under a name.",
)  # fmt: skip
async def save_view(context: RequestContext, request: SaveViewRequest) -> EmptyResponse:
    """Store it, in place of the one of that name."""
    user, now, name = context.user.name, context.now, " ".join(request.name.split())
    if not name.isprintable() or not name:
        raise BadRequest(f"`{short(request.name)}` is not a name.", hint="Use letters and figures.")
    if not request.query.isascii() or not request.query.isprintable():
        raise BadRequest("That is no part of an address.", hint="Keep the list from its page.")

    def step(tx: Tx) -> None:
        kept = [stored for stored, _ in portal_records.views_of(tx, user)]
        if name not in kept and len(kept) >= _MOST_VIEWS:
            raise TooMuch(f"You keep {_MOST_VIEWS} lists already.", hint="Forget one first.")
        portal_records.save_view(tx, user, name, request.query, now=now)

    return await context.do(step)


class ViewByNameRequest(VerbRequest):
    """A list by its name."""

    name: Annotated[str, _NAME]


@verb(
    "views.remove", "DELETE /views/{name}",
    role=RequiredRole.USERS, request=ViewByNameRequest, response=EmptyResponse,
    summary="Forget a list that you keep.",
)  # fmt: skip
async def remove_view(context: RequestContext, request: ViewByNameRequest) -> EmptyResponse:
    """Delete it."""
    user = context.user.name

    def step(tx: Tx) -> None:
        if not portal_records.remove_view(tx, user, request.name):
            raise NotFound(f"You keep no list `{short(request.name)}`.", hint="The page of jobs shows yours.")

    return await context.do(step)


class NoticeView(Struct, frozen=True):
    """What administrators tell everybody, since when and until when."""

    id: int
    at: int
    until: int
    says: str
    author: str


class NoticesResponse(Struct, frozen=True):
    """The notices that hold now, newest first."""

    notices: list[NoticeView]


@verb(
    "notices.list", "GET /notices",
    role=RequiredRole.VIEWERS, request=EmptyRequest, response=NoticesResponse,
    summary="List what administrators tell everybody.",
)  # fmt: skip
async def list_notices(context: RequestContext, _request: EmptyRequest) -> NoticesResponse:
    """Return the notices."""
    now = context.now
    rows = await context.read(lambda tx: portal_records.notices(tx, now=now), key=("notices", now))
    return NoticesResponse([NoticeView(*row) for row in rows])


class NewNoticeRequest(VerbRequest):
    """A text, and for how many hours every page shows it."""

    says: Annotated[str, Meta(min_length=1, max_length=500)]
    hours: Annotated[int, Meta(ge=1, le=24 * 92)] = 24


class NoticeNumberResponse(Struct, frozen=True):
    """The number of a notice."""

    id: int


@verb(
    "notices.add", "POST /notices",
    role=RequiredRole.ADMINS, request=NewNoticeRequest, response=NoticeNumberResponse,
    summary="Tell everybody something on every page, for some hours.",
)  # fmt: skip
async def add_notice(context: RequestContext, request: NewNoticeRequest) -> NoticeNumberResponse:
    """Store the notice."""
    now, author, says = context.now, context.user.name, " ".join(request.says.split())
    if not says:
        raise BadRequest("The notice is empty.", hint="Say something.")

    def step(tx: Tx) -> NoticeNumberResponse:
        until = now + request.hours * _HOUR
        return NoticeNumberResponse(portal_records.add_notice(tx, says, until=until, author=author, now=now))

    return await context.change(step, NoticeNumberResponse)


class NoticeByIdRequest(VerbRequest):
    """A notice by its number."""

    id: Id


@verb(
    "notices.remove", "DELETE /notices/{id}",
    role=RequiredRole.ADMINS, request=NoticeByIdRequest, response=EmptyResponse,
    summary="Take a notice to all away.",
)  # fmt: skip
async def remove_notice(context: RequestContext, request: NoticeByIdRequest) -> EmptyResponse:
    """Delete it."""

    def step(tx: Tx) -> None:
        if not portal_records.remove_notice(tx, request.id):
            raise NotFound(f"There is no notice {request.id}.", hint="`GET /notices` lists them.")

    return await context.do(step)


class RolesResponse(Struct, frozen=True):
    """Who administers, who helps, who leads which project, and whose jobs users see, as the settings say."""

    admins: list[str]
    support: list[str]
    leaders: dict[str, list[str]]
    job_visibility: str
    portal_public: bool


@verb(
    "roles.show", "GET /roles",
    role=RequiredRole.ADMINS, request=EmptyRequest, response=RolesResponse,
    summary="Show who administers, who helps, who leads which project, and whose jobs users see.",
)  # fmt: skip
async def show_roles(context: RequestContext, _request: EmptyRequest) -> RolesResponse:
    """Return what the settings say."""
    config = context.core.config
    return RolesResponse(
        sorted(context.policy.admins),
        list(config.support),
        {project: list(users) for project, users in config.project_leaders.items()},
        config.job_visibility.value,
        config.portal_public,
    )
