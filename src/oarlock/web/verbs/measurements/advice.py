"""Verbs for staff: what is wasted by kind and user, set aside for some time, or told to the user by mail."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from oarlock.insight import advice
from oarlock.insight.advice import AdvisedJobs
from oarlock.insight.findings import Finding, find
from oarlock.insight.gather import JudgedFacts, gather
from oarlock.insight.mails import ADVICE, MailKind, mail_key, user_address
from oarlock.insight.rules import Severity, rules_in_force
from oarlock.model.errors import BadRequest, Forbidden, NotFound
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import judged_jobs, summaries
from oarlock.store.queries.usage.summaries import Summary
from oarlock.store.queries.users import finding_records, mails
from oarlock.store.queries.users.finding_records import Snooze
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import Id, Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_DAY = 86_400
_WEEK, _QUARTER = 7 * _DAY, 90 * _DAY
_MOST_JOBS, _MOST_ROWS = 3000, 25
GROUPS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("gpu.zero", "gpu.partial", "gpu.idle_window"),
    "cpu": ("cpu.zero",),
    "serial": ("cpu.serial",),
    "memory": ("mem.low",),
}
"""The kinds of waste that the page shows, and which findings are of each."""

_GROUP_OF = {rule: group for group, rules in GROUPS.items() for rule in rules}


class WasteFindingsRequest(VerbRequest):
    """Jobs that ended since an instant, by default in the last seven days, or run."""

    since: Instant | None = None


class WasteRow(Struct, frozen=True):
    """Findings of a rule about jobs of a user, with the sums of those jobs; the worst of them is the example.

    `lost` are core-seconds held and not used. `advised`: when the user was last sent advice about it.
    """

    rule: str
    user: str
    jobs: int
    lost: float
    gpu_seconds: float
    energy_joules: float
    example: int
    text: str
    advised: int | None


class WasteGroup(Struct, frozen=True):
    """A kind of waste (`gpu`, `cpu`, `serial`, `memory`), those who lost most first."""

    id: str
    rows: list[WasteRow]


class SnoozeView(Struct, frozen=True):
    """Findings about a user that are set aside, until when, why, by whom."""

    id: int
    rule: str
    user: str
    until: int
    reason: str
    author: str


class WasteFindingsResponse(Struct, frozen=True):
    """What is wasted by kind, and what is set aside. `more`: there were more jobs than were looked at."""

    judged: int
    groups: list[WasteGroup]
    snoozed: list[SnoozeView]
    more: bool


@verb(
    "waste.findings", "GET /waste/findings",
    role=RequiredRole.STAFF, request=WasteFindingsRequest, response=WasteFindingsResponse,
    summary="Show whose jobs waste what: idle GPUs, cores that do nothing, serial jobs on many cores, memory held.",
)  # fmt: skip
async def waste_findings(context: RequestContext, request: WasteFindingsRequest) -> WasteFindingsResponse:
    """Judge the jobs and add up by rule and user."""
    config, now = context.core.config, context.now
    since = now - _WEEK if request.since is None else int(request.since)

    def read(tx: Tx) -> WasteFindingsResponse:
        ids = judged_jobs.ids_between(tx, since, now + 1, user=None, project=None, sight=None, most=_MOST_JOBS + 1)
        judged = gather(tx, ids[:_MOST_JOBS], now=now, gpu_property=config.job_gpu_property)
        rules = rules_in_force(config.findings_file)
        by_rule: defaultdict[tuple[str, str], list[tuple[JudgedFacts, Finding]]] = defaultdict(list)
        for job in judged:
            for finding in find(rules, job.facts, elsewhere=bool(job.job.label)):
                if finding.id in _GROUP_OF and finding.severity is Severity.BAD:
                    by_rule[finding.id, job.job.user].append((job, finding))
        aside = finding_records.current(tx, now=now)
        for snooze in aside:
            by_rule.pop((snooze.rule, snooze.user), None)
        stored = {
            row.job_id: row
            for row in summaries.of_jobs(tx, {job.job.id for jobs in by_rule.values() for job, _ in jobs})
        }
        advised = _last_advice(tx, now)
        rows = [_row(rule, user, jobs, stored, advised) for (rule, user), jobs in by_rule.items()]
        return WasteFindingsResponse(
            len(judged), [_group(name, rows) for name in GROUPS], [_view(snooze) for snooze in aside],
            len(ids) > _MOST_JOBS,
        )  # fmt: skip

    return await context.read(read)


def _last_advice(tx: Tx, now: int) -> dict[tuple[str, str], int]:
    stored = mails.advice_since(tx, now - _QUARTER, prefix=ADVICE, most=_MOST_JOBS)
    return {(mail.rule.removeprefix(ADVICE), mail.user): mail.due for mail in reversed(stored)}


def _row(
    rule: str,
    user: str,
    jobs: Sequence[tuple[JudgedFacts, Finding]],
    stored: Mapping[int, Summary],
    advised: Mapping[tuple[str, str], int],
) -> WasteRow:
    worst, finding = max(jobs, key=lambda pair: (_lost(stored.get(pair[0].job.id)), pair[0].job.id))
    sums = [stored[job.job.id] for job, _ in jobs if job.job.id in stored]
    return WasteRow(
        rule, user, len(jobs), sum(map(_lost, sums)), sum(row.gpu_seconds or 0.0 for row in sums),
        sum(row.energy_joules or 0.0 for row in sums), worst.job.id, finding.text, advised.get((rule, user)),
    )  # fmt: skip


def _lost(row: Summary | None) -> float:
    """Return the core-seconds that a job held and did not use, as far as they were measured."""
    if row is None or row.core_seconds is None or row.cpu_seconds is None:
        return 0.0
    return max(row.core_seconds - row.cpu_seconds, 0.0)


def _group(name: str, rows: Sequence[WasteRow]) -> WasteGroup:
    def amount(row: WasteRow) -> tuple[float, float]:
        return (row.gpu_seconds if name == "gpu" else row.lost, row.energy_joules)

    chosen = [row for row in rows if _GROUP_OF[row.rule] == name]
    return WasteGroup(name, sorted(chosen, key=amount, reverse=True)[:_MOST_ROWS])


def _view(snooze: Snooze) -> SnoozeView:
    return SnoozeView(snooze.id, snooze.rule, snooze.user, snooze.until, snooze.reason, snooze.author)


class SnoozeRequest(VerbRequest, kw_only=True):
    """Findings of a rule about a user's jobs, for how many days they are set aside, and why."""

    rule: Word
    user: Word
    days: Annotated[int, Meta(ge=1, le=366)] = 30
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class SnoozeResponse(Struct, frozen=True):
    """The number of what was set aside."""

    id: int


