"""Bring what a Slurm cluster declares and remembers into our own tables: nodes, partitions, jobs that are over."""

from collections.abc import Collection, Sequence

from sqlalchemy import func, select, update

from oarlock.lang.slurm_conf import ConfNode, ConfPartition, SlurmConf
from oarlock.model.errors import Conflict, OarlockError
from oarlock.model.resource import Value
from oarlock.model.snapshot import Queue
from oarlock.model.source import SourceJob
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx, skip_ids
from oarlock.store.queries.cluster import cluster_copy, properties, resources
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.imported_rows import ImportCounts
from oarlock.store.tables import jobs, queues
from oarlock.store.tables import resources as resource_table

_POLICY = "oar_sched_gantt_with_timesharing_and_fairsharing"
_MB_OF_GB = 1024
_PARTITION = "partition_"
YES, NO = "YES", "NO"


def write_conf(tx: Tx, conf: SlurmConf, report: ImportCounts, *, at: int) -> None:
    """Add the nodes of a slurm.conf, a resource a core, and a queue for each partition; what is here stays."""
    here = set(tx.execute(select(resource_table.c.network_address)).scalars())
    new = [node for node in conf.nodes if node.name not in here]
    report.present["nodes"] += len(conf.nodes) - len(new)
    report.copied["nodes"] += len(new)
    limited = [part for part in conf.partitions if set(part.nodes) != {node.name for node in conf.nodes}]
    usable = _add_properties(tx, new, limited, report)
    rows = _rows(tx, new, limited, usable)
    if rows:
        resources.add(tx, rows, at=at)
    report.copied["resources"] += len(rows)
    _add_queues(tx, conf.partitions, report)
    report.no_place += [f"slurm.conf: the file {name} that it includes was not read." for name in conf.includes]


def _add_properties(
    tx: Tx, nodes: Sequence[ConfNode], limited: Sequence[ConfPartition], report: ImportCounts
) -> frozenset[str]:
    """Add what nodes are described by; return the names of features and partitions that properties can have."""
    wanted: dict[str, type] = {"core": int, "mem": int, "gpu": int, "gpu_model": str}
    words = {feature for node in nodes for feature in node.features}
    wanted |= dict.fromkeys([*sorted(words), *(_PARTITION + part.name for part in limited)], str)
    usable = set()
    for name, kind in wanted.items():
        try:
            report.copied["properties"] += properties.add(tx, name, kind)
            usable.add(name)
        except OarlockError as refused:
            report.no_place.append(f"slurm.conf, `{name}`: {refused}")
    return frozenset(usable)


def _rows(
    tx: Tx, nodes: Sequence[ConfNode], limited: Sequence[ConfPartition], usable: Collection[str]
) -> list[dict[str, Value]]:
    types = properties.types(tx)
    column = properties.clause(types).c
    core = int(tx.execute(select(func.max(column.core))).scalar() or 0)
    gpu = int(tx.execute(select(func.max(column.gpu))).scalar() or 0)
    rows = []
    for node in nodes:
        described: dict[str, Value] = {feature: YES for feature in node.features if feature in usable}
        for part in limited:
            if (name := _PARTITION + part.name) in usable:
                described[name] = YES if node.name in part.nodes else NO
        if node.memory_mb:
            described["mem"] = round(node.memory_mb / _MB_OF_GB)
        if node.gpu_model:
            described["gpu_model"] = node.gpu_model
        for number in range(max(node.cpus, 1)):
            core += 1
            own: dict[str, Value] = {"network_address": node.name, "core": core, "cpuset": str(number)}
            if node.gpus:
                own["gpu"] = gpu + 1 + number * node.gpus // max(node.cpus, 1)
            if node.down:
                own["state"] = "Absent"
            rows.append(own | described)
        gpu += node.gpus
    return rows


def _add_queues(tx: Tx, partitions: Sequence[ConfPartition], report: ImportCounts) -> None:
    here = set(tx.execute(select(queues.c.queue_name)).scalars())
    for part in partitions:
        report.present["queues"] += part.name in here
        if part.name not in here:
            administration.add_queue(tx, Queue(part.name, part.priority, _POLICY, active=part.up))
            report.copied["queues"] += 1
        if part.limits:
            report.no_place.append(f"partition {part.name}: {' '.join(part.limits)} (an admission rule or a quota).")


def restrict_to_partitions(conf: SlurmConf) -> str:
    """Return admission rules in TOML that keep jobs of a queue on the nodes of its partition, as a draft."""
    everything = {node.name for node in conf.nodes}
    return "\n".join(
        f'[[rule]]\nname = "partition {part.name}"\nwhen = "queue = \'{part.name}\'"\n'
        f"add_constraint = \"{_PARTITION}{part.name} = 'YES'\"\n"
        for part in conf.partitions
        if set(part.nodes) != everything
    )


def write_past(tx: Tx, past: Sequence[SourceJob], report: ImportCounts) -> None:
    """Write jobs that are over and not here yet; they are accounted by the server's next look."""
    new = _not_here(tx, past)
    report.present["jobs"] += len(past) - len(new)
    report.copied["jobs"] += len(new)
    cluster_copy.write_jobs(tx, new)
    ran = [job.id for job in new if job.resources]
    if ran:
        tx.execute(update(jobs).where(id_in(tx.dialect.name, jobs.c.job_id)).values(accounted="NO"), bind_ids(tx, ran))
    if new:
        skip_ids(tx, jobs.c.job_id, max(job.id for job in new))


def _not_here(tx: Tx, past: Sequence[SourceJob]) -> list[SourceJob]:
    job = jobs.c
    query = select(job.job_id, job.job_user, job.submission_time).where(id_in(tx.dialect.name, job.job_id))
    rows = tx.execute(query, bind_ids(tx, [job_row.id for job_row in past]))
    here = {row.job_id: (row.job_user, row.submission_time) for row in rows}
    for job_row in past:
        if here.get(job_row.id, (job_row.user, job_row.submitted)) != (job_row.user, job_row.submitted):
            raise Conflict(
                f"Job {job_row.id} of {here[job_row.id][0]} is here already, and Slurm's is of {job_row.user}.",
                hint="Import before the first job of this instance, or into another job_row: nothing was changed.",
            )
    return [job_row for job_row in past if job_row.id not in here]
