"""Health checks: nodes are checked at intervals; silent ones become Suspected, those that answer again are cleared."""

from oarlock.config import Config
from oarlock.job.cluster import node_states
from oarlock.job.run.effects import CheckNodes, Effect, ScheduleAgain
from oarlock.job.run.reports import NodesChecked
from oarlock.job.run.unit_of_work import UnitOfWork
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.resource import DEFAULT_TYPE, NextState, Resource, ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, resources


def due(tx: Tx, config: Config) -> list[Effect]:
    """Return which nodes to check: those Alive, and those that only this check suspects; not busy ones, as a rule."""
    busy: set[int] = set()
    if not config.check_nodes_with_running_job:
        holding = jobs.in_states(tx, HOLDS_RESOURCES)
        busy = {resource for ids in jobs.resources_of(tx, [job.id for job in holding]).values() for resource in ids}
    listed = resources.listed(tx)
    at_work = {resource.properties["network_address"] for resource in listed if resource.id in busy}
    names = {str(resource.properties["network_address"]) for resource in listed if _is_asked(resource)} - at_work
    wanted = tuple(sorted(str(name) for name in names if name))
    return [CheckNodes(wanted)] if wanted else []


def _is_asked(resource: Resource) -> bool:
    values = resource.properties
    if values["type"] != DEFAULT_TYPE or values["desktop_computing"] == "YES":
        return False
    if values["next_state"] != NextState.UNCHANGED:
        return False
    by_check = values["finaud_decision"] == "YES"
    return values["state"] == ResourceState.ALIVE or (values["state"] == ResourceState.SUSPECTED and by_check)


def nodes_checked(unit: UnitOfWork, report: NodesChecked) -> None:
    """Act on the answers. States may have changed while nodes were asked: only Alive ones become Suspected."""
    if node_states.clear_suspicion(unit.tx, list(report.answered), at=unit.now):
        unit.add_effects(ScheduleAgain())
    node_states.suspect_unreachable(unit, report.silent)
