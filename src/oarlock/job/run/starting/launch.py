"""Launch: from assigned resources to attempts on nodes, and what each of these is to run."""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission import frontend
from oarlock.job.run.effects import Effect, LaunchAttempt, ReachNodes
from oarlock.job.run.reports import Hello
from oarlock.job.run.starting import share
from oarlock.job.run.starting.launch_result import put_back
from oarlock.job.run.starting.share import NodeCapacity
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.job import Job, JobKind, JobState, Reservation, output_file
from oarlock.model.job_type import parse_types
from oarlock.model.resource import DEFAULT_TYPE, DESKTOP_PROPERTY, Resource, Value
from oarlock.node.wire.messages import GENERATED, OTHER, Launch, ResourceLines, SiteHooks
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import attempts, files, job_keys, jobs, shapes
from oarlock.store.queries.job.attempts import Attempt
from oarlock.store.queries.job.files import StoredFile
from oarlock.store.queries.job.job_keys import JobKey

_NO_NODE = "none of its resources is on a node"

Hosts = Mapping[str, Hello]
"""Nodes that were reached, by name, with what they said of themselves."""


@dataclass(frozen=True)
class JobAllocation:
    """The allocation of a job: its resources, the walltime of the chosen alternative, and the sizes of its nodes."""

    resources: tuple[Resource, ...]
    walltime: int
    sizes: Mapping[str, int]  # node → how many resources it has
    gpus: Mapping[str, Collection[int]]  # node → the numbers of its GPUs
    archive: StoredFile | None = None  # what is unpacked on each node first

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the job, the one where its command runs first."""
        return tuple(map(str, self._computing_by_node))

    def computing(self) -> list[Resource]:
        return [
            resource
            for resource in self.resources
            if resource.properties["type"] == DEFAULT_TYPE and resource.properties["network_address"]
        ]

    def on(self, node: str) -> list[Resource]:
        """Return the resources of one node."""
        return self._computing_by_node.get(node, [])

    def is_desktop(self, node: str) -> bool:
        """Return whether a node fetches its jobs itself, and shares neither directories nor programs with the site."""
        return any(resource.properties.get(DESKTOP_PROPERTY) == "YES" for resource in self.on(node))

    def gpus_on(self, node: str, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the GPUs of a node that are the job's own, and those that are not."""
        own = share.gpu_numbers(resource.properties.get(name) for resource in self._by_node.get(node, ()))
        return own, tuple(sorted(set(self.gpus.get(node, ())).difference(own)))

    # Each node of a job asks: without these, the launch of a job would take the square of its width.

    @cached_property
    def _by_node(self) -> dict[Value, list[Resource]]:
        return _grouped(self.resources)

    @cached_property
    def _computing_by_node(self) -> dict[Value, list[Resource]]:
        return _grouped(self.computing())


def _grouped(resources: Iterable[Resource]) -> dict[Value, list[Resource]]:
    groups: dict[Value, list[Resource]] = {}
    for resource in resources:
        groups.setdefault(resource.properties["network_address"], []).append(resource)
    return groups


def begin_reached(tx: Tx, context: StepContext, ids: Collection[int], hosts: Hosts, *, now: float) -> list[Effect]:
    """Begin the launch of jobs that are toLaunch; those that were moved meanwhile are left alone."""
    unit = UnitOfWork(tx, context, now, ids)
    starting = [job for job in unit.jobs.values() if job.state is JobState.TO_LAUNCH]
    begin(unit, starting, jobs.resources_of(tx, [job.id for job in starting]), hosts)
    return unit.write()


def begin(unit: UnitOfWork, starting: Sequence[Job], assigned: Mapping[int, Collection[int]], hosts: Hosts) -> None:
    """Store an attempt of each job and return the effect that launches it, once its nodes answer.

    Nodes without a connection are reached first (`ReachNodes`): an attempt names the boot it belongs to.
    """
    if not starting:
        return
    allocated = allocations(unit.tx, starting, assigned, gpu=unit.config.job_gpu_property)
    ready: list[tuple[Job, tuple[str, ...]]] = []
    unknown: dict[tuple[str, ...], list[int]] = {}
    for job in starting:
        nodes = _nodes(job, allocated[job.id], unit.config)
        if parse_types(job.types).noop:
            unit.move(job.id, JobState.LAUNCHING, "nothing is launched for a noop job")
            unit.move(job.id, JobState.RUNNING, "it runs nothing")
        elif not nodes:
            nowhere = "this site has no frontend" if parse_types(job.types).frontend else _NO_NODE
            unit.event(EventType.RESERVATION_NO_NODE, nowhere, job.id)
            unit.move(job.id, JobState.ERROR, nowhere)
        elif job.file_id is not None and allocated[job.id].archive is None:
            _without_archive(unit, job)
        elif _is_held(unit, job, assigned.get(job.id, ()), nodes):
            put_back(unit, job, "a job that this database does not know runs on its resources")
        elif _names_no_cpus(unit, job, allocated[job.id]):
            continue
        elif all(node in hosts for node in nodes):
            ready.append((job, nodes))
        else:
            unknown.setdefault(nodes, []).append(job.id)
    unit.add_effects(*(ReachNodes(tuple(ids), nodes) for nodes, ids in unknown.items()))
    _open(unit, ready, allocated, hosts)


