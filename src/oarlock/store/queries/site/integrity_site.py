"""What `oarlock check` reads that is not about one job: plan, arrays, resources, orphans, secrets, generations."""

from typing import Any, NamedTuple

from sqlalchemy import Column, Select, Table, and_, exists, func, inspect, literal_column, or_, select, text

from oarlock.model.job import FINAL, JobState
from oarlock.model.snapshot import QuotaRule
from oarlock.store import migrations
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.integrity import numbers_by, texts
from oarlock.store.queries.usage.accounting import AccountingRow, accounts_compared_from
from oarlock.store.queries.users import user_records
from oarlock.store.tables import (
    accounting,
    array_members,
    array_texts,
    assigned_resources,
    attempt_nodes,
    audit,
    challenges,
    event_log_hostnames,
    event_logs,
    frag_jobs,
    gantt_jobs_predictions,
    gantt_jobs_resources,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_summaries,
    job_types,
    jobs,
    moldable_job_descriptions,
    monitoring_samples,
    queues,
    resource_logs,
    resources,
    tokens,
)
from oarlock.store.tables import attempts as attempts_table


class PlannedJob(NamedTuple):
    """A job that waits and its place in the plan."""

    job_id: int
    start: int
    stop: int
    resources: list[int]
    reserved: bool
    reserved_start: int
    types: tuple[str, ...]


class ArrayFacts(NamedTuple):
    """An array: how many members, how many different indexes, the lowest and the highest of them, and its users."""

    array_id: int
    members: int
    indexes: int
    lowest: int
    highest: int
    users: int


class ResourceFacts(NamedTuple):
    """A resource: its state, and the states of the rows of its history that have no end."""

    id: int
    state: str
    open_states: list[str]


class SiteRecords(NamedTuple):
    """What is not about one job. `last`: the last instant that was written; `orphans`: rows that belong to nothing."""

    last: int
    plan: list[PlannedJob]
    arrays: list[ArrayFacts]
    half_arrays: list[int]
    resources: list[ResourceFacts]
    orphans: list[tuple[str, int]]
    damage: list[str]
    revision: str
    broken_audit: int | None
    accounts: list[AccountingRow]
    accounts_since: int
    private_keys: int
    plain_tokens: int
    bad_samples: list[tuple[int, str]]
    strange_samples: list[tuple[int, str]]
    generation: str | None
    generations: list[tuple[str, int]]
    restores: int
    queues: set[str]
    quotas: list[QuotaRule]
    quotas_since: int | None
    away: set[str]


def site_records(tx: Tx, *, thorough: bool) -> SiteRecords:
    """Read what is not about one job. `thorough`: also the file itself, page by page (SQLite)."""
    log, changes = job_state_logs.c, resource_logs.c
    state_open = and_(resource_logs.c.attribute == "state", resource_logs.c.date_stop == literal_column("0"))
    open_states = texts(tx, select(resource_logs.c.resource_id, resource_logs.c.value).where(state_open))
    everything = select(resources.c.resource_id, resources.c.state, resources.c.network_address)
    rows = tx.execute(everything.order_by(resources.c.resource_id)).all()
    events, key = event_logs.c, challenges.c
    return SiteRecords(
        last=max(
            tx.execute(select(func.coalesce(func.max(log.date_start), 0))).scalar_one(),
            tx.execute(select(func.coalesce(func.max(events.date), 0))).scalar_one(),
            tx.execute(select(func.coalesce(func.max(changes.date_start), 0))).scalar_one(),
        ),
        plan=_plan(tx),
        arrays=[ArrayFacts(*row) for row in tx.execute(_ARRAYS)],
        half_arrays=list(tx.execute(_HALF_ARRAYS).scalars()),
        resources=[ResourceFacts(number, state, open_states.get(number, [])) for number, state, _ in rows],
        orphans=[(name, count) for name, query in _ORPHANS.items() if (count := tx.execute(query).scalar_one())],
        damage=_damage(tx, thorough=thorough),
        revision=revision(tx),
        broken_audit=user_records.broken_audit(tx),
        accounts=[AccountingRow(*row) for row in tx.execute(select(accounting))],
        accounts_since=accounts_compared_from(tx),
        private_keys=tx.execute(select(func.count()).where(key.ssh_private_key.is_not(None))).scalar_one(),
        plain_tokens=tx.execute(select(func.count()).where(func.length(tokens.c.token_hash) != 64)).scalar_one(),
        bad_samples=_bad_samples(tx),
        strange_samples=[tuple(row) for row in tx.execute(_STRANGE_SAMPLES)],
        generation=facts.get(tx, "generation"),
        generations=[tuple(row) for row in tx.execute(_GENERATIONS)],
        restores=tx.execute(select(func.count()).where(events.type == "NEW_GENERATION")).scalar_one(),
        queues=set(tx.execute(select(queues.c.queue_name)).scalars()),
        quotas=administration.all_quotas(tx),
        quotas_since=tx.execute(_QUOTAS_SINCE).scalar_one(),
        away={name for _, state, name in rows if state != "Alive"},
    )


