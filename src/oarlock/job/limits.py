"""What keeps jobs back, as administrators see and set it: which quotas hold and what is used; maintenance windows."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from oarlock.config import Config
from oarlock.job import quotas
from oarlock.job.run.starting import schedule
from oarlock.lang import where as conditions
from oarlock.lang.limits import short
from oarlock.model.condition import Column, Condition, In, Literal
from oarlock.model.errors import UnknownNode
from oarlock.model.job import HOLDS_RESOURCES, JobState
from oarlock.model.job_type import parse_types
from oarlock.model.limits import BadQuotas, BadWindow, Maintenance, UnknownQuota
from oarlock.model.resource import DEFAULT_TYPE
from oarlock.model.snapshot import PlacedJob, QuotaRule, Snapshot
from oarlock.plan.rules.quotas import CountedJob, QuotaShare, QuotaUse, quota_shares
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import listing
from oarlock.store.queries.planning import snapshot
from oarlock.store.queries.site import administration

_HOUR = 3600
_EACH, _ALL = "/", "*"
_MOST_RULES = 1000


class QuotaUsage(Struct, frozen=True, kw_only=True):
    """What those have whom a rule counts together: `whose` is the rule with names where it says each.

    `besteffort`: as best-effort jobs see it, who are bounded by what all have; others do not see best-effort jobs.
    """

    whose: str
    resources: int
    jobs: int
    resource_hours: float
    resources_by_user: dict[str, int]
    job_ids: list[int]
    besteffort: bool = False


class QuotaRuleUsage(Struct, frozen=True, kw_only=True):
    """A rule in force, its limits (null: none), and what is used of it. `number`: of a rule in the table."""

    rule: str
    number: int | None
    resources: int | None
    jobs: int | None
    resource_hours: float | None
    used: list[QuotaUsage]


class QuotasInForce(Struct, frozen=True, kw_only=True):
    """The rules that hold at an instant. `set`: their name in the file, and `until` when it holds; null: for good.

    `problem`: why a changed file is not used.
    """

    at: int
    file: str | None
    problem: str
    set: str | None
    until: int | None
    rules: list[QuotaRuleUsage]


def quotas_in_force(tx: Tx, config: Config, *, at: int, now: int, user: str | None = None) -> QuotasInForce:
    """Return which rules hold at an instant and what of them is used by jobs that have a place then.

    For an instant to come these are the jobs that would still run by their walltime, and reservations. With `user`,
    only what concerns one user.
    """
    how = schedule.plan_settings(config)
    if how.quotas is None and not administration.numbered_quotas(tx):  # to look at all jobs would be for nothing
        return QuotasInForce(at=at, file=None, problem=quotas.problem(config), set=None, until=None, rules=[])
    shot = schedule.read(tx, how, karma_window=config.karma_window, now=now, depth=1).snapshot
    file = None if how.quotas is None else quotas.active_at(how.quotas, shot.resources, at=at)
    numbered = [*administration.numbered_quotas(tx).items(), *((None, rule) for rule in (file.rules if file else ()))]
    used = quota_shares([rule for _, rule in numbered], _present(shot, at=at, now=now))
    return QuotasInForce(
        at=at,
        file=None if file is None else str(config.quotas_conf_file),
        problem=quotas.problem(config),
        set=file.name if file else None,
        until=file.until if file else None,
        rules=[_rule(number, rule, used, user) for number, rule in numbered if _concerns(rule, user)],
    )


def _present(shot: Snapshot, *, at: int, now: int) -> list[CountedJob]:
    table = shot.resources
    counted = {job for job, kind in zip(table.ids, table.columns["type"], strict=True) if kind == DEFAULT_TYPE}
    there = [job for job in shot.placed if job.start <= at < max(job.stop, now + 1 if job.start <= now else 0)]
    return [CountedJob(job, _use(job, counted), parse_types(job.types).besteffort) for job in there]


def _use(job: PlacedJob, counted: set[int]) -> QuotaUse:
    size = len(counted.intersection(job.resources))
    return QuotaUse(size, 1, size * (job.stop - job.start))


def _concerns(rule: QuotaRule, user: str | None) -> bool:
    return user is None or rule.user in {user, _EACH, _ALL}


def _rule(number: int | None, rule: QuotaRule, used: Iterable[QuotaShare], user: str | None) -> QuotaRuleUsage:
    return QuotaRuleUsage(
        rule=written_quota_rules(rule),
        number=number,
        resources=None if rule.resources < 0 else rule.resources,
        jobs=None if rule.jobs < 0 else rule.jobs,
        resource_hours=None if rule.resource_seconds < 0 else round(rule.resource_seconds / _HOUR, 2),
        used=[
            _used(share) for share in used if share.rule == rule and (user is None or share.whose[3] in {user, _ALL})
        ],
    )


def _used(share: QuotaShare) -> QuotaUsage:
    return QuotaUsage(
        whose=",".join(share.whose),
        resources=share.used.resources,
        jobs=share.used.jobs,
        resource_hours=round(share.used.seconds / _HOUR, 2),
        resources_by_user=share.resources_by_user,
        job_ids=list(share.jobs),
        besteffort=share.besteffort,
    )


def written_quota_rules(rule: QuotaRule) -> str:
    """Write whom a rule is for, as its file does."""
    return f"{rule.queue},{rule.project},{rule.job_type},{rule.user}"


def add_quota_rule(tx: Tx, rule: QuotaRule) -> int:
    """Put a rule into the table, behind the others; gives its number. One for the same is replaced."""
    numbered = administration.numbered_quotas(tx)
    if len(numbered) >= _MOST_RULES:
        raise BadQuotas(f"There are {_MOST_RULES} rules in the table.", hint="Write a file (QUOTAS_CONF_FILE) instead.")
    same = [
        number for number, existing in numbered.items() if written_quota_rules(existing) == written_quota_rules(rule)
    ]
    number = same[0] if same else max(numbered, default=0) + 1
    administration.put_quotas(tx, {**numbered, number: rule})
    return number


def remove_quota_rule(tx: Tx, number: int) -> None:
    """Take a rule out of the table (`UnknownQuota` if it is not there)."""
    numbered = administration.numbered_quotas(tx)
    if number not in numbered:
        raise UnknownQuota(
            f"There is no quota {number} in the table.",
            hint="`oarlock quotas` lists them with their numbers; those without a number stand in the file.",
        )
    del numbered[number]
    administration.put_quotas(tx, numbered)


LONGEST = 366 * 24 * 3600


class AffectedJobs(Struct, frozen=True):
    """A window that was added: how many resources it is about, and the jobs that will be there when it begins.

    They are left alone: `running` may end before, `reservations` were promised before.
    """

    window: Maintenance
    resources: int
    running: tuple[int, ...]
    reservations: tuple[int, ...]


def add_maintenance_window(
    tx: Tx, *, name: str, start: int, stop: int, nodes: Sequence[str] | None, where: str | None, by: str, now: int
) -> AffectedJobs:
    """Keep resources free of jobs in [start, stop): those of nodes, those that fulfil a condition, or all."""
    _check(name, start, stop, now)
    condition = _condition(tx, nodes, where)
    written = conditions.show(condition) if condition is not None else ""
    window = administration.add_maintenance(tx, Maintenance(0, name, start, stop, written, by))
    ids = set(administration.resources_of_window(tx, written, properties.types(tx)))
    there = [job for job in snapshot.read(tx, karma_window=0, now=now, depth=0).snapshot.placed if job.stop > start]
    met = [job for job in there if job.start < stop and ids.intersection(job.resources)]
    return AffectedJobs(
        window,
        len(ids),
        tuple(job.job_id for job in met if job.state in HOLDS_RESOURCES),
        tuple(job.job_id for job in met if job.state in {JobState.WAITING, JobState.TO_ACK_RESERVATION}),
    )


def _check(name: str, start: int, stop: int, now: int) -> None:
    if not name.strip() or not name.isprintable() or "`" in name:
        raise BadWindow(f"`{short(name)}` cannot be the name of a maintenance.", hint="Use printable characters.")
    if stop <= start:
        raise BadWindow("The maintenance would end before it begins.", hint="Swap its two dates.")
    if stop <= now:
        raise BadWindow("The maintenance would be over already.", hint="Give dates to come.")
    if stop - start > LONGEST:
        raise BadWindow("The maintenance would last for more than a year.", hint="Make its resources Absent instead.")


def _condition(tx: Tx, nodes: Sequence[str] | None, where: str | None) -> Condition | None:
    if nodes and where:
        raise BadWindow("Resources are chosen in one way.", hint="Name nodes, or give a condition.")
    if where:
        return conditions.check(conditions.parse(where), properties.types(tx))
    if not nodes:
        return None
    existing = listing.at_nodes(tx, list(nodes))
    for name in nodes:
        if name not in existing:
            raise UnknownNode(f"There is no node `{short(name)}`.", hint="`oarnodes -l` lists them.")
    return In(Column("network_address"), tuple(Literal(name) for name in sorted(set(nodes))))
