"""Verbs about how somebody uses the cluster: how well jobs used their cores, and which part of all that was held."""

from collections import defaultdict

from msgspec import Struct

from oarlock.model.errors import BadRequest
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.web.context import RequestContext
from oarlock.web.decode import Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_DAY = 86_400
_MONTH = 30 * _DAY
_MOST_DAYS = 4000
BINS = 10
_MOST_JOBS = 50_000


class ProfileRequest(VerbRequest):
    """Whose jobs, by user or project, that ended since an instant; by default in the last thirty days."""

    since: Instant | None = None
    user: Word | None = None
    project: Word | None = None


class ProfileBin(Struct, frozen=True):
    """The jobs that used from `least` to `most` of their cores (1 is all), and the core-seconds that they held."""

    least: float
    most: float
    jobs: int
    core_seconds: float


class ShareOfDay(Struct, frozen=True):
    """What was held on a day (epoch seconds at midnight UTC) by them and by all, in core-seconds."""

    day: int
    core_seconds: float
    all_core_seconds: float


class ProfileResponse(Struct, frozen=True):
    """How well jobs used their cores, in ten bins, and which part of all that was held was theirs, by day.

    The bins have the newest 50,000 jobs at most; `more`: there may be older ones in that time, which are not in them.
    `own`: only jobs of the caller, and of projects it leads, are in it.
    """

    since: int
    bins: list[ProfileBin]
    shares: list[ShareOfDay]
    own: bool
    more: bool


@verb(
    "usage.profile", "GET /usage/profile",
    role=RequiredRole.USERS, request=ProfileRequest, response=ProfileResponse,
    summary="Show how well jobs of a user or a project used their cores, and their part of all that was held by day.",
)  # fmt: skip
async def usage_profile(context: RequestContext, request: ProfileRequest) -> ProfileResponse:
    """Count summaries by bin, and set the days beside those of all."""
    if (request.user is None) == (request.project is None):
        raise BadRequest("A profile is that of a user or of a project.", hint="Name one of them.")
    since = max(context.now - _MONTH if request.since is None else int(request.since), 0) // _DAY * _DAY
    until, whose = context.now + _DAY, {"user": request.user, "project": request.project}

    def read(tx: Tx) -> ProfileResponse:
        sight = context.advised
        counted = summaries.count_by_use(tx, since, bins=BINS, most=_MOST_JOBS, sight=sight, **whose)
        everybody: defaultdict[int, float] = defaultdict(float)
        for row in summaries.usage_by(tx, ["day"], since=since, until=until, most=_MOST_DAYS):
            everybody[int(row.group[0])] = row.usage.core_seconds
        theirs = summaries.usage_by(tx, ["day"], since=since, until=until, sight=sight, most=_MOST_DAYS, **whose)
        return ProfileResponse(
            since,
            [ProfileBin(n / BINS, (n + 1) / BINS, *counted.get(n, (0, 0.0))) for n in range(BINS)],
            [ShareOfDay(day := int(row.group[0]), row.usage.core_seconds, everybody[day]) for row in theirs],
            context.only_own(request.project),
            sum(count for count, _ in counted.values()) >= _MOST_JOBS,
        )

    return await context.read(read)
