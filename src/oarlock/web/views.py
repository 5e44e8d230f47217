"""Views of jobs and resources with OAR's field names, built here and nowhere else."""

import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping

from msgspec import Struct, field

from oarlock.lang import request as requests
from oarlock.model.errors import UnknownJob
from oarlock.model.event import Event, EventType
from oarlock.model.job import FINAL, Job, JobState, filled
from oarlock.model.resource import PROPERTY_ALIASES
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties, resources
from oarlock.store.queries.job import attempts, jobs, listing, shapes
from oarlock.store.queries.job.listing import JobFilter, JobRow
from oarlock.web.identity import Caller

_PRIVATE = frozenset({EventType.USER_MAIL_NOTIFICATION, EventType.USER_EXEC_NOTIFICATION_ERROR})
"""Events that name addresses and programs of `--notify`, which are hidden in jobs as well."""

_HIDDEN = "●●●"
_TELLING_WORD = r"[\w-]{0,40}(?:pass(?:word|wd|phrase)|secret|token|credential|api[_-]?key|access[_-]?key)[\w-]{0,40}"
_SECRETS = (
    re.compile(rf"(?i)((?<![\w-]){_TELLING_WORD}[\"']?\s*[=:]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|)]+)"),
    re.compile(rf"(?i)((?<![\w-])--?{_TELLING_WORD}[ \t]+)(\"[^\"\n]*\"|'[^'\n]*'|\S+)"),
    re.compile(r"(?i)(\bbearer\s+)([^\s\"']+)"),
    re.compile(r"(://[^/\s:@]+:)([^@\s/]+)(?=@)"),
    re.compile(r"((?<!\S)(?:-u|--user)[ =]\S+?:)([^\s\"']+)"),
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(.*?)(?=-----END|\Z)", re.DOTALL),
)

MOST_LISTED = 100_000
"""How many jobs one answer may hold."""


class JobLine(Struct, frozen=True):
    """A job as lists show it. The fields stand in the order of `store.queries.job.listing.JobRow`."""

    id: int = field(name="Job_Id")
    state: str
    owner: str
    queue: str
    name: str | None
    project: str
    message: str
    submitted: int = field(name="submissionTime")
    start: int = field(name="startTime")
    stop: int = field(name="stopTime")
    array_id: int
    exit_code: int | None
    walltime: int | None
    types: list[str]
    scheduled: int | None = field(name="scheduledStart")


class EventView(Struct, frozen=True):
    """Something that happened to a job."""

    id: int
    type: str
    at: int
    description: str
    hosts: tuple[str, ...]
    to_check: bool


class JobView(Struct, frozen=True, kw_only=True):
    """A job with all that is known of it. What its owner alone may see is null for others."""

    id: int = field(name="Job_Id")
    array_id: int
    array_index: int
    name: str | None
    project: str
    owner: str
    job_user: str
    state: str
    queue: str
    command: str | None
    directory: str = field(name="launchingDirectory")
    stdout_file: str
    stderr_file: str
    kind: str = field(name="jobType")
    properties: str
    reservation: str
    walltime: int | None
    submitted: int = field(name="submissionTime")
    start: int = field(name="startTime")
    stop: int = field(name="stopTime")
    scheduled: int | None = field(name="scheduledStart")
    message: str
    initial_request: str | None
    environment: str | None
    wanted_resources: str
    types: tuple[str, ...]
    dependencies: list[int]
    assigned_resources: list[int]
    assigned_network_address: list[str]
    cpuset_name: str | None
    memory_limits: dict[str, int]  # bytes by node, of the last attempt; a node without a limit is left out
    reserved_resources: list[int]
    resubmit_job_id: int
    exit_code: int | None
    checkpoint: int
    checkpoint_signal: int
    notify: str | None
    events: list[EventView]


ResourceView = dict[str, int | str | None]
"""A resource: every column under its own name, and under the name that OAR 2.5 has for it."""


Hopeless = Mapping[int, str]
"""Jobs that the last pass of the scheduler could not place, with the message for their owners."""


def job_lines(tx: Tx, which: JobFilter, hopeless: Hopeless) -> list[JobLine]:
    """Return jobs as lists show them, oldest first; one more than `MOST_LISTED` means that there are too many."""
    return as_lines(listing.rows(tx, which, most=MOST_LISTED + 1), hopeless)


def as_lines(rows: list[JobRow], hopeless: Hopeless) -> list[JobLine]:
    """Return rows as lists show them."""
    if hopeless:
        rows = [row._replace(message=_message(row.id, row.state, row.message, hopeless)) for row in rows]
    return [JobLine(*row[:-1], predicted(row)) for row in rows]


def _message(number: int, state: str, message: str, hopeless: Hopeless) -> str:
    """Return the message of a job: while it waits in vain, why it does."""
    return hopeless.get(number, message) if state == JobState.WAITING else message


def predicted(line: JobRow) -> int | None:
    """Return when a job starts or started, as far as anybody knows; nothing is predicted of a job that is over."""
    return None if line.state in FINAL else line.scheduled