def _without_archive(unit: UnitOfWork, job: Job) -> None:
    """End a job whose archive somebody has removed from the database."""
    says = f"its archive {job.file_id} is gone from the server"
    unit.event(EventType.STAGE_IN_ERROR, says, job.id)
    unit.move(job.id, JobState.ERROR, says, message=says)


def _is_held(unit: UnitOfWork, job: Job, assigned: Collection[int], nodes: Collection[str]) -> bool:
    """Return whether a node was found, since the job was planned, to run an unknown job on what it was given.

    An accepted reservation keeps its promise: the scheduler could give it no other place.
    """
    if unit.context.lineage.unknown_nodes.isdisjoint(nodes) or job.reservation is not Reservation.NONE:
        return False
    return any(not ids.isdisjoint(assigned) for ids in attempts.held_by_unknown(unit.tx).values())


def _names_no_cpus(unit: UnitOfWork, job: Job, allocation: JobAllocation) -> bool:
    """Requeue a job if the CPUs of one of its resources cannot be read: it would run on all CPUs of the node.

    Only what was written past the server, or the text of another property, can be wrong.
    """
    field = unit.config.job_resource_manager_property_db_field
    wrong = share.wrong_cpus(allocation.computing(), field)
    if wrong is None or parse_types(job.types).frontend:
        return False
    resource, why = wrong
    says = f"`{field}` of resource {resource.id}: {why}; correct it with `oarnodesetting -r {resource.id} -p {field}=…`"
    unit.event(EventType.CPUSET_ERROR, says, job.id, (str(resource.properties["network_address"]),))
    put_back(unit, job, says)
    return True


def _open(
    unit: UnitOfWork, ready: Sequence[tuple[Job, tuple[str, ...]]], allocated: Mapping[int, JobAllocation], hosts: Hosts
) -> None:
    new = []
    keys = job_keys.of_jobs(unit.tx, [job.id for job, _ in ready]) if ready else {}
    for job, nodes in ready:
        before = unit.attempts.get(job.id)
        attempt = Attempt(
            job_id=job.id,
            number=before.number + 1 if before else 1,
            secret_hash="",
            nodes=tuple(_place(job, node, allocated[job.id], hosts[node], unit.config) for node in nodes),
            opened_us=unit.us(),
            generation=unit.context.lineage.generation,
            nonce=secrets.token_hex(8),
        )
        digest = hashlib.sha256(unit.context.secret(attempt).encode()).hexdigest()
        new.append(replace(attempt, secret_hash=digest))
    for attempt in attempts.begin(unit.tx, new) if new else ():
        unit.attempts[attempt.job_id] = attempt
        job = unit.move(attempt.job_id, JobState.LAUNCHING, f"attempt {attempt.number} begins")
        effect = launch_effect(job, attempt, allocated[job.id], hosts, unit.context)
        unit.add_effects(_with_key(effect, keys[job.id]) if job.id in keys else effect)


def _place(job: Job, node: str, allocation: JobAllocation, hello: Hello, config: Config) -> attempts.AttemptNode:
    """Describe a node of an attempt, with the memory that the job may use there."""
    if parse_types(job.types).frontend:
        return attempts.AttemptNode(node, hello.boot, frontend.limits(config).memory)
    return attempts.AttemptNode(
        node, hello.boot, share.memory(allocation.on(node), allocation.sizes.get(node, 0), hello, config)
    )


def launch_effect(
    job: Job, attempt: Attempt, allocation: JobAllocation, hosts: Hosts, context: StepContext
) -> LaunchAttempt:
    """Return the effect that launches an attempt, with the message for each node."""
    shared = {
        "nodes": _node_file(allocation.resources, context.config),
        "resources": ResourceLines(dict(resource.properties) for resource in allocation.resources),
        "environment": _environment(job.environment),
    }
    launches = [_launch(job, attempt, place, allocation, hosts, context, shared) for place in attempt.nodes]
    first, *others = zip((place.name for place in attempt.nodes), launches, strict=True)
    return LaunchAttempt(first, tuple((node, launch._replace(role=OTHER, command="")) for node, launch in others))


def _with_key(effect: LaunchAttempt, key: JobKey) -> LaunchAttempt:
    """Return a launch with the key of its job: one that was brought, by its fingerprint, or one to be made."""
    name = key.fingerprint if key.is_imported else GENERATED
    others = tuple((node, launch._replace(key=name)) for node, launch in effect.others)
    return LaunchAttempt((effect.first[0], effect.first[1]._replace(key=name)), others)


