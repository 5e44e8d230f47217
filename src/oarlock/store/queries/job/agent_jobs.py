"""Jobs of other resource managers, as agents report them."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, bindparam, insert, select, update

from oarlock.store.engine import facts
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.tables import agent_jobs

FIRST_NUMBER = 10**12
"""Numbers from here on are those of jobs of other resource managers: jobs of our own never get there."""

_NODE = "agent node "  # before the name of the fact that says which cluster has it


class DescribedJob(NamedTuple):
    """What an agent reports about a job; empty is "it does not know"."""

    job: str
    manager: str = ""
    user: str = ""
    uid: int | None = None
    account: str = ""
    name: str = ""


class AgentJob(NamedTuple):
    """A job of another resource manager: what that calls it (`job`), and our number. `ended` is 0 while it runs."""

    number: int
    cluster: str
    job: str
    manager: str
    user: str
    uid: int | None
    account: str
    name: str
    nodes: tuple[str, ...]
    first_seen: int
    last_seen: int
    ended: int


def register(tx: Tx, cluster: str, described: Iterable[DescribedJob], *, node: str, now: int) -> dict[str, int]:
    """Store what an agent on a node reports about jobs; return their numbers.

    A job that is over and comes again is another one: managers use their numbers again, or run a job once more.
    """
    numbers: dict[str, int] = {}
    for job in described:
        row = tx.execute(_NEWEST, {"cluster": cluster, "job": job.job}).first()
        if row is None or row.ended:
            numbers[job.job] = _add(tx, cluster, job, node=node, now=now)
        else:
            numbers[job.job] = row.number
            _update(tx, _job(row), job, node=node)
    return numbers


def _add(tx: Tx, cluster: str, job: DescribedJob, *, node: str, now: int) -> int:
    [offset] = allocate_ids(tx, agent_jobs.c.number, 1)
    number = offset if offset >= FIRST_NUMBER else _first(tx)
    about = {"user_name": job.user, "uid": job.uid, "account": job.account, "name": job.name, "manager": job.manager}
    dates = {"first_seen": now, "last_seen": now, "ended": 0}
    tx.execute(
        insert(agent_jobs), {"number": number, "cluster": cluster, "job": job.job, "nodes": node, **about, **dates}
    )
    return number


def _first(tx: Tx) -> int:
    """Begin the numbers: those of our own jobs stay far below."""
    tx.info["next ids"][agent_jobs.c.number] = FIRST_NUMBER + 2
    return FIRST_NUMBER + 1


def _update(tx: Tx, stored: AgentJob, described: DescribedJob, *, node: str) -> None:
    nodes = stored.nodes if node in stored.nodes else (*stored.nodes, node)
    new = {
        "manager": described.manager or stored.manager,
        "user_name": described.user or stored.user,
        "uid": stored.uid if described.uid is None else described.uid,
        "account": described.account or stored.account,
        "name": described.name or stored.name,
        "nodes": " ".join(nodes),
    }
    before = (stored.manager, stored.user, stored.uid, stored.account, stored.name, " ".join(stored.nodes))
    if tuple(new.values()) != before:
        tx.execute(update(agent_jobs).where(agent_jobs.c.number == stored.number), new)


def claim_node(tx: Tx, name: str, cluster: str) -> str:
    """Return which cluster has the name of a node; this one from now on, if none has it."""
    return facts.get_or_set(tx, _NODE + name, cluster)


def clusters_of_nodes(tx: Tx) -> dict[str, str]:
    """Return by name of a node which cluster has it."""
    return {name.removeprefix(_NODE): cluster for name, cluster in facts.with_prefix(tx, _NODE).items()}


def note_seen(tx: Tx, seen: Mapping[int, int], ended: Mapping[int, int]) -> None:
    """Note when jobs were measured last, and when those that are over ended (epoch seconds)."""
    if seen:
        tx.execute(_SEEN, [{"of": number, "at": at} for number, at in seen.items()])
    if ended:
        tx.execute(_ENDED, [{"of": number, "at": at} for number, at in ended.items()])


def find(tx: Tx, cluster: str, job: str) -> AgentJob | None:
    """Return the newest job of a cluster with that name of its manager's."""
    row = tx.execute(_NEWEST, {"cluster": cluster, "job": job}).first()
    return None if row is None else _job(row)


def by_number(tx: Tx, numbers: Collection[int]) -> dict[int, AgentJob]:
    """Return those of these jobs that exist, by number."""
    wanted = [number for number in numbers if number >= FIRST_NUMBER]
    if not wanted:
        return {}
    return {row.number: _job(row) for row in tx.execute(_by_number(tx.dialect.name), bind_ids(tx, wanted))}


def numbers_there(tx: Tx, numbers: Collection[int]) -> dict[int, int]:
    """Return the numbers that jobs have in their own cluster, for those that have one there."""
    return {number: int(job.job) for number, job in by_number(tx, numbers).items() if job.job.isdecimal()}


def names(tx: Tx, numbers: Collection[int]) -> dict[int, str]:
    """Return what people call those of these jobs that are of other resource managers: `17@alpha`."""
    return {number: f"{job.job}@{job.cluster}" for number, job in by_number(tx, numbers).items()}


def queue_of(cluster: str) -> str:
    """Return what stands for the queue of the jobs of a cluster: agents know no queues, and no queue is named so."""
    return f"@{cluster}"


def not_over(tx: Tx) -> list[AgentJob]:
    """Return the jobs that are not known to be over."""
    return [_job(row) for row in tx.execute(_NOT_OVER)]


def listed(
    tx: Tx, *, cluster: str | None, user: str | None, running: bool, most: int, sight: JobSight | None = None
) -> list[AgentJob]:
    """Return jobs, newest first: of one cluster, of one user, only those that run, or that somebody sees."""
    query = select(agent_jobs).order_by(agent_jobs.c.number.desc()).limit(most)
    if cluster is not None:
        query = query.where(agent_jobs.c.cluster == cluster)
    if user is not None:
        query = query.where(agent_jobs.c.user_name == user)
    if sight is not None:
        query = query.where(sight.holds(agent_jobs.c.user_name, agent_jobs.c.account))
    if running:
        query = query.where(agent_jobs.c.ended == 0)
    return [_job(row) for row in tx.execute(query)]


def _job(row: Any) -> AgentJob:
    return AgentJob(
        row.number, row.cluster, row.job, row.manager, row.user_name, row.uid, row.account, row.name,
        tuple(row.nodes.split()), row.first_seen, row.last_seen, row.ended,
    )  # fmt: skip


@cache
def _by_number(engine: str) -> Select[Any]:
    return select(agent_jobs).where(id_in(engine, agent_jobs.c.number))


_NEWEST = (
    select(agent_jobs)
    .where(agent_jobs.c.cluster == bindparam("cluster"), agent_jobs.c.job == bindparam("job"))
    .order_by(agent_jobs.c.number.desc())
    .limit(1)
)
_NOT_OVER = select(agent_jobs).where(agent_jobs.c.ended == 0).order_by(agent_jobs.c.number)
_SEEN = update(agent_jobs).where(agent_jobs.c.number == bindparam("of")).values(last_seen=bindparam("at"))
_ENDED = update(agent_jobs).where(agent_jobs.c.number == bindparam("of")).values(ended=bindparam("at"))
