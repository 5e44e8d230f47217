"""Energy: nodes with nothing to do are put to sleep; woken ones are Alive when they answer, else Suspected."""

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


def doze(ledger: UnitOfWork) -> None:
    """Put nodes to sleep that had nothing to do for long enough and will have nothing for long enough.

    The plan says what they will have to do: a node that would have to be woken again at once is left awake. Those that
    go are Absent before the command runs, so that no job starts on a node that goes down.
    """
    if not ledger.config.scheduler_node_manager_sleep_cmd:
        return
    tired = _tired(ledger, resources.listed(ledger.tx))
    if tired:
        resources.set_state(ledger.tx, of_hosts(ledger.tx, tired), ResourceState.ABSENT, at=ledger.now)
        ledger.tell(SleepNodes(tuple(sorted(tired))))


def _tired(ledger: UnitOfWork, listed: Sequence[Resource]) -> set[str]:
    computing = [one for one in listed if one.properties["type"] == DEFAULT_TYPE and one.properties["network_address"]]
    config, now = ledger.config, ledger.now
    notice = max(config.scheduler_node_manager_sleep_time, config.scheduler_node_manager_wakeup_time)
    wanted = _wanted(ledger.tx, until=now + notice)
    since = resources.states_since(ledger.tx)
    idle_for = config.scheduler_node_manager_idle_time
    awake = [
        one.id not in wanted and _may_sleep(one) and now - _idle_since(one, since.get(one.id, now)) >= idle_for
        for one in computing
    ]
    names = [str(one.properties["network_address"]) for one in computing]
    tired = set(names) - {name for name, sleepy in zip(names, awake, strict=True) if not sleepy}
    # Those that stay are always the same ones, so that jobs find them awake.
    return set(sorted(tired)[config.scheduler_node_manager_keep_awake :])


def _may_sleep(one: Resource) -> bool:
    """Say whether a resource takes part: its site gave it a date (`cm_availability`) until which it can be woken."""
    until = one.properties["cm_availability"]
    if one.properties["state"] != ResourceState.ALIVE or one.properties["next_state"] != NextState.UNCHANGED:
        return False
    return isinstance(until, int) and 0 < until < _FOR_EVER


def _idle_since(one: Resource, alive_since: int) -> int:
    last = one.properties["last_job_date"]
    return max(alive_since, last if isinstance(last, int) else 0)


def _wanted(tx: Tx, *, until: int) -> set[int]:
    """Give the resources that jobs have now or are planned to have soon."""
    holding = jobs.resources_of(tx, [job.id for job in jobs.in_states(tx, HOLDS_RESOURCES)]).values()
    planned = (one.resources for one in plans.read(tx).values() if one.start < until)
    return _union(holding) | _union(planned)


def _union(sets: Iterable[Iterable[int]]) -> set[int]:
    return {number for ids in sets for number in ids}


def is_asleep(one: Resource, now: int) -> bool:
    """Say whether a resource is only asleep: it can be woken, so it is not lost."""
    until = one.properties["cm_availability"]
    return one.properties["state"] == ResourceState.ABSENT and isinstance(until, int) and until > now


def woken(ledger: UnitOfWork, news: NodesWoken) -> None:
    """Make nodes Alive that answer after they were woken; those whose time is over become Suspected.

    The node check lets these come back, should they answer later. A state that somebody set meanwhile is left alone.
    """
    if up := _absent(ledger, news.answered):
        resources.set_state(ledger.tx, up, ResourceState.ALIVE, at=ledger.now)
        ledger.tell(ScheduleAgain())
    for node, why in news.silent.items():
        if down := _absent(ledger, [node]):
            resources.set_state(ledger.tx, down, ResourceState.SUSPECTED, at=ledger.now, by_check=True)
            ledger.event(
                EventType.PING_CHECKER_NODE_SUSPECTED, f"{node} was woken and is not back: {why}", None, (node,)
            )
            ledger.tell(ScheduleAgain())


def _absent(ledger: UnitOfWork, nodes: Collection[str]) -> list[int]:
    there = resources.listed(ledger.tx, of_hosts(ledger.tx, nodes))
    return [one.id for one in there if one.properties["state"] == ResourceState.ABSENT]