_QUOTAS_SINCE = select(func.max(audit.c.date)).where(
    audit.c.verb.in_(("quotas.add", "quotas.remove")), audit.c.refused == ""
)
_LIVE = [state.value for state in JobState if state not in FINAL]
_ARRAYS = (
    select(
        jobs.c.array_id, func.count(), func.count(jobs.c.array_index.distinct()), func.min(jobs.c.array_index),
        func.max(jobs.c.array_index), func.count(jobs.c.job_user.distinct()),
    ).where(jobs.c.array_id > 0).group_by(jobs.c.array_id).order_by(jobs.c.array_id)
)  # fmt: skip
_HALF_ARRAYS = (
    select(array_members.c.array_id)
    .where(~exists().where(array_texts.c.array_id == array_members.c.array_id, array_texts.c.stored == "NO"))
    .distinct()
)
_SKEW = 600  # seconds between the clocks of a node and the server within which they are believed
_STRANGE_SAMPLES = (
    select(monitoring_samples.c.job_id, monitoring_samples.c.network_address)
    .where(
        ~exists().where(
            attempt_nodes.c.job_id == monitoring_samples.c.job_id,
            attempt_nodes.c.network_address == monitoring_samples.c.network_address,
            attempts_table.c.job_id == attempt_nodes.c.job_id,
            attempts_table.c.number == attempt_nodes.c.number,
            attempts_table.c.opened_us <= (monitoring_samples.c.date + _SKEW) * 1_000_000,
            or_(
                attempts_table.c.closed_us.is_(None),
                attempts_table.c.closed_us >= (monitoring_samples.c.date - _SKEW) * 1_000_000,
            ),
        )
    )
    .distinct()
)
_GENERATIONS = (
    select(attempts_table.c.generation, func.max(attempts_table.c.opened_us))
    .where(attempts_table.c.generation != "")
    .group_by(attempts_table.c.generation)
)


def _orphans(table: Table, column: Column[Any], owner: Column[Any], *, unless: Any = None) -> Select[Any]:
    query = select(func.count()).select_from(table).where(~exists().where(owner == column))
    return query if unless is None else query.where(unless)


_ORPHANS = {
    "job_state_logs": _orphans(job_state_logs, job_state_logs.c.job_id, jobs.c.job_id),
    "job_types": _orphans(job_types, job_types.c.job_id, jobs.c.job_id),
    "job_dependencies": _orphans(job_dependencies, job_dependencies.c.job_id, jobs.c.job_id),
    "moldable_job_descriptions": _orphans(
        moldable_job_descriptions, moldable_job_descriptions.c.moldable_job_id, jobs.c.job_id
    ),
    "job_resource_groups": _orphans(
        job_resource_groups, job_resource_groups.c.res_group_moldable_id, moldable_job_descriptions.c.moldable_id
    ),
    "job_resource_descriptions": _orphans(
        job_resource_descriptions, job_resource_descriptions.c.res_job_group_id, job_resource_groups.c.res_group_id
    ),
    "assigned_resources": _orphans(
        assigned_resources, assigned_resources.c.moldable_job_id, moldable_job_descriptions.c.moldable_id
    ),
    "gantt_jobs_predictions": _orphans(
        gantt_jobs_predictions,
        gantt_jobs_predictions.c.moldable_job_id,
        moldable_job_descriptions.c.moldable_id,
        unless=gantt_jobs_predictions.c.moldable_job_id != 0,
    ),
    "gantt_jobs_resources": _orphans(
        gantt_jobs_resources, gantt_jobs_resources.c.moldable_job_id, moldable_job_descriptions.c.moldable_id
    ),
    "frag_jobs": _orphans(frag_jobs, frag_jobs.c.frag_id_job, jobs.c.job_id),
    "attempts": _orphans(attempts_table, attempts_table.c.job_id, jobs.c.job_id),
    "challenges": _orphans(challenges, challenges.c.job_id, jobs.c.job_id),
    "job_summaries": _orphans(job_summaries, job_summaries.c.job_id, jobs.c.job_id),
    "event_log_hostnames": _orphans(event_log_hostnames, event_log_hostnames.c.event_id, event_logs.c.event_id),
}
"""Tables whose rows belong to rows of another, and the count of those that do not."""


