"""Occupation: how many resources of each node are allocated, and how many are free."""

from typing import NamedTuple

from sqlalchemy import Integer, case, func, literal_column, select

from oarlock.model.resource import DEFAULT_TYPE, NextState, ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import properties
from oarlock.store.tables import assigned_resources, resources

_ALLOCATED = select(assigned_resources.c.resource_id).where(
    assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'")
)


class NodeOccupation(NamedTuple):
    """Resources of the default type that a node has in one state; `leaving`: they are to change it."""

    node: str
    state: ResourceState
    leaving: bool
    total: int
    taken: int


def of_nodes(tx: Tx) -> list[NodeOccupation]:
    """Count resources by node and state."""
    row = resources.c
    taken = func.sum(case((row.resource_id.in_(_ALLOCATED), 1), else_=0))
    query = (
        select(row.network_address, row.state, row.next_state, func.count(), taken)
        .where(row.type == DEFAULT_TYPE)
        .group_by(row.network_address, row.state, row.next_state)
        .order_by(row.network_address, row.state, row.next_state)
    )
    stays = {NextState.UNCHANGED.value, NextState.ALIVE.value}
    return [
        NodeOccupation(node, ResourceState(state), following not in stays, total, int(used))
        for node, state, following, total, used in tx.execute(query)
    ]


class GpuCounts(NamedTuple):
    """GPUs of the site: all, those of jobs, and those free for jobs."""

    total: int
    taken: int
    free: int


def gpus(tx: Tx, name: str) -> GpuCounts:
    """Count GPUs: a node and a value of the property `name` are one, however many resources share it."""
    columns = properties.types(tx)
    if columns.get(name) is not int:
        return GpuCounts(0, 0, 0)
    resource = properties.clause(columns)
    device, alive = resource.c[name], resource.c.state == ResourceState.ALIVE.value
    query = (
        select(
            func.max(case((resource.c.resource_id.in_(_ALLOCATED), 1), else_=0), type_=Integer),
            func.min(case((alive, 1), else_=0), type_=Integer),
        )
        .where(device.is_not(None), resource.c.network_address != "")
        .group_by(resource.c.network_address, device)
    )
    devices = tx.execute(query).all()
    return GpuCounts(len(devices), sum(taken for taken, _ in devices), sum(up and not taken for taken, up in devices))
