"""Health: nodes are asked now and then; who is silent is Suspected, who answers again comes back."""

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
    """Say which nodes to ask: those Alive, and those that only this check suspects; not those at work, as a rule."""
    busy: set[int] = set()
    if not config.check_nodes_with_running_job:
        holding = jobs.in_states(tx, HOLDS_RESOURCES)
        busy = {one for ids in jobs.resources_of(tx, [job.id for job in holding]).values() for one in ids}
    listed = resources.listed(tx)
    at_work = {one.properties["network_address"] for one in listed if one.id in busy}
    names = {str(one.properties["network_address"]) for one in listed if _is_asked(one)} - at_work
    wanted = tuple(sorted(str(name) for name in names if name))
    return [CheckNodes(wanted)] if wanted else []


def _is_asked(one: Resource) -> bool:
    about = one.properties
    if about["type"] != DEFAULT_TYPE or about["desktop_computing"] == "YES":
        return False
    if about["next_state"] != NextState.UNCHANGED:
        return False
    by_check = about["finaud_decision"] == "YES"
    return about["state"] == ResourceState.ALIVE or (about["state"] == ResourceState.SUSPECTED and by_check)


def nodes_checked(unit: UnitOfWork, report: NodesChecked) -> None:
    """Act on the answers. States may have changed while nodes were asked: only Alive ones become Suspected."""
    if node_states.clear_suspicion(unit.tx, list(report.answered), at=unit.now):
        unit.add_effects(ScheduleAgain())
    node_states.suspect_unreachable(unit, report.silent)