def _plan(tx: Tx) -> list[PlannedJob]:
    moldable, predicted = moldable_job_descriptions.c, gantt_jobs_predictions.c
    given = numbers_by(tx, select(gantt_jobs_resources.c.moldable_job_id, gantt_jobs_resources.c.resource_id))
    waiting = tx.execute(
        select(
            jobs.c.job_id, moldable.moldable_id, predicted.start_time, moldable.moldable_walltime, jobs.c.reservation,
            jobs.c.start_time,
        )
        .join(moldable_job_descriptions, moldable.moldable_job_id == jobs.c.job_id)
        .join(gantt_jobs_predictions, predicted.moldable_job_id == moldable.moldable_id)
        .where(jobs.c.state.in_([JobState.WAITING.value, JobState.HOLD.value, JobState.TO_ACK_RESERVATION.value]))
        .order_by(jobs.c.job_id)
    ).all()  # fmt: skip
    live = select(jobs.c.job_id).where(jobs.c.state.in_(_LIVE))
    types = texts(tx, select(job_types.c.job_id, job_types.c.type).where(job_types.c.job_id.in_(live)))
    return [
        PlannedJob(
            number, start, start + walltime, given.get(chosen, []), reservation == "Scheduled", date,
            tuple(types.get(number, ())),
        )
        for number, chosen, start, walltime, reservation, date in waiting
    ]  # fmt: skip


def _damage(tx: Tx, *, thorough: bool) -> list[str]:
    """Ask SQLite about its file; PostgreSQL watches its own."""
    if tx.dialect.name != "sqlite":
        return []
    broken = [f"a row of {row[0]} names a row of {row[2]} that is not there" for row in _foreign(tx)]
    pages = [row[0] for row in tx.execute(text("PRAGMA integrity_check(10)" if thorough else "SELECT 'ok'"))]
    return broken + [" ".join(page.split()) for page in pages if page != "ok"]


def _foreign(tx: Tx) -> list[Any]:
    return list(tx.execute(text("PRAGMA foreign_key_check")).fetchmany(10))


def revision(tx: Tx) -> str:
    """Return the form of a database."""
    if not inspect(tx).has_table("alembic_version"):
        return migrations.REVISIONS[-1]  # a database in memory
    return str(tx.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def _bad_samples(tx: Tx) -> list[tuple[int, str]]:
    """Find summaries of jobs that no machine can have produced."""
    row = job_summaries.c
    columns = row.cpu_seconds, row.read_bytes, row.written_bytes, row.energy_joules, row.gpu_seconds
    negative = [column < 0 for column in columns]
    summaries = select(row.job_id, row.cpu_seconds, row.core_seconds)
    wrong = [(number, "has a negative measurement") for number, *_ in tx.execute(summaries.where(or_(*negative)))]
    more = summaries.where(row.core_seconds > 0, row.cpu_seconds > row.core_seconds * 1.05 + 1)
    wrong += [(number, f"used {used:.0f} s of processors and had {had:.0f}") for number, used, had in tx.execute(more)]
    covered = select(row.job_id, row.coverage).where(or_(row.coverage < 0, row.coverage > 1.001))
    wrong += [(number, f"was measured for {share:.3g} of its time") for number, share in tx.execute(covered)]
    return wrong + [(number, "was measured and never began") for number in tx.execute(_NEVER_BEGAN).scalars()]


_NEVER_BEGAN = select(job_summaries.c.job_id).where(
    job_summaries.c.samples > 0,
    exists().where(attempts_table.c.job_id == job_summaries.c.job_id),
    ~exists().where(attempts_table.c.job_id == job_summaries.c.job_id, attempts_table.c.started_us.is_not(None)),
)
