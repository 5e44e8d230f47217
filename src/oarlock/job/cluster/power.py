"""Power: idle nodes are put to sleep; woken ones are Alive when they answer, else Suspected."""

from collections.abc import Collection, Iterable, Sequence

from oarlock.job.run.effects import ScheduleAgain, SleepNodes
from oarlock.job.run.reports import NodesWoken
from oarlock.job.run.unit_of_work import UnitOfWork, of_hosts
from oarlock.model.event import EventType
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.resource import DEFAULT_TYPE, NextState, Resource, ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, plans, resources

_FOR_EVER = 2**31 - 1  # what sites write for "always"


def sleep_idle_nodes(unit: UnitOfWork) -> None:
    """Put nodes to sleep that had nothing to do for long enough and will have nothing for long enough.

    The plan says what they will have to do: a node that would have to be woken again at once is left awake. Those that
    go are Absent before the command runs, so that no job starts on a node that goes down.
    """
    if not unit.config.scheduler_node_manager_sleep_cmd:
        return
    idle = _idle_nodes(unit, resources.listed(unit.tx))
    if idle:
        resources.set_state(unit.tx, of_hosts(unit.tx, idle), ResourceState.ABSENT, at=unit.now)
        unit.add_effects(SleepNodes(tuple(sorted(idle))))


def _idle_nodes(unit: UnitOfWork, listed: Sequence[Resource]) -> set[str]:
    computing = [
        resource
        for resource in listed
        if resource.properties["type"] == DEFAULT_TYPE and resource.properties["network_address"]
    ]
    config, now = unit.config, unit.now
    notice = max(config.scheduler_node_manager_sleep_time, config.scheduler_node_manager_wakeup_time)
    wanted = _needed_soon(unit.tx, until=now + notice)
    since = resources.states_since(unit.tx)
    idle_for = config.scheduler_node_manager_idle_time
    awake = [
        resource.id not in wanted
        and _may_sleep(resource)
        and now - _idle_since(resource, since.get(resource.id, now)) >= idle_for
        for resource in computing
    ]
    names = [str(resource.properties["network_address"]) for resource in computing]
    idle = set(names) - {name for name, sleepy in zip(names, awake, strict=True) if not sleepy}
    # Those that stay are always the same ones, so that jobs find them awake.
    return set(sorted(idle)[config.scheduler_node_manager_keep_awake :])


def _may_sleep(resource: Resource) -> bool:
    """Return whether a resource may sleep: its site set a date (`cm_availability`) until which it can be woken."""
    until = resource.properties["cm_availability"]
    if resource.properties["state"] != ResourceState.ALIVE or resource.properties["next_state"] != NextState.UNCHANGED:
        return False
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