def whole_jobs(tx: Tx, ids: Collection[int], caller: Caller, hopeless: Hopeless) -> list[JobView]:
    """Return jobs with all that this caller may see of them; each must exist (`UnknownJob`)."""
    views = list(each_whole_job(tx, ids, caller, hopeless))
    if missing := set(ids) - {view.id for view in views}:
        raise UnknownJob(min(missing))
    return views


def each_whole_job(tx: Tx, ids: Collection[int], caller: Caller, hopeless: Hopeless) -> Iterator[JobView]:
    """Yield jobs with all that this caller may know of them, oldest first, reading their texts only when asked."""
    lines = {line.id: line for line in listing.rows(tx, JobFilter(ids=ids), most=len(ids))}
    assigned, after = jobs.resources_of(tx, ids), jobs.dependencies(tx, ids)
    wanted = shapes.requests_of(tx, list(ids), properties.types(tx))
    addresses = listing.addresses(tx, {resource for held in assigned.values() for resource in held})
    uids = {} if caller.admin else jobs.uids(tx, ids)
    own = {line.id for line in lines.values() if caller.admin or caller.owns(line.user, uids.get(line.id))}
    readable = lines.keys() if caller.staff else own
    noted, limits = job_events(tx, ids, own), _memory_limits(tx, ids)
    reserved = listing.planned_resources(tx, jobs.not_begun_reservations(tx, ids))
    for job in jobs.iterate(tx, ids):
        yield _job_view(
            job,
            lines[job.id],
            own=job.id in own,
            readable=job.id in readable,
            wanted=requests.show_wanted(wanted[job.id]) if job.id in wanted else "",
            after=after.get(job.id, []),
            held=assigned.get(job.id, []),
            reserved=reserved.get(job.id, []),
            addresses=addresses,
            limits=limits.get(job.id, {}),
            message=_message(job.id, job.state, job.message, hopeless),
            happened=noted.get(job.id, []),
        )


def _memory_limits(tx: Tx, ids: Collection[int]) -> dict[int, dict[str, int]]:
    """Return how much memory the last attempt of each job may use, by node."""
    last = {attempt.job_id: attempt for attempt in attempts.of_jobs(tx, ids)}
    return {
        number: {node.name: node.memory for node in attempt.nodes if node.memory is not None}
        for number, attempt in last.items()
    }


def job_events(tx: Tx, ids: Collection[int], own: Container[int]) -> dict[int, list[EventView]]:
    """Return what happened to jobs, by job, oldest first. `own`: the jobs of which the caller may know everything."""
    views: defaultdict[int, list[EventView]] = defaultdict(list)
    for number, event, to_check in events.of_jobs(tx, ids):
        says = description(event, own=event.job in own)
        views[event.job or 0].append(EventView(number, event.type, event.at, says, event.hosts, to_check))
    return views


def description(event: Event, *, own: bool) -> str:
    """Return what an event says; where it names whom a user has notified of its job, only to that user."""
    return event.description if own or event.type not in _PRIVATE else "Only its owner may read this."


def resource_views(tx: Tx, ids: Collection[int] | None = None) -> list[ResourceView]:
    """Return resources by increasing number: the given ones (each must exist), or all."""
    return [
        {**resource.properties, **{alias: resource.properties[column] for alias, column in PROPERTY_ALIASES.items()}}
        for resource in resources.listed(tx, ids)
    ]


def _job_view(
    job: Job,
    line: JobRow,
    *,
    own: bool,
    readable: bool,
    wanted: str,
    after: list[int],
    held: list[int],
    reserved: list[int],
    addresses: Mapping[int, str],
    limits: dict[str, int],
    message: str,
    happened: list[EventView],
) -> JobView:
    nodes = dict.fromkeys(addresses[resource] for resource in held if resource in addresses)
    return JobView(
        id=job.id,
        array_id=job.array_id,
        array_index=job.array_index,
        name=job.name,
        project=job.project,
        owner=job.user,
        job_user=job.user,
        state=job.state,
        queue=job.queue,
        command=job.command if readable else None,
        directory=job.directory,
        stdout_file=filled(job.stdout, job),
        stderr_file=filled(job.stderr, job),
        kind=job.kind,
        properties=job.properties,
        reservation=job.reservation,
        walltime=line.walltime,
        submitted=job.submitted,
        start=job.start,
        stop=job.stop,
        scheduled=predicted(line),
        message=message,
        initial_request=job.initial_request if own else None,
        environment=job.environment if own else None,
        wanted_resources=wanted,
        types=job.types,
        dependencies=after,
        assigned_resources=held,
        assigned_network_address=[node for node in nodes if node],
        cpuset_name=job.cpuset_name if job.assigned else None,
        memory_limits=limits,
        reserved_resources=reserved,
        resubmit_job_id=job.resubmit_of,
        exit_code=job.exit_code,
        checkpoint=job.checkpoint,
        checkpoint_signal=job.checkpoint_signal,
        notify=job.notify if own else None,
        events=happened,
    )


def masked(text: str) -> str:
    """Hide what looks like a password, a token or a key in a command line or a script."""
    for pattern in _SECRETS:
        text = pattern.sub(rf"\1{_HIDDEN}", text)
    return text
