"""The accounting database of Slurm, read through two views that a site makes for us: jobs, and nodes.

The account of the portal may read these views and nothing else: no script, no environment, no comment.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, column, or_, select, table

from oarlock.lang import slurm
from oarlock.model.errors import ConfigRefused
from oarlock.model.job import HOLDS_RESOURCES, JobState
from oarlock.model.source import (
    EndedJobs,
    SourceChoice,
    SourceEvent,
    SourceGroup,
    SourceJob,
    SourceLevel,
    SourceNode,
    SourceNodes,
    SourceQueue,
)
from oarlock.store.sources.connections import ForeignDatabase

_CLUSTER = re.compile(r"[a-z0-9_-]{1,40}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_]{1,32}")
_HOST = re.compile(r"[A-Za-z0-9_.%:-]{1,60}")
_DATABASE = re.compile(r"[A-Za-z0-9_]{1,60}")
_JOB_COLUMNS = (
    "job_db_inx", "mod_time", "id_job", "id_array_job", "id_array_task", "id_user", "account", "job_name", "partition",
    "state", "exit_code", "priority", "time_submit", "time_start", "time_end", "time_suspended", "timelimit",
    "nodelist", "nodes_alloc", "cpus_req", "tres_alloc", "tres_req",
)  # fmt: skip
_NODE_COLUMNS = ("node_name", "cluster_nodes", "time_start", "time_end", "state", "reason", "tres")
_SHORTEST = 60  # seconds of a limit
_MEMORY_PROPERTY = "memnode"  # in MB, as OAR's sites have it

_jobs = table("oarlock_jobs", *map(column, (*_JOB_COLUMNS, "user")))
_nodes = table("oarlock_nodes", *map(column, _NODE_COLUMNS))


def grant(cluster: str, *, database: str, account: str, host: str) -> str:
    """Return the statements by which a site makes the account and its views; `ConfigRefused` for names that are none.

    The views run with the rights of whoever makes them, so the account needs none on Slurm's own tables.
    """
    for text, shape, option in (
        (cluster, _CLUSTER, "--cluster"), (database, _DATABASE, "--database"), (account, _ACCOUNT, "--account"),
        (host, _HOST, "--host"),
    ):  # fmt: skip
        if not shape.fullmatch(text):
            raise ConfigRefused(f"`{text[:60]}` cannot stand behind {option}.", hint="Write a plain name.")
    who = f"'{account}'@'{host}'"
    columns = ", ".join(f"j.`{name}`" for name in _JOB_COLUMNS)
    nodes = ", ".join(f"`{name}`" for name in _NODE_COLUMNS)
    views = (
        f"CREATE OR REPLACE SQL SECURITY DEFINER VIEW `{database}`.`oarlock_jobs` AS\n"  # noqa: S608  (checked above)
        f"  SELECT {columns}, a.`user` FROM `{database}`.`{cluster}_job_table` j\n"
        f"  LEFT JOIN `{database}`.`{cluster}_assoc_table` a ON a.id_assoc = j.id_assoc WHERE j.deleted = 0;\n"
        f"CREATE OR REPLACE SQL SECURITY DEFINER VIEW `{database}`.`oarlock_nodes` AS\n"
        f"  SELECT {nodes} FROM `{database}`.`{cluster}_event_table`;\n"
    )  # fmt: skip
    rights = "".join(f"GRANT SELECT ON `{database}`.`{view}` TO {who};\n" for view in ("oarlock_jobs", "oarlock_nodes"))
    return (
        "-- Read this, put a password of your own in it, and run it as an administrator of the database.\n"
        f"CREATE USER IF NOT EXISTS {who} IDENTIFIED BY 'CHANGE-THIS';\n{views}{rights}"
    )


class SlurmDatabase:
    """A Slurm cluster, read from the views in slurmdbd's database."""

    def __init__(self, database: ForeignDatabase) -> None:
        self._database = database

    @property
    def name(self) -> str:
        """What the source is."""
        return self._database.name

    def nodes(self, *, since: int) -> SourceNodes:
        """Return nodes: those that the cluster registered last, with what is down or drained now; and partitions."""
        job, row = _jobs.c, _nodes.c
        with self._database.read() as tx:
            [*registered] = tx.execute(
                select(row.cluster_nodes, row.tres)
                .where(row.node_name == "", row.time_end == 0)
                .order_by(row.time_start.desc())
                .limit(1)
            )
            down = tx.execute(
                select(row.node_name, row.state, row.tres, row.time_start, row.time_end)
                .where(row.node_name != "", or_(row.time_end == 0, row.time_end >= since))
                .order_by(row.time_start)
            ).all()
            names = tx.execute(select(job.partition).where(_recent(since)).distinct()).scalars().all()
        partitions = sorted({part for text in names for part in str(text).split(",") if part})
        queues = [SourceQueue(name, 0, active=True) for name in partitions]
        nodes = _described(registered, down)
        present = {node.name for node in nodes}
        events = [slurm.node_change(row.node_name, row.state, row.time_start, row.time_end) for row in down]
        changes = [change for change in events if change and change.node in present]
        return SourceNodes(nodes=nodes, queues=queues, node_changes=changes)

    def live(self) -> Sequence[SourceJob]:
        """Return jobs that wait and run."""
        return self._read(_jobs.c.time_end == 0)

    def jobs(self, ids: Collection[int]) -> Sequence[SourceJob]:
        """Return these jobs."""
        return self._read(_jobs.c.id_job.in_(sorted(ids)))

    def ended(self, cursor: tuple[int, int], most: int) -> EndedJobs:
        """Return jobs that ended and were written behind the cursor: slurmdbd may learn of an end much later."""
        at, number = cursor
        job = _jobs.c
        behind = or_(job.mod_time > at, and_(job.mod_time == at, job.job_db_inx > number))
        with self._database.read() as tx:
            rows = tx.execute(
                select(_jobs).where(job.time_end > 0, behind).order_by(job.mod_time, job.job_db_inx).limit(most)
            ).all()
        last = (int(rows[-1].mod_time), int(rows[-1].job_db_inx)) if rows else cursor
        # A job that was requeued may have ended once and live again: its newest row counts.
        newest = self.jobs({int(row.id_job) for row in rows}) if rows else ()
        return EndedJobs(newest, last, complete=len(rows) < most)

    def events(self, after: int, most: int, *, since: int) -> Sequence[SourceEvent]:  # noqa: ARG002
        """Return nothing: Slurm's accounting has no events of jobs."""
        return ()

    def close(self) -> None:
        """Close its connections."""
        self._database.close()

    def _read(self, condition: ColumnElement[bool]) -> list[SourceJob]:
        with self._database.read() as tx:
            return _newest(tx.execute(select(_jobs).where(condition).order_by(_jobs.c.job_db_inx)).all())