@verb(
    "waste.snooze", "POST /waste/snoozes",
    role=RequiredRole.STAFF, request=SnoozeRequest, response=SnoozeResponse,
    summary="Set findings about a user's jobs aside for some days, with the reason.",
)  # fmt: skip
async def snooze(context: RequestContext, request: SnoozeRequest) -> SnoozeResponse:
    """Store it; the same rule and user a second time replaces the first."""
    _check_rule(context, request.rule)
    now, author = context.now, context.user.name
    reason = " ".join(request.reason.split())
    if not reason:
        raise BadRequest("Say why these findings are set aside.", hint="The next who looks will want to know.")

    def step(tx: Tx) -> SnoozeResponse:
        until = now + request.days * _DAY
        number = finding_records.add(tx, request.rule, request.user, until=until, reason=reason, author=author, now=now)
        return SnoozeResponse(number)

    return await context.change(step, SnoozeResponse)


class SnoozeByIdRequest(VerbRequest):
    """What was set aside, by its number."""

    id: Id


@verb(
    "waste.unsnooze", "DELETE /waste/snoozes/{id}",
    role=RequiredRole.STAFF, request=SnoozeByIdRequest, response=EmptyResponse,
    summary="Show findings again that were set aside.",
)  # fmt: skip
async def unsnooze(context: RequestContext, request: SnoozeByIdRequest) -> EmptyResponse:
    """Remove it."""

    def step(tx: Tx) -> None:
        if not finding_records.remove(tx, request.id):
            raise NotFound(f"Nothing is set aside under the number {request.id}.", hint="The waste page lists it.")

    return await context.do(step)


class AdviceRequest(VerbRequest):
    """About which findings to write to a user."""

    rule: Word
    user: Word


