"""The limits of a job on a node, computed from the resources that it was assigned there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.job.run.reports import Hello
from oarlock.model.resource import Resource, Value, parse_cpus
from oarlock.node.wire.messages import CgroupLimits

_PIDS = 16_384
_LEAST_PIDS = 64  # less is too little for a shell and a program with threads
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node as a whole: how many resources it has, what it said of itself, which GPUs are not the job's."""

    size: int
    hello: Hello | None
    other_gpus: tuple[int, ...] = ()


def memory(mine: Sequence[Resource], size: int, hello: Hello | None, config: Config) -> int | None:
    """Return how many bytes of memory a job may use on a node that has `size` resources; None is no limit."""
    named = _named_memory(mine, config.job_memory_property)
    if named is not None or not config.job_memory_limit:
        return named
    return _shared_memory(len(mine), size, hello)


def limits(
    mine: Sequence[Resource], machine: NodeCapacity, config: Config, *, memory: int | None = None
) -> CgroupLimits:
    """Return what a job may use of a node: its CPUs, and the memory that goes with them."""
    field = config.job_resource_manager_property_db_field
    cpus = sorted({cpu for resource in mine for cpu in parse_cpus(resource.properties.get(field))})
    denied = tuple(config.job_gpu_device.replace("%gpu%", str(number)) for number in machine.other_gpus)
    return CgroupLimits(cpus=tuple(cpus), memory=memory, pids=_processes(len(mine), machine), deny_devices=denied)


def wrong_cpus(mine: Iterable[Resource], field: str) -> tuple[Resource, str] | None:
    """Return the first resource whose property does not hold CPU numbers, and what is wrong with it."""
    for resource in mine:
        try:
            parse_cpus(resource.properties.get(field))
        except ValueError as error:
            return resource, str(error)
    return None


def gpu_numbers(values: Iterable[Value]) -> tuple[int, ...]:
    """Read the numbers of GPUs, each once and in order; what is no number is no GPU."""
    return tuple(sorted({int(text) for value in values if _is_number(text := str(value))}))


def _named_memory(mine: Sequence[Resource], name: str) -> int | None:
    """Add up what the site says of each resource; where one of them has no value the sum would mean nothing."""
    amounts = [_amount(resource.properties.get(name)) for resource in mine] if name else []
    return sum(amounts) * _MB if amounts and all(amounts) else None


def _amount(value: Value) -> int:
    """Read a number of MB; 0 if it is none."""
    text = str(value)
    return int(text) if _is_number(text) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _shared_memory(count: int, size: int, hello: Hello | None) -> int | None:
    """Return the share of a node's memory for so many of its resources; a job that has all of them has no limit."""
    if hello is None or not 0 < count < size:
        return None
    return hello.memory * count // size


def _processes(count: int, machine: NodeCapacity) -> int:
    """Limit the processes of a job to its share of the node's, so that all jobs together never fill the table."""
    if machine.hello is None or not machine.hello.processes or not 0 < count <= machine.size:
        return _PIDS
    together = machine.hello.processes * 2 // 3  # the rest is for supervisors
    return min(_PIDS, max(_LEAST_PIDS, together * count // machine.size))