def _recent(since: int) -> ColumnElement[bool]:
    return or_(_jobs.c.time_end == 0, _jobs.c.time_end >= since)


def _newest(rows: Sequence[Any]) -> list[SourceJob]:
    """Return the newest row of each job: one that was requeued has several."""
    newest: dict[int, Any] = {}
    for row in sorted(rows, key=lambda row: row.job_db_inx):
        newest[int(row.id_job)] = row
    return [_job(row) for row in newest.values()]


def _described(registered: Sequence[Any], down: Sequence[Any]) -> list[SourceNode]:
    """Describe the nodes of a cluster. What is known of all together, cores and memory, is divided evenly."""
    names = slurm.hosts(registered[0].cluster_nodes) if registered else []
    cores, memory = (_divided(names, registered, down, kind) for kind in (slurm.CPU, slurm.MEMORY))
    states = {row.node_name: slurm.node_state(int(row.state)) for row in down if not row.time_end}
    return [
        SourceNode(
            name, max(cores[name], 1), *states.get(name, ("Alive", False)),
            {_MEMORY_PROPERTY: memory[name]} if memory[name] else {},
        )
        for name in names
    ]  # fmt: skip


def _divided(names: Sequence[str], registered: Sequence[Any], down: Sequence[Any], kind: int) -> dict[str, int]:
    """Return how much of something each node has: as it told when it was down, else its part of the rest."""
    amounts = {row.node_name: slurm.counts(row.tres).get(kind, 0) for row in down}
    total = slurm.counts(registered[0].tres).get(kind, 0) if registered else 0
    plain = [name for name in names if not amounts.get(name)]
    rest = total - sum(amounts.get(name, 0) for name in names)
    share, left = divmod(max(rest, 0), len(plain)) if plain else (0, 0)
    return {**amounts, **{name: share + (place < left) for place, name in enumerate(plain)}}


def _job(row: Any) -> SourceJob:
    word = slurm.state_word(int(row.state))
    state = slurm.state_of(word, held=int(row.priority) == 0)
    start, end = int(row.time_start), int(row.time_end)
    if state in {JobState.WAITING, JobState.HOLD}:
        start = 0
    names = slurm.hosts(row.nodelist or "") if start and row.nodelist != "None assigned" else []
    cpus = slurm.counts(row.tres_alloc).get(slurm.CPU) or slurm.counts(row.tres_req).get(slurm.CPU) or row.cpus_req
    nodes = len(names) or slurm.counts(row.tres_req).get(slurm.NODE) or 1
    share, left = divmod(int(cpus), max(nodes, 1))
    array, limit = int(row.id_array_job), int(row.timelimit)
    levels = (SourceLevel("network_address", nodes), SourceLevel("core", max(share, 1)))
    number = int(row.id_job)
    return SourceJob(
        id=number,
        state=state,
        user=row.user or str(row.id_user),
        uid=int(row.id_user),
        project=row.account or "default",
        queue=row.partition or "",
        name=row.job_name or None,
        message="" if state in HOLDS_RESOURCES or word == "COMPLETED" else f"Slurm: {word}",
        submitted=int(row.time_submit),
        start=start,
        stop=end,
        exit_code=int(row.exit_code) if end else None,
        array_id=array or number,
        array_index=int(row.id_array_task) if array and int(row.id_array_task) < slurm.NO_VALUE else 1,
        suspended=int(row.time_suspended) > 0,
        choices=(
            SourceChoice(number, 0 if limit >= slurm.NO_VALUE else limit * _SHORTEST, (SourceGroup("", levels),)),
        ),
        assigned=number if names else 0,
        places=tuple((name, share + (place < left)) for place, name in enumerate(names)),
    )
