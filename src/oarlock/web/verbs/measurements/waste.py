"""The verb behind the waste page: which jobs, users and projects held what they did not use."""

from typing import Literal

from msgspec import Struct

from oarlock.model.summary import DayUsage
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.web import decode
from oarlock.web.context import RequestContext
from oarlock.web.decode import Instant, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_DAY = 86_400
_WEEK = 7 * _DAY
_MOST_JOBS, _MOST_GROUPS = 25, 2000


class WasteRequest(VerbRequest):
    """Jobs that ended between two instants, by default in the last seven days; by cores or by energy not used."""

    since: Instant | None = None
    until: Instant | None = None
    order: Literal["cores", "energy"] = "cores"


class WastefulJobView(Struct, frozen=True):
    """A job with the core-seconds that it held and used."""

    id: int
    user: str
    project: str
    name: str | None
    start: int
    stop: int
    core_seconds: float
    cpu_seconds: float
    energy_joules: float | None


class GroupUsage(Struct, frozen=True):
    """What a user or a project held and used."""

    name: str
    usage: DayUsage


class WasteResponse(Struct, frozen=True):
    """The jobs with most core time held and not used, and users and projects, each worst first."""

    since: int
    until: int
    jobs: list[WastefulJobView]
    users: list[GroupUsage]
    projects: list[GroupUsage]


@verb(
    "waste.show", "GET /waste",
    role=RequiredRole.STAFF, request=WasteRequest, response=WasteResponse,
    summary="Show which jobs, users and projects held most cores and did not use them.",
)  # fmt: skip
async def show_waste(context: RequestContext, request: WasteRequest) -> WasteResponse:
    """Sort summaries and the sums of days by what was lost."""
    since, until = decode.interval(request.since, request.until, now=context.now + 1, length=_WEEK)
    first, last = since // _DAY * _DAY, -(-until // _DAY) * _DAY

    def read(tx: Tx) -> WasteResponse:
        worst = summaries.most_wasteful(tx, since, until, most=_MOST_JOBS, by_energy=request.order == "energy")
        return WasteResponse(
            since,
            until,
            [WastefulJobView(*job) for job in worst],
            _groups(tx, "user", first, last),
            _groups(tx, "project", first, last),
        )

    return await context.read(read)


def _groups(tx: Tx, by: str, since: int, until: int) -> list[GroupUsage]:
    rows = summaries.usage_by(tx, [by], since=since, until=until, most=_MOST_GROUPS)
    groups = [GroupUsage(str(row.group[0]), row.usage) for row in rows]
    return sorted(groups, key=lambda group: group.usage.core_busy_seconds - group.usage.core_seconds)[:_MOST_JOBS]
