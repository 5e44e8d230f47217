"""Healing: the site's program runs once for each node that became Suspected (SUSPECTED_HEALING_EXEC_FILE)."""

from collections import Counter
from collections.abc import Mapping

from oarlock.job.run.effects import HealNodes
from oarlock.job.run.reports import NodesHealed
from oarlock.job.run.unit_of_work import UnitOfWork
from oarlock.model.event import EventType
from oarlock.model.resource import Resource, ResourceState
from oarlock.store.queries.cluster import events, resources

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