def _launch(
    job: Job,
    attempt: Attempt,
    place: attempts.AttemptNode,
    allocation: JobAllocation,
    hosts: Hosts,
    context: StepContext,
    shared: Mapping[str, Any],
) -> Launch:
    """Describe the launch on one node; `shared` is what all nodes of the job are told alike."""
    config = context.config
    on_frontend = parse_types(job.types).frontend is not None
    interactive = job.kind is JobKind.INTERACTIVE
    is_desktop = allocation.is_desktop(place.name)
    own, others = allocation.gpus_on(place.name, config.job_gpu_property)
    machine = NodeCapacity(allocation.sizes.get(place.name, 0), hosts.get(place.name), others)
    return Launch(
        job=job.id,
        attempt=attempt.number,
        secret=context.secret(attempt),
        generation=attempt.generation,
        boot=place.boot_id,
        user=job.user,
        uid=job.uid,
        command=job.command or _keep_resources(allocation.walltime),
        interactive=interactive,
        directory=job.directory,
        stdout="" if interactive else output_file(job.stdout, job, "stdout"),
        stderr="" if interactive else output_file(job.stderr, job, "stderr"),
        walltime=allocation.walltime,
        grace=config.jobdel_softwalltime,
        checkpoint=job.checkpoint,
        checkpoint_signal=job.checkpoint_signal,
        limits=frontend.limits(config)
        if on_frontend
        else share.limits(allocation.on(place.name), machine, config, memory=place.memory),
        hooks=SiteHooks() if is_desktop else _hooks(config, frontend=on_frontend),
        name=job.name or "",
        project=job.project,
        array_id=job.array_id,
        array_index=job.array_index,
        gpus=own,
        other_gpus=() if on_frontend else others,
        **_stage_in(allocation.archive, config),
        **(_stage_out(config) if is_desktop else {}),
        **shared,
    )


def _stage_in(archive: StoredFile | None, config: Config) -> dict[str, Any]:
    """Return the fields of a launch about the job's archive."""
    if archive is None:
        return {}
    return {
        "stage_in": archive.sha256,
        "stage_in_size": archive.size,
        "stage_in_most": config.stagein_max_unpacked << 20,
        "stage_in_timeout": config.stagein_timeout,
    }


def _stage_out(config: Config) -> dict[str, Any]:
    """Return the fields of a launch about what the job will have written."""
    return {"stage_out_most": config.stageout_max_size << 20, "stage_out_timeout": config.stageout_timeout}


def _keep_resources(walltime: int) -> str:
    """Return the command of a reservation that names none: it ends just before its walltime."""
    return f"sleep {max(walltime - 1, 1)}"


def _hooks(config: Config, *, frontend: bool) -> SiteHooks:
    """Name the site's programs; those that confine and suspend look after compute nodes, not after frontends."""
    return SiteHooks(
        prologue=str(config.prologue_exec_file or ""),
        epilogue=str(config.epilogue_exec_file or ""),
        timeout=config.prologue_epilogue_timeout,
        manager="" if frontend else str(config.job_resource_manager_file or ""),
        suspend="" if frontend else str(config.suspend_resume_file or ""),
    )


def _node_file(assigned: Iterable[Resource], config: Config) -> tuple[str, ...]:
    """Return the lines of the node file: one for each value of the distinct property, sorted."""
    lines: dict[tuple[Value, Value], str] = {}
    for resource in assigned:
        if resource.properties["type"] == DEFAULT_TYPE:
            distinct = resource.properties.get(config.node_file_db_field_distinct_values)
            name = resource.properties.get(config.node_file_db_field)
            key = (name, resource.id if distinct is None else distinct)
            lines.setdefault(key, str(name))
    return tuple(sorted(lines.values()))


def _environment(text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        decoded = json.loads(text)
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in decoded.items()} if isinstance(decoded, dict) else {}


def _nodes(job: Job, allocation: JobAllocation, config: Config) -> tuple[str, ...]:
    """Return where a job is launched; the command of deploy and cosystem jobs runs on a frontend only."""
    host = frontend.host(parse_types(job.types), config)
    if host is None:
        return allocation.nodes
    return (host,) if host else ()


def allocations(
    tx: Tx, starting: Sequence[Job], assigned: Mapping[int, Collection[int]], *, gpu: str
) -> dict[int, JobAllocation]:
    """Read about the resources that were assigned to jobs, for all of them at once; `gpu` is the property of GPUs."""
    resource_of = {
        resource.id: resource
        for resource in resources.listed(tx, {number for ids in assigned.values() for number in ids})
    }
    walltimes = shapes.walltimes(tx, [job.assigned for job in starting])
    sizes = resources.sizes(tx)
    has_gpus = any(gpu in resource.properties for resource in resource_of.values())
    gpus = (
        {node: share.gpu_numbers(values) for node, values in resources.values_on_nodes(tx, gpu).items()}
        if has_gpus
        else {}
    )
    archives = files.by_number(tx, numbers) if (numbers := {job.file_id for job in starting if job.file_id}) else {}
    return {
        job.id: JobAllocation(
            tuple(resource_of[number] for number in sorted(assigned.get(job.id, ()))),
            walltimes.get(job.assigned, 0),
            sizes,
            gpus,
            archives.get(job.file_id or 0),
        )
        for job in starting
    }
