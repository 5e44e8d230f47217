"""Launch: from assigned resources to the running command, or back to Waiting when that fails before it ran."""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission import frontend
from oarlock.job.admission.private_key import fingerprint_of
from oarlock.job.run import share, unknown_users
from oarlock.job.run.blame import BEFORE_JOB
from oarlock.job.run.effects import Effect, LaunchAttempt, ReachNodes, ScheduleAgain
from oarlock.job.run.reports import Hello, NotLaunched, Started
from oarlock.job.run.share import NodeCapacity
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.model.event import EVENTS, Blame, EventType
from oarlock.model.job import Job, JobKind, JobState, Reservation, output_file
from oarlock.model.job_type import parse_types
from oarlock.model.resource import DEFAULT_TYPE, DESKTOP_PROPERTY, Resource, Value
from oarlock.node.wire.messages import GENERATED, OTHER, Launch, SiteHooks
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import attempts, files, job_keys, jobs, resources, shapes, user_records
from oarlock.store.queries.attempts import Attempt
from oarlock.store.queries.files import StoredFile
from oarlock.store.queries.job_keys import JobKey

MOST_ATTEMPTS = 3
_NO_NODE = "none of its resources is on a node"
WAITS_FOR_ACCOUNT = "waits for its account"
"""The outcome of an attempt that does not count: the user was not found."""

_HELD = " (held: "

WAITS_FOR_SITE = "waits for the site"
"""The outcome of an attempt that does not count: a program of the site failed."""


Hosts = Mapping[str, Hello]
"""Nodes that were reached, by name, with what they said of themselves."""


@dataclass(frozen=True, slots=True)
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
        return tuple(dict.fromkeys(str(resource.properties["network_address"]) for resource in self.computing()))

    def computing(self) -> list[Resource]:
        return [
            resource
            for resource in self.resources
            if resource.properties["type"] == DEFAULT_TYPE and resource.properties["network_address"]
        ]

    def on(self, node: str) -> list[Resource]:
        """Return the resources of one node."""
        return [resource for resource in self.computing() if resource.properties["network_address"] == node]

    def is_desktop(self, node: str) -> bool:
        """Return whether a node fetches its jobs itself, and shares neither directories nor programs with the site."""
        return any(resource.properties.get(DESKTOP_PROPERTY) == "YES" for resource in self.on(node))

    def gpus_on(self, node: str, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the GPUs of a node that are the job's own, and those that are not."""
        there = [
            resource.properties.get(name)
            for resource in self.resources
            if resource.properties["network_address"] == node
        ]
        own = share.gpu_numbers(there)
        return own, tuple(sorted(set(self.gpus.get(node, ())).difference(own)))


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
            _put_back(unit, job, "a job that this database does not know runs on its resources")
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
    _put_back(unit, job, says)
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
    launches = [_launch(job, attempt, place, allocation, hosts, context) for place in attempt.nodes]
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
) -> Launch:
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
        nodes=_node_file(allocation.resources, config),
        resources=tuple(dict(resource.properties) for resource in allocation.resources),
        gpus=own,
        other_gpus=() if on_frontend else others,
        **_stage_in(allocation.archive, config),
        **(_stage_out(config) if is_desktop else {}),
        environment=_environment(job.environment),
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


def started(unit: UnitOfWork, report: Started) -> None:
    """Note that the user's command runs."""
    attempt = unit.open_attempt(report.job, report.attempt)
    if attempt is None or attempt.started_us is not None or report.node != attempt.nodes[0].name:
        return
    unit.context.failures.started(report.node)
    job = unit.jobs[report.job]
    if report.key:
        _store_generated(unit, report)
    if attempt.number > 1:
        user_records.remove_doubts(unit.tx, job.user)
    unit.update_attempt(attempt, started_us=unit.us(report.at))
    unit.context.programs.worked(BEFORE_JOB)
    if job.state is JobState.LAUNCHING:
        message = unknown_users.message_without(job)
        unit.move(report.job, JobState.RUNNING, f"its command runs on {report.node}", message=message)


def _store_generated(unit: UnitOfWork, report: Started) -> None:
    """Store the public half of the pair that the first node made; what is no key changes nothing."""
    try:
        fingerprint = fingerprint_of(report.key)
    except (ValueError, IndexError):
        return
    job_keys.set_generated(unit.tx, report.job, JobKey(fingerprint, report.key))


def failed(unit: UnitOfWork, report: NotLaunched) -> None:
    """Requeue a job that certainly did not run; after several attempts, or where no retry helps, end it.

    Places on other nodes were given back by whoever carried the launch out.
    """
    job = unit.jobs.get(report.job)
    if job is None or job.state not in {JobState.TO_LAUNCH, JobState.LAUNCHING}:
        return
    attempt = unit.open_attempt(report.job, report.attempt)
    if attempt is None and (report.attempt or job.state is JobState.LAUNCHING):
        return
    blame = note_failure(unit, report.event, report.says, job.id, report.hosts, cause=report.cause)
    if attempt is not None:
        unit.close(unit.update_attempt(attempt, outcome=outcome_of(report.event, blame, "not launched")))
    host = "".join(report.hosts[:1])
    requeue(unit, job, report.event, report.says, tries=report.attempt, host=host, blame=blame)


