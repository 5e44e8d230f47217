"""The verb about energy: what meters counted, and whose it was."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from oarlock.measure.energy.division import DAY
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.usage import energy
from oarlock.store.queries.usage.energy import METER_GROUPS
from oarlock.web import decode
from oarlock.web.context import RequestContext
from oarlock.web.decode import EmptyRequest, Instant, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

Grouping = Literal["node", "user", "project", "job", "day"]
_MOST_ROWS = 10_000
_WEEK = 7 * DAY
_MILLI = 1000


class EnergyRequest(VerbRequest):
    """Days (UTC) between two instants, by default the last seven; and by what the energy is told."""

    since: Instant | None = None
    until: Instant | None = None
    by: Annotated[list[Grouping], Meta(max_length=5)] = msgspec.field(default_factory=lambda: ["node"])


class MeterView(Struct, frozen=True, omit_defaults=True):
    """What meters counted, in joules: jobs + idle + not assigned, exactly to the millijoule.

    `methods` says how it was measured, `seconds` for how long; where `coverage` is below 1, the rest is unknown.
    """

    joules: float
    jobs_joules: float
    idle_joules: float
    not_assigned_joules: float
    seconds: float
    coverage: float
    methods: list[str]


class EnergyRow(Struct, frozen=True, omit_defaults=True):
    """The jobs of one group: their energy and their number; of nodes and days also what the meter says."""

    group: dict[str, str | int]
    joules: float
    jobs: int
    meter: MeterView | None = None


class EnergyFactors(Struct, frozen=True, omit_defaults=True):
    """What a kilowatt-hour at the meter stands for, where the site has said it."""

    pue: float | None = None
    co2_grams: float | None = None
    price: float | None = None
    currency: str = ""


class EnergyResponse(Struct, frozen=True):
    """The energy ledger of some days. `own`: only jobs of the caller, and of projects it leads, are in the rows."""

    since: int
    until: int
    by: list[str]
    rows: list[EnergyRow]
    total: MeterView
    factors: EnergyFactors
    own: bool


@verb(
    "energy.show", "GET /energy",
    role=RequiredRole.USERS, request=EnergyRequest, response=EnergyResponse,
    summary="Show the energy of nodes, days and jobs; jobs of others are shown to staff and leaders of their project.",
)  # fmt: skip
async def show_energy(context: RequestContext, request: EnergyRequest) -> EnergyResponse:
    """Add up the ledger."""
    since, until = decode.interval(request.since, request.until, now=context.now, length=_WEEK)
    decode.check_groups(request.by)
    first, last = since // DAY * DAY, -(-max(until, since + 1) // DAY) * DAY
    of_nodes = set(request.by) <= METER_GROUPS.keys()
    sight = None if of_nodes else context.advised
    elapsed = max(min(until, last) - first, 1)

    def read(tx: Tx) -> tuple[list[EnergyRow], MeterView]:
        shares = energy.shares_by(tx, request.by, since=first, until=last, sight=sight, most=_MOST_ROWS)
        [whole] = energy.meters_by(tx, [], since=first, until=last) or [_NOTHING]
        nodes = max(len(energy.meters_by(tx, ["node"], since=first, until=last)), 1)
        if not of_nodes:
            return _job_rows(tx, request.by, shares), _meter(whole, elapsed * nodes)
        meters = energy.meters_by(tx, request.by, since=first, until=last)
        of_group = {share.group: share for share in shares}
        return [
            _metered_row(request.by, meter, of_group.get(meter.group), _span(request.by, elapsed, nodes))
            for meter in meters[:_MOST_ROWS]
        ], _meter(whole, elapsed * nodes)

    rows, total = await context.read(read)
    return EnergyResponse(first, last, list(request.by), rows, total, _factors(context), sight is not None)


_NOTHING = energy.MeterOfGroup((), (), 0, 0, 0, 0.0)


def _span(by: list[Grouping], elapsed: int, nodes: int) -> int:
    """Return how many seconds a row stands for."""
    return (DAY if "day" in by else elapsed) * (1 if "node" in by else nodes)


def _job_rows(tx: Tx, by: list[Grouping], shares: list[energy.SharesOfGroup]) -> list[EnergyRow]:
    """Return rows of shares; jobs of other resource managers are named `17@alpha`."""
    rows = [_row(by, share) for share in shares]
    if "job" in by:
        names = agent_jobs.names(tx, [int(row.group["job"]) for row in rows])
        for row in rows:
            row.group["job"] = names.get(int(row.group["job"]), row.group["job"])
    return rows


def _row(by: list[Grouping], share: energy.SharesOfGroup) -> EnergyRow:
    return EnergyRow(dict(zip(by, share.group, strict=True)), share.energy / _MILLI, share.jobs)


def _metered_row(
    by: list[Grouping], meter: energy.MeterOfGroup, share: energy.SharesOfGroup | None, span: int
) -> EnergyRow:
    used, jobs = (share.energy, share.jobs) if share else (0, 0)
    return EnergyRow(dict(zip(by, meter.group, strict=True)), used / _MILLI, jobs, _meter(meter, span))


def _meter(meter: energy.MeterOfGroup, span: int) -> MeterView:
    divided = meter.meter - meter.idle - meter.not_assigned
    return MeterView(
        joules=meter.meter / _MILLI,
        jobs_joules=divided / _MILLI,
        idle_joules=meter.idle / _MILLI,
        not_assigned_joules=meter.not_assigned / _MILLI,
        seconds=meter.seconds,
        coverage=min(meter.seconds / span, 1.0),
        methods=list(meter.methods),
    )


@verb(
    "energy.factors", "GET /energy/factors",
    role=RequiredRole.USERS, request=EmptyRequest, response=EnergyFactors,
    summary="Show what a kilowatt-hour at a meter stands for: CO₂, price, and what cooling adds.",
)  # fmt: skip
async def show_factors(context: RequestContext, _request: EmptyRequest) -> EnergyFactors:
    """Return what the settings say."""
    return _factors(context)


def _factors(context: RequestContext) -> EnergyFactors:
    config = context.core.config
    return EnergyFactors(
        pue=config.energy_pue or None,
        co2_grams=config.energy_co2 or None,
        price=config.energy_price or None,
        currency=config.energy_currency,
    )
