"""Power: idle nodes are put to sleep; woken ones are Alive when they answer, else Suspected."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.job.run.effects import ScheduleAgain, SleepNodes, WakeNodes
from oarlock.job.run.reports import NodesWoken
from oarlock.job.run.unit_of_work import UnitOfWork, of_hosts
from oarlock.lang import where as conditions
from oarlock.model.condition import Condition
from oarlock.model.errors import OarlockError
from oarlock.model.event import EventType
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.resource import DEFAULT_TYPE, NextState, Resource, ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import jobs
from oarlock.store.queries.planning import plans

_FOR_EVER = 2**31 - 1  # what sites write for "always"


@dataclass(frozen=True, slots=True)
class _NodePower:
    """Nodes by what can be done with them: `idle` ones have no job now or soon, `sleepy` ones had none for long."""

    parts: Mapping[str, list[Resource]]  # node → its resources that compute
    idle: frozenset[str]
    sleepy: frozenset[str]
    asleep: frozenset[str]  # those that can be woken and are not wanted by a job, for which they are woken anyway


def manage_power(unit: UnitOfWork) -> None:
    """Put nodes to sleep that had nothing to do for long enough and will have nothing for long enough.

    The plan says what they will have to do: a node that would have to be woken again at once is left awake. Those that
    go are Absent before the command runs, so that no job starts on a node that goes down. Where fewer nodes are idle
    than shall be kept awake, others are woken.
    """
    config = unit.config
    if not (config.scheduler_node_manager_sleep_cmd or config.scheduler_node_manager_wake_up_cmd):
        return
    nodes = _nodes_by_power(unit)
    classes = [(_members(nodes, condition), count) for condition, count in awake_classes(unit.tx, config)[0]]
    going = _surplus(nodes, classes) if config.scheduler_node_manager_sleep_cmd else set()
    if going:
        resources.set_state(unit.tx, of_hosts(unit.tx, going), ResourceState.ABSENT, at=unit.now)
        unit.add_effects(SleepNodes(tuple(sorted(going))))
    if config.scheduler_node_manager_wake_up_cmd and (missing := _missing(nodes, classes)):
        unit.add_effects(WakeNodes(tuple(sorted(missing))))


def _surplus(nodes: _NodePower, classes: Sequence[tuple[frozenset[str], int]]) -> set[str]:
    """Return the nodes that may sleep: of each class, so many idle ones stay awake."""
    idle = set(nodes.idle)
    # Those that stay are always the first ones by name, so that jobs find them awake.
    for name in sorted(nodes.sleepy, reverse=True):
        if all(name not in members or len(members & idle) > count for members, count in classes):
            idle.discard(name)
    return set(nodes.idle) - idle


def _missing(nodes: _NodePower, classes: Sequence[tuple[frozenset[str], int]]) -> set[str]:
    """Return sleeping nodes of classes that have fewer idle nodes than they should."""
    woken: set[str] = set()
    for members, count in classes:
        lacking = count - len(members & (nodes.idle | woken))
        woken.update(sorted(members & nodes.asleep - woken)[: max(lacking, 0)])
    return woken


def _nodes_by_power(unit: UnitOfWork) -> _NodePower:
    config, now = unit.config, unit.now
    parts: dict[str, list[Resource]] = {}
    for resource in resources.listed(unit.tx):
        if resource.properties["type"] == DEFAULT_TYPE and resource.properties["network_address"]:
            parts.setdefault(str(resource.properties["network_address"]), []).append(resource)
    notice = max(config.scheduler_node_manager_sleep_time, config.scheduler_node_manager_wakeup_time)
    wanted = _needed_soon(unit.tx, until=now + notice)
    since = resources.states_since(unit.tx)
    free = {name: there for name, there in parts.items() if all(part.id not in wanted for part in there)}
    idle = {name: there for name, there in free.items() if all(_is_awake(part) for part in there)}
    begun = now - config.scheduler_node_manager_idle_time
    sleepy = [
        name
        for name, there in idle.items()
        if all(_may_sleep(part) and _idle_since(part, since.get(part.id, now)) <= begun for part in there)
    ]
    asleep = [name for name, there in free.items() if all(is_asleep(part, now) for part in there)]
    return _NodePower(parts, frozenset(idle), frozenset(sleepy), frozenset(asleep))


def awake_classes(tx: Tx, config: Config) -> tuple[list[tuple[Condition | None, int]], list[str]]:
    """Return the classes of nodes that are kept awake, and what is wrong with those that cannot be."""
    types = properties.types(tx) if config.scheduler_node_manager_keep_awake else {}
    classes, problems = [], []
    for kept in config.scheduler_node_manager_keep_awake:
        try:
            classes.append((kept.condition and conditions.check(kept.condition, types), kept.count))
        except OarlockError as error:
            problems.append(str(error))
    return classes, problems


def _members(nodes: _NodePower, condition: Condition | None) -> frozenset[str]:
    if condition is None:
        return frozenset(nodes.parts)
    return frozenset(
        name
        for name, there in nodes.parts.items()
        if any(conditions.truth(condition, part.properties) for part in there)
    )


def _is_awake(resource: Resource) -> bool:
    values = resource.properties
    return values["state"] == ResourceState.ALIVE and values["next_state"] == NextState.UNCHANGED


def _may_sleep(resource: Resource) -> bool:
    """Return whether a resource may sleep: its site set a date (`cm_availability`) until which it can be woken."""
    until = resource.properties["cm_availability"]
    return isinstance(until, int) and 0 < until < _FOR_EVER


def _idle_since(resource: Resource, alive_since: int) -> int:
    last = resource.properties["last_job_date"]
    return max(alive_since, last if isinstance(last, int) else 0)


def _needed_soon(tx: Tx, *, until: int) -> set[int]:
    """Return the resources that jobs hold now or are planned to hold soon."""
    holding = jobs.resources_of(tx, [job.id for job in jobs.in_states(tx, HOLDS_RESOURCES)]).values()
    planned = (resource.resources for resource in plans.read(tx).values() if resource.start < until)
    return _union(holding) | _union(planned)


def _union(sets: Iterable[Iterable[int]]) -> set[int]:
    return {number for ids in sets for number in ids}


def is_asleep(resource: Resource, now: int) -> bool:
    """Return whether a resource is only asleep: it can be woken, so it is not lost."""
    until = resource.properties["cm_availability"]
    return resource.properties["state"] == ResourceState.ABSENT and isinstance(until, int) and until > now


def wakeup_timeout(config: Config, count: int) -> int:
    """Return how many seconds so many nodes that are woken together may take to answer."""
    steps = config.scheduler_node_manager_wakeup_timeout or ((0, config.scheduler_node_manager_wakeup_time),)
    return next((seconds for least, seconds in reversed(steps) if count >= least), steps[0][1])


def nodes_woken(unit: UnitOfWork, report: NodesWoken) -> None:
    """Make nodes Alive that answer after they were woken; those whose time is over become Suspected.

    The node check lets these come back, should they answer later. A state that was set meanwhile is left alone.
    """
    if up := _absent(unit, report.answered):
        resources.set_state(unit.tx, up, ResourceState.ALIVE, at=unit.now)
        unit.add_effects(ScheduleAgain())
    for node, why in report.silent.items():
        if down := _absent(unit, [node]):
            resources.set_state(unit.tx, down, ResourceState.SUSPECTED, at=unit.now, by_check=True)
            unit.event(EventType.PING_CHECKER_NODE_SUSPECTED, f"{node} was woken and is not back: {why}", None, (node,))
            unit.add_effects(ScheduleAgain())


def _absent(unit: UnitOfWork, nodes: Collection[str]) -> list[int]:
    there = resources.listed(unit.tx, of_hosts(unit.tx, nodes))
    return [resource.id for resource in there if resource.properties["state"] == ResourceState.ABSENT]
