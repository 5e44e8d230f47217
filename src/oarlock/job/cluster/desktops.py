"""Desktops: machines that connect to the server because it cannot reach them, and that expire when they are away.

While a desktop is connected its resources have no `expiry_date`. When its connection is lost they get one, and from
that date on they are Suspected. A desktop that takes its leave is Absent at once, with that date.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.job.cluster.inventory import Machine, propose
from oarlock.job.run.unit_of_work import of_hosts
from oarlock.model.errors import DesktopElsewhere, NotDesktop, UnknownNode
from oarlock.model.event import Event, EventType
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.resource import DEFAULT_TYPE, DESKTOP_PROPERTY, Resource, ResourceState, Value
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties, resources
from oarlock.store.queries.job import jobs

_EXPIRY = "expiry_date"
_MOST_TOKENS = 50  # of a node, that are remembered as used
_GONE = frozenset({ResourceState.ABSENT.value, ResourceState.DEAD.value})


@dataclass(frozen=True, slots=True)
class DesktopIdentity:
    """A desktop that wants to serve: the node that its token is good for, the token's hash, and which machine it is."""

    node: str
    token: str
    machine: str
    description: Machine


def admit(tx: Tx, config: Config, desktop: DesktopIdentity, *, now: int) -> None:
    """Check that a desktop may serve its node, and add its resources if there are none and the settings allow it."""
    present = _resources_of(tx, desktop.node)
    if any(resource.properties[DESKTOP_PROPERTY] != "YES" for resource in present):
        raise NotDesktop(desktop.node)
    if not present and not config.desktop_computing_allow_create_node:
        raise UnknownNode(
            f"There is no node `{desktop.node}`.",
            hint=f"An administrator adds it: oarnodesetting -a -h {desktop.node} -p {DESKTOP_PROPERTY}=YES. Or "
            "DESKTOP_COMPUTING_ALLOW_CREATE_NODE=yes in the server's settings lets desktops add themselves.",
        )
    _bind(tx, desktop)
    if not present:
        resources.add(tx, _new_resources(tx, desktop, now), at=now)


def _resources_of(tx: Tx, node: str) -> list[Resource]:
    listed = resources.listed(tx, of_hosts(tx, [node]))
    return [resource for resource in listed if resource.properties["type"] == DEFAULT_TYPE]


def _bind(tx: Tx, desktop: DesktopIdentity) -> None:
    """Bind a token to the first machine that shows it; a new token may bring another machine.

    Another machine has another spool: that it does not know a job would be taken for the job's end.
    """
    name = f"desktop {desktop.node}"
    machine, *tokens = (facts.get(tx, name) or desktop.machine).split()
    if machine != desktop.machine and desktop.token in tokens:
        raise DesktopElsewhere(desktop.node)
    others = [token for token in tokens if token != desktop.token]
    facts.put(tx, name, " ".join([desktop.machine, desktop.token, *others[:_MOST_TOKENS]]))


def _new_resources(tx: Tx, desktop: DesktopIdentity, now: int) -> list[Mapping[str, Value]]:
    """Return the resources of a new desktop, with those properties that the site has; Absent until it is connected."""
    columns = properties.types(tx)
    existing = [resource.properties for resource in resources.listed(tx)]
    rows = propose({desktop.node: desktop.description}, existing, columns).resources
    own: dict[str, Value] = {DESKTOP_PROPERTY: "YES", "state": ResourceState.ABSENT.value, _EXPIRY: now}
    return [{**{name: value for name, value in row.items() if name in columns}, **own} for row in rows]


def returned(tx: Tx, node: str, *, now: int) -> None:
    """Make the resources of a desktop that connected Alive, but those that an administrator took out of use."""
    ours = [resource for resource in _resources_of(tx, node) if resource.properties[DESKTOP_PROPERTY] == "YES"]
    back = [resource.id for resource in ours if _may_return(resource)]
    dated = [resource.id for resource in ours if resource.properties[_EXPIRY]]
    if dated:
        resources.set_properties(tx, dated, {_EXPIRY: 0}, at=now)
    if back:
        resources.set_state(tx, back, ResourceState.ALIVE, at=now)


def _may_return(resource: Resource) -> bool:
    """Return whether a resource is away because its desktop was."""
    state = resource.properties["state"]
    if state in _GONE:
        return bool(resource.properties[_EXPIRY])
    return state == ResourceState.SUSPECTED.value


def undated(tx: Tx, connected: Collection[str]) -> list[int]:
    """Return the Alive resources of desktops that are not connected and have no date."""
    return [number for number, node in resources.undated_desktops(tx) if node not in connected]


def expire(tx: Tx, ids: Collection[int], *, at: int, now: int) -> None:
    """Set the date from which on resources are Suspected."""
    resources.set_properties(tx, ids, {_EXPIRY: at}, at=now)


def take_leave(tx: Tx, node: str, *, now: int) -> list[int]:
    """Date the resources of a desktop that leaves, and tell its jobs; return those that have to become Absent."""
    ours = [resource for resource in _resources_of(tx, node) if resource.properties[DESKTOP_PROPERTY] == "YES"]
    ids = [resource.id for resource in ours if resource.properties["state"] not in _GONE]
    if ids:
        expire(tx, ids, at=now, now=now)
    there = [number for number, held in _held(tx).items() if not held.isdisjoint(resource.id for resource in ours)]
    says = f"{node} took its leave"
    events.add(tx, [Event(EventType.DESKTOP_LEFT, now, says, number, (node,)) for number in there])
    return ids


def _held(tx: Tx) -> dict[int, set[int]]:
    holding = jobs.in_states(tx, HOLDS_RESOURCES)
    return {number: set(ids) for number, ids in jobs.resources_of(tx, [job.id for job in holding]).items()}
