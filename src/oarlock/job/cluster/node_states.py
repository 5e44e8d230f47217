"""Node states: requested states, health checks and healing, and their consequences for jobs."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from oarlock.config import Config
from oarlock.job.cluster import desktops
from oarlock.job.run import finish, kill, recover, site_programs
from oarlock.job.run.effects import CheckNodes, Effect, HealNodes, ScheduleAgain
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import NodeReachable, NodesChecked, NodesHealed
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork, of_hosts
from oarlock.model.event import EventType
from oarlock.model.job import HOLDS_RESOURCES, Job
from oarlock.model.job_type import JobType
from oarlock.model.resource import DEFAULT_TYPE, DESKTOP_PROPERTY, NextState, Resource, ResourceState
from oarlock.node.wire.messages import UNUSABLE
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import attempts, jobs
from oarlock.store.queries.site import administration

_LEAVES = frozenset({ResourceState.ABSENT, ResourceState.DEAD})
_CLOCK_SECONDS = 10  # less may be the time that a node takes to answer
_STAY = frozenset({JobType.NOOP, JobType.COSYSTEM})


def apply(tx: Tx, context: StepContext, *, now: float) -> list[Effect]:
    """Put resources into the states that were asked for; going Absent or Dead ends the jobs there."""
    requested = resources.requested_states(tx)
    if not requested:
        return []
    groups: dict[tuple[ResourceState, bool], list[int]] = {}
    for number, next_state, by_check in requested:
        groups.setdefault((ResourceState(next_state.value), by_check), []).append(number)
    leaving: list[int] = []
    for (state, by_check), ids in groups.items():
        resources.set_state(tx, ids, state, at=int(now), by_check=by_check)
        leaving += ids if state in _LEAVES else []
    return [*_end_jobs_on(tx, context, leaving, now=now), ScheduleAgain()]


def _end_jobs_on(tx: Tx, context: StepContext, ids: Collection[int], *, now: float) -> list[Effect]:
    there = [job for job in jobs_on(tx, ids) if not _STAY & set(job.types)]
    unit = UnitOfWork(tx, context, now, [job.id for job in there])
    kill.end_all(unit, [job.id for job in there], "its resources are taken out of use")
    return unit.write()


def jobs_on(tx: Tx, ids: Collection[int]) -> list[Job]:
    """Return the jobs that hold one of these resources."""
    if not ids:
        return []
    holding = jobs.in_states(tx, HOLDS_RESOURCES)
    given = jobs.resources_of(tx, [job.id for job in holding])
    return [job for job in holding if not set(ids).isdisjoint(given.get(job.id, ()))]


def node_reachable(unit: UnitOfWork, report: NodeReachable, finished: FinishedAttempts) -> None:
    """Apply that a node answers: suspicion by the node check is cleared; what ran before a reboot is over."""
    finished.boots[report.node] = report.hello.boot
    recover.compare_generation(unit, report.node, report.hello)
    recover.compare_attempts(unit, report.node, report.unknown)
    # Of reports that are applied together, one that it did not answer may come before.
    forgiven = bool(clear_suspicion(unit.tx, [report.node], at=unit.now)) | unit.take_back_suspicion(report.node)
    if report.is_desktop:
        desktops.returned(unit.tx, report.node, now=unit.now)
    if forgiven or report.is_desktop:
        unit.add_effects(ScheduleAgain())
    _compare_clocks(unit, report, finished)
    if report.hello.unusable:
        _note_unusable(unit, _unusable_on(unit, report), (report.node,))
    for attempt in attempts.live(unit.tx):
        for place in attempt.nodes:
            if place.name == report.node and place.boot_id and place.boot_id != report.hello.boot:
                unit.load([attempt.job_id])
                why = f"{report.node} was started again while the job was there"
                finish.attempt_lost(unit, attempt, report.node, finished, why)


def _compare_clocks(unit: UnitOfWork, report: NodeReachable, finished: FinishedAttempts) -> None:
    """Note that the clock of a node is wrong or right again: once, until it is wrong by another amount."""
    ahead = round(report.ahead) if abs(report.ahead) >= _CLOCK_SECONDS else 0
    before = finished.clocks.get(report.node, 0)
    if abs(ahead - before) < _CLOCK_SECONDS:
        return
    finished.clocks[report.node] = ahead
    word = "ahead of" if ahead > 0 else "behind"
    state = f"{abs(ahead)} s {word} the server's" if ahead else "right again"
    unit.event(EventType.NODE_CLOCK_WRONG, f"the clock of {report.node} is {state}", None, (report.node,))


def stop_for_programs(
    tx: Tx, context: StepContext, unusable: Sequence[tuple[EventType, str]], *, now: float
) -> list[Effect]:
    """Stop the queues because programs of the site cannot be run here; one event, until they are started again."""
    unit = UnitOfWork(tx, context, now)
    _note_unusable(unit, unusable, ())
    return unit.write()


def _unusable_on(unit: UnitOfWork, report: NodeReachable) -> list[tuple[EventType, str]]:
    """List the programs of the site that a node cannot run, by their events."""
    reasons = report.hello.unusable
    return [
        (program.event, f"{program.key} on {report.node}: {reasons[program.path]}")
        for program in site_programs.on_nodes(unit.config)
        if program.event is not None and program.path in reasons
    ]


def _note_unusable(unit: UnitOfWork, unusable: Sequence[tuple[EventType, str]], hosts: tuple[str, ...]) -> None:
    if any(queue.active for queue in administration.all_queues(unit.tx)):
        for kind, why in unusable:
            unit.event(kind, why, None, hosts, cause=UNUSABLE)


def clear_suspicion(tx: Tx, hosts: Collection[str], *, at: int) -> list[int]:
    """Make the resources Alive that only the node check had suspected."""
    forgiven = [
        resource.id
        for resource in resources.listed(tx, of_hosts(tx, hosts))
        if resource.properties["state"] == ResourceState.SUSPECTED and resource.properties["finaud_decision"] == "YES"
    ]
    if forgiven:
        resources.set_state(tx, forgiven, ResourceState.ALIVE, at=at, by_check=True)
    return forgiven


def suspect_unreachable(unit: UnitOfWork, silent: Mapping[str, str]) -> None:
    """Suspect nodes that do not answer; one event each, as long as it stays so. Desktops have a date instead."""
    for node, why in silent.items():
        alive = [
            resource.id
            for resource in resources.listed(unit.tx, of_hosts(unit.tx, [node]))
            if resource.properties["state"] == ResourceState.ALIVE and resource.properties[DESKTOP_PROPERTY] != "YES"
        ]
        if alive:
            unit.event(EventType.PING_CHECKER_NODE_SUSPECTED, f"{node} does not answer: {why}", None, (node,))
            unit.add_effects(ScheduleAgain())


def suspect_expired(unit: UnitOfWork) -> None:
    """Suspect the Alive resources whose `expiry_date` has passed; whoever sets a later one makes them Alive again."""
    expired = resources.expired(unit.tx, now=unit.now)
    for node, ids in expired.items():
        says = f"the expiry_date of resources of {node or 'no node'} has passed: {', '.join(map(str, ids))}"
        unit.event(EventType.LOG_SUSPECTED, says, None, (node,) if node else ())
        resources.set_state(unit.tx, ids, ResourceState.SUSPECTED, at=unit.now)
    if expired:
        unit.add_effects(ScheduleAgain())


def nodes_to_check(tx: Tx, config: Config) -> list[Effect]:
    """Return which nodes to check: those Alive, and those that only this check suspects; not busy ones, as a rule."""
    busy: set[int] = set()
    if not config.check_nodes_with_running_job:
        holding = jobs.in_states(tx, HOLDS_RESOURCES)
        busy = {resource for ids in jobs.resources_of(tx, [job.id for job in holding]).values() for resource in ids}
    listed = resources.listed(tx)
    at_work = {resource.properties["network_address"] for resource in listed if resource.id in busy}
    names = {str(resource.properties["network_address"]) for resource in listed if _is_checked(resource)} - at_work
    wanted = tuple(sorted(str(name) for name in names if name))
    return [CheckNodes(wanted)] if wanted else []


def alive_nodes(tx: Tx) -> list[str]:
    """Return the names of the nodes that are Alive; without those that connect by themselves."""
    alive = {"state": ResourceState.ALIVE, "type": DEFAULT_TYPE, "desktop_computing": "NO"}
    names = {
        str(resource.properties["network_address"])
        for resource in resources.listed(tx)
        if all(resource.properties[name] == value for name, value in alive.items())
    }
    return sorted(names - {""})


def _is_checked(resource: Resource) -> bool:
    values = resource.properties
    if values["type"] != DEFAULT_TYPE or values[DESKTOP_PROPERTY] == "YES":
        return False
    if values["next_state"] != NextState.UNCHANGED:
        return False
    by_check = values["finaud_decision"] == "YES"
    return values["state"] == ResourceState.ALIVE or (values["state"] == ResourceState.SUSPECTED and by_check)


def nodes_checked(unit: UnitOfWork, report: NodesChecked) -> None:
    """Act on the answers. States may have changed while nodes were asked: only Alive ones become Suspected."""
    if clear_suspicion(unit.tx, list(report.answered), at=unit.now):
        unit.add_effects(ScheduleAgain())
    suspect_unreachable(unit, report.silent)


_DAY = 86400
_AT_ONCE = 25  # nodes of one run: where a switch fails, the program is not run for a whole cluster at once


def heal_suspected(unit: UnitOfWork) -> None:
    """Request the site's program for Suspected nodes for which it has not run since they are Suspected.

    The event is written before the program runs and stands for the run: a server that dies in between leaves one out,
    and no node is healed twice for one suspicion.
    """
    if unit.config.suspected_healing_exec_file is None:
        return
    suspected = _suspected_nodes(unit)
    if not suspected:
        return
    begins = resources.states_since(unit.tx)
    since = {name: min(begins.get(part.id, unit.now) for part in parts) for name, parts in suspected.items()}
    due = sorted(set(suspected) - _healed_already(unit, since))[:_AT_ONCE]
    if due:
        says = f"the site's healing program runs for {', '.join(due)}"
        unit.event(EventType.NODE_HEALING, says, None, due)
        unit.add_effects(HealNodes(tuple((part.id, name) for name in due for part in suspected[name])))


def _suspected_nodes(unit: UnitOfWork) -> dict[str, list[Resource]]:
    nodes: dict[str, list[Resource]] = {}
    for resource in resources.listed(unit.tx):
        name = str(resource.properties["network_address"] or "")
        if name and resource.properties["state"] == ResourceState.SUSPECTED:
            nodes.setdefault(name, []).append(resource)
    return nodes


def _healed_already(unit: UnitOfWork, since: Mapping[str, int]) -> set[str]:
    """Return the nodes for which the program ran since they are Suspected, or as often as allowed in a day."""
    recent = unit.now - _DAY
    runs = events.dates_of_hosts(unit.tx, EventType.NODE_HEALING, list(since), since=min(recent, *since.values()))
    today = Counter(name for name, at in runs if at > recent)
    limit = unit.config.suspected_healing_limit
    return {name for name, at in runs if at >= since[name]} | {name for name in today if 0 < limit <= today[name]}


def nodes_healed(unit: UnitOfWork, report: NodesHealed) -> None:
    """Note that the site's program could not heal nodes; they stay Suspected either way until they are Alive again."""
    if report.problem:
        unit.event(EventType.NODE_HEALING_ERROR, report.problem, None, report.nodes)