def note_failure(
    unit: UnitOfWork, event: EventType, says: str, job_id: int, hosts: Sequence[str], *, cause: str
) -> Blame:
    """Note why a launch failed; a job whose user is not found is noted once, however often it is tried."""
    if event not in unknown_users.NOT_FOUND or not unit.has_event(job_id, event):
        return unit.event(event, says, job_id, hosts, cause=cause)
    return EVENTS[event].blame


def outcome_of(event: EventType, blame: Blame, otherwise: str) -> str:
    """Return how an attempt ended that did not start because of an event."""
    if event in unknown_users.NOT_FOUND:
        return WAITS_FOR_ACCOUNT
    return WAITS_FOR_SITE if blame is Blame.SITE else otherwise


def requeue(
    unit: UnitOfWork,
    job: Job,
    event: EventType,
    says: str,
    *,
    tries: int,
    host: str = "",
    blame: Blame = Blame.NODE,
) -> None:
    """Return a job to Waiting without resources, hold it, or end it in Error.

    `host`: where the user was not found; empty: on the server.
    """
    if blame is Blame.SITE:
        _release_held(unit)
    if unit.is_being_killed(job.id):
        unit.move(job.id, JobState.ERROR, "it was to end before it started", message=says)
        return
    if event in unknown_users.NOT_FOUND:
        doubt = unknown_users.postpone(unit, job.user, host, event, says)
        if doubt is not None:
            _put_back(unit, job, says, message=unknown_users.message(job, doubt))
            unit.add_effects(ScheduleAgain(doubt.until))
            return
    if blame is Blame.USER and event is EventType.PROLOGUE_ERROR:
        _hold(unit, job, says)
    elif _is_hopeless(unit, job, event, tries):
        unit.event(EventType.SWITCH_INTO_ERROR_STATE, f"it could not be launched: {says}", job.id)
        unit.move(job.id, JobState.ERROR, f"it could not be launched: {says}", message=says)
    else:
        _put_back(unit, job, says)


def _is_hopeless(unit: UnitOfWork, job: Job, event: EventType, tries: int) -> bool:
    """Return whether a job that could not be launched is not tried again."""
    types = parse_types(job.types)
    if types.permissive and types.frontend is None:
        return True  # it asked for nodes that may not answer, and would get the same ones again
    return not EVENTS[event].copy or (tries >= MOST_ATTEMPTS and _failed_attempts(unit, job) >= MOST_ATTEMPTS)


def _put_back(unit: UnitOfWork, job: Job, says: str, **changes: str) -> None:
    jobs.unassign(unit.tx, [job.assigned])
    unit.move(
        job.id, JobState.WAITING, f"the launch failed: {says}", assigned=0, start=_requested_start(job), **changes
    )


def _hold(unit: UnitOfWork, job: Job, says: str) -> None:
    """Hold a job that would fail anywhere, with the reason and the way on."""
    reason = f"{says}; `oarresume {job.id}` tries again"
    _put_back(unit, job, says)
    unit.event(EventType.HOLD_WAITING_JOB, f"held: {reason}", job.id)
    unit.move(job.id, JobState.HOLD, f"held: {reason}", message=f"{message_without_hold(job)}{_HELD}{reason})")
    unit.context.programs.held.add(job.id)


def message_without_hold(job: Job) -> str:
    """Return the message of a job without the reason why the server held it."""
    return job.message.partition(_HELD)[0]


def _release_held(unit: UnitOfWork) -> None:
    """Return jobs to Waiting that were held for what has turned out to be the site's fault."""
    ids = unit.context.programs.held
    if not ids:
        return
    unit.load(set(ids) - unit.jobs.keys())
    for job in [unit.jobs[number] for number in sorted(ids) if number in unit.jobs]:
        if job.state is JobState.HOLD and _HELD in job.message:
            unit.event(EventType.RESUME_JOB, "it was not the job's fault", job.id)
            message = message_without_hold(job)
            unit.move(job.id, JobState.WAITING, "it was not the job's fault", message=message)
    ids.clear()


def _failed_attempts(unit: UnitOfWork, job: Job) -> int:
    """Count the attempts of a job but those that waited for its account or the site; the last may not be written."""
    last = unit.attempts[job.id]
    before = [attempt for attempt in attempts.of_jobs(unit.tx, [job.id]) if attempt.number < last.number]
    return sum(attempt.outcome not in {WAITS_FOR_ACCOUNT, WAITS_FOR_SITE} for attempt in (*before, last))


def _requested_start(job: Job) -> int:
    """Return the date that a reservation requested; other jobs have none until they start."""
    return 0 if job.reservation is Reservation.NONE else job.start
