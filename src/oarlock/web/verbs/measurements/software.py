"""The verb behind the page about software: which executables and modules jobs ran, and for how many core-hours."""

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from oarlock.model.errors import BadRequest
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import software
from oarlock.store.queries.usage.software import SoftwareQuestion
from oarlock.web import decode
from oarlock.web.context import RequestContext
from oarlock.web.decode import Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_DAY = 86_400
_MONTH = 30 * _DAY
_LONGEST = 3700 * _DAY
_MOST_NAMES = 200


class SoftwareRequest(VerbRequest):
    """Jobs that ended between two instants, by default in the last thirty days; of a user or a project.

    A user sees their own jobs, leaders those of their projects, and staff all of them, whatever is named.
    """

    since: Instant | None = None
    until: Instant | None = None
    kind: Literal["executable", "module"] = "executable"
    user: Word | None = None
    project: Word | None = None
    limit: Annotated[int, Meta(ge=1, le=_MOST_NAMES)] = 50


class SoftwareOfDay(Struct, frozen=True):
    """The core-seconds of a day (epoch seconds at midnight UTC)."""

    day: int
    core_seconds: float


class SoftwareView(Struct, frozen=True):
    """An executable or a module: how many jobs of how many users ran it, what is counted for it, and by day.

    Executables share the core-seconds of their job by the CPU time that each used; a module has all those of the jobs
    that load it. `before`: its core-seconds in as many days before.
    """

    name: str
    jobs: int
    users: int
    core_seconds: float
    cpu_seconds: float
    before: float
    days: list[SoftwareOfDay]


class SoftwareResponse(Struct, frozen=True):
    """Software with most core-seconds, most first. `own`: only jobs of the caller, and of projects it leads."""

    since: int
    until: int
    kind: str
    software: list[SoftwareView]
    own: bool


@verb(
    "software.show", "GET /software",
    role=RequiredRole.USERS, request=SoftwareRequest, response=SoftwareResponse,
    summary="Show which executables, or modules, jobs ran and for how many core-seconds; those of others for staff "
    "and leaders.",
)  # fmt: skip
async def show_software(context: RequestContext, request: SoftwareRequest) -> SoftwareResponse:
    """Add up the days that the interval touches, and as many before."""
    since, until = decode.interval(request.since, request.until, now=context.now, length=_MONTH)
    first, last = since // _DAY * _DAY, -(-max(until, since + 1) // _DAY) * _DAY
    if last - first > _LONGEST:
        raise BadRequest("Software is added up over at most ten years.", hint="Give a later `since`.")
    question = SoftwareQuestion(
        first, last, request.kind, request.user or "", request.project or "", context.advised
    )  # fmt: skip
    rows = await context.read(partial(_read, question=question, most=request.limit))
    return SoftwareResponse(first, last, request.kind, rows, context.only_own(request.project))


def _read(tx: Tx, question: SoftwareQuestion, most: int) -> list[SoftwareView]:
    totals = software.most_used(tx, question, most=most)
    names = [total.name for total in totals]
    days: dict[str, list[SoftwareOfDay]] = {name: [] for name in names}
    for (_, name, day), sums in sorted(software.by_day(tx, question, names).items()):
        days[name].append(SoftwareOfDay(day, sums.core_seconds))
    length = question.until - question.since
    before: dict[str, float] = dict.fromkeys(names, 0.0)
    earlier = question._replace(since=question.since - length, until=question.since)
    for (_, name, _), sums in software.by_day(tx, earlier, names).items():
        before[name] += sums.core_seconds
    return [
        SoftwareView(
            total.name, total.sums.jobs, total.users, total.sums.core_seconds, total.sums.cpu_seconds,
            before[total.name], days[total.name],
        )
        for total in totals
    ]  # fmt: skip