class SentAdviceResponse(Struct, frozen=True):
    """Where the mail goes, and when."""

    address: str
    due: int


@verb(
    "advice.send", "POST /advice",
    role=RequiredRole.STAFF, request=AdviceRequest, response=SentAdviceResponse,
    summary="Send a user advice about findings of the last week by mail; at most once a week about the same.",
)  # fmt: skip
async def send_advice(context: RequestContext, request: AdviceRequest) -> SentAdviceResponse:
    """Put the mail into the queue, for the next working hour."""
    config, now = context.core.config, context.now
    _check_rule(context, request.rule)
    if not user_address(config, request.user) or not config.mail_smtp_server:
        raise BadRequest(
            "This site has not said where mails to users go.", hint="MAIL_SMTP_SERVER and MAIL_USER_DOMAIN do."
        )
    key = await context.core.write(mail_key)
    advised = await context.read(lambda tx: _advised(context, tx, request))
    mail = advice.compose_advice(config, advised, author=context.user.name, key=key, now=now)

    def step(tx: Tx) -> SentAdviceResponse:
        if MailKind.ADVICE.value in mails.refused_by(tx, request.user):
            raise Forbidden(f"{request.user} does not want such mails.", hint="Speak to each other.")
        if request.user in mails.users_since(tx, mail.rule, now - _WEEK + 1):
            raise Forbidden(
                f"{request.user} was told about `{request.rule}` less than a week ago.", hint="Wait for an effect."
            )
        mails.add(tx, mail, now=now)
        return SentAdviceResponse(mail.address, mail.due)

    return await context.change(step, SentAdviceResponse)


def _check_rule(context: RequestContext, rule: str) -> None:
    names = [defined.id for defined in rules_in_force(context.core.config.findings_file).findings]
    if rule not in names:
        raise NotFound(f"There is no finding `{rule[:80]}`.", hint=f"There are {', '.join(names)}.")


def _advised(context: RequestContext, tx: Tx, request: AdviceRequest) -> AdvisedJobs:
    """Return the jobs of a week about which it was found."""
    config, now = context.core.config, context.now
    ids = judged_jobs.ids_between(tx, now - _WEEK, now + 1, user=request.user, project=None, sight=None, most=2000)
    rules = rules_in_force(config.findings_file)
    judged = [
        (job.job.id, finding)
        for job in gather(tx, ids, now=now, gpu_property=config.job_gpu_property)
        for finding in find(rules, job.facts, elsewhere=bool(job.job.label))
        if finding.id == request.rule
    ]
    if not judged:
        raise NotFound(
            f"`{request.rule}` was not found about jobs of {request.user[:80]} this week.",
            hint="Look at the waste page again.",
        )
    stored = {row.job_id: row for row in summaries.of_jobs(tx, [number for number, _ in judged])}
    worst, finding = max(judged, key=lambda pair: (_lost(stored.get(pair[0])), pair[0]))
    return AdvisedJobs(request.user, len(judged), worst, finding)


class AdviceListRequest(VerbRequest):
    """Advice to a user; without one, for staff, to all."""

    user: Word | None = None


class AdviceView(Struct, frozen=True):
    """A mail with advice, and which part of what the user held was used in the two weeks before and after it.

    `sent` is 0 while it waits. Where nothing was measured `before` or `after` is null.
    """

    user: str
    rule: str
    job: int
    due: int
    sent: int
    before: float | None
    after: float | None


class AdviceListResponse(Struct, frozen=True):
    """Advice of the last 90 days, newest first."""

    advice: list[AdviceView]


@verb(
    "advice.list", "GET /advice",
    role=RequiredRole.USERS, request=AdviceListRequest, response=AdviceListResponse,
    summary="Show what advice was sent in the last 90 days, and what changed after it; users see their own.",
)  # fmt: skip
async def list_advice(context: RequestContext, request: AdviceListRequest) -> AdviceListResponse:
    """Compare two weeks before with two weeks after."""
    caller, now = context.user, context.now
    user = request.user if caller.staff else caller.name
    if request.user not in {None, user}:
        return AdviceListResponse([])
    effects = await context.read(lambda tx: advice.effects(tx, now=now, since=now - _QUARTER, user=user))
    return AdviceListResponse([AdviceView(*effect) for effect in effects])
