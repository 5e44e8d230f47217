"""Inventory: which resources describe machines, and which of them are not there yet."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from oarlock.model.resource import CPUS_PROPERTY, Value, parse_cpus

_GB = 1 << 30
_KINDS = {"host": "str", "cpu": "int", "core": "int", "thread": "int", "mem": "int", "gpu": "int", "gpudevice": "int"}


class ThreadUse(StrEnum):
    """What becomes of the threads of a core."""

    TOGETHER = "together"  # a resource is a core with all its threads
    THREADS = "threads"  # a resource is a thread; those of a core have its number
    CORES = "cores"  # a resource is a thread, and counts as a core of its own


class GpuOfMachine(Struct, frozen=True):
    """A GPU: the number of its device, and the CPUs that are near to it (none: not known)."""

    device: int
    model: str = ""
    near: tuple[int, ...] = ()


class Machine(Struct, frozen=True):
    """A machine: its sockets with their cores with their CPUs, bytes of memory, and GPUs."""

    sockets: tuple[tuple[tuple[int, ...], ...], ...]
    memory: int = 0
    gpus: tuple[GpuOfMachine, ...] = ()

    def __str__(self) -> str:
        cores = [core for socket in self.sockets for core in socket]
        threads = sum(map(len, cores))
        parts = [_counted(len(self.sockets), "socket"), _counted(len(cores), "core")]
        parts += [_counted(threads, "thread")] if threads != len(cores) else []
        parts += [f"{gigabytes(self.memory)} GB"] if self.memory else []
        parts += [_counted(len(self.gpus), "GPU")] if self.gpus else []
        return ", ".join(parts)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' if count != 1 else ''}"


def gigabytes(memory: int) -> int:
    """Return memory in GB, rounded up: the kernel keeps a part of it for itself."""
    return -(-memory // _GB)


class Proposal(Struct, frozen=True):
    """What has to be added: properties with their kinds, and resources by their properties.

    `present`: how many resources of each host are there already.
    """

    properties: tuple[tuple[str, str], ...]
    resources: tuple[Mapping[str, Value], ...]
    present: Mapping[str, int]

    def commands(self) -> list[str]:
        """Return the commands that add it, as a shell takes them."""
        adding = [f"oarproperty -a {name}{' -c' if kind == 'str' else ''}" for name, kind in self.properties]
        return [*adding, *map(adding_command, self.resources)]


def adding_command(resource: Mapping[str, Value], more: str = "") -> str:
    """Return the command that adds a resource; `more` is put behind it as it is."""
    values = " ".join(f"-p {name}={value}" for name, value in resource.items() if name != "network_address")
    return f"oarnodesetting -a -h {resource['network_address']} {values}{f' {more}' if more else ''}"


def propose(
    machines: Mapping[str, Machine],
    existing: Sequence[Mapping[str, Any]],
    properties: Iterable[str],
    use: ThreadUse = ThreadUse.TOGETHER,
) -> Proposal:
    """Propose the resources of machines that are not there yet; what runs on the same CPUs counts as the same.

    Sockets and cores are numbered over the whole cluster, behind the highest number there is.
    """
    by_host: dict[str, list[Mapping[str, Any]]] = {}
    for resource in existing:
        by_host.setdefault(str(resource.get("network_address") or ""), []).append(resource)
    numbers = {name: _highest(existing, name) for name in ("cpu", "core", "thread", "gpu")}
    new: list[Mapping[str, Value]] = []
    present: dict[str, int] = {}
    for host, machine in machines.items():
        there = [resource for resource in by_host.get(host, []) if resource.get("type", "default") == "default"]
        added = _of_machine(host, machine, _on_cpus(there), numbers, use)
        present[host] = len(there)
        new += added
    wanted = dict.fromkeys(name for resource in new for name in resource if name in _KINDS)
    missing = tuple((name, _KINDS[name]) for name in wanted if name not in set(properties))
    return Proposal(missing, tuple(new), present)


def _highest(resources: Iterable[Mapping[str, Any]], name: str) -> int:
    values = [str(resource.get(name)) for resource in resources]
    return max((int(value) for value in values if value.isascii() and value.isdigit()), default=0)


def _on_cpus(resources: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Return the resource on each CPU of a host; what cannot be read is on none."""
    on_cpu: dict[int, Mapping[str, Any]] = {}
    for resource in resources:
        try:
            on_cpu |= dict.fromkeys(parse_cpus(resource.get(CPUS_PROPERTY)), resource)
        except ValueError:
            continue
    return on_cpu


def _of_machine(
    host: str, machine: Machine, on_cpu: Mapping[int, Mapping[str, Any]], numbers: dict[str, int], use: ThreadUse
) -> list[dict[str, Value]]:
    """Return the resources of a machine that are not known by one of their CPUs, and count the `numbers` on."""
    gpu_of, gpu_numbers = _gpus_of_cores(machine), _numbers_of_gpus(on_cpu)
    new: list[dict[str, Value]] = []
    for socket in machine.sockets:
        cpu = _shared((on_cpu[cpu] for core in socket for cpu in core if cpu in on_cpu), "cpu")
        for threads in socket:
            core = _shared((on_cpu[number] for number in threads if number in on_cpu), "core")
            for cpus in _units(threads, use):
                if any(number in on_cpu for number in cpus):
                    continue
                cpu = cpu or _next(numbers, "cpu")
                core = core if core and use is not ThreadUse.CORES else _next(numbers, "core")
                resource: dict[str, Value] = {"network_address": host, "host": host, "cpu": cpu, "core": core}
                if use is ThreadUse.THREADS:
                    resource["thread"] = _next(numbers, "thread")
                resource[CPUS_PROPERTY] = ",".join(map(str, cpus))
                resource |= {"mem": gigabytes(machine.memory)} if machine.memory else {}
                if (gpu := gpu_of.get(threads)) is not None:
                    number = gpu_numbers.setdefault(gpu.device, 0) or _next(numbers, "gpu")
                    gpu_numbers[gpu.device] = number
                    resource |= {"gpu": number, "gpudevice": gpu.device}
                new.append(resource)
    return new


def _next(numbers: dict[str, int], name: str) -> int:
    numbers[name] += 1
    return numbers[name]


def _shared(resources: Iterable[Mapping[str, Any]], name: str) -> int:
    """Return the number that resources already have; 0 if none has one."""
    return next((int(value) for resource in resources if isinstance(value := resource.get(name), int) and value), 0)


def _units(threads: tuple[int, ...], use: ThreadUse) -> list[tuple[int, ...]]:
    return [threads] if use is ThreadUse.TOGETHER else [(cpu,) for cpu in threads]


def _numbers_of_gpus(on_cpu: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """Return the numbers that the GPUs of a host have in the cluster."""
    pairs = {(resource.get("gpudevice"), resource.get("gpu")) for resource in on_cpu.values()}
    return {device: number for device, number in pairs if isinstance(device, int) and isinstance(number, int)}


def _gpus_of_cores(machine: Machine) -> dict[tuple[int, ...], GpuOfMachine]:
    """Divide the cores among the GPUs: as many each as can be, those near to it if the machine tells."""
    cores = [core for socket in machine.sockets for core in socket]
    first = {cpu: at for at, core in enumerate(cores) for cpu in core}
    gpus = sorted(machine.gpus, key=lambda gpu: (min((first.get(cpu, 0) for cpu in gpu.near), default=0), gpu.device))
    return {core: gpus[at * len(gpus) // len(cores)] for at, core in enumerate(cores)} if gpus else {}
