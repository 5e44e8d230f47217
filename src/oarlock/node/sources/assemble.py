"""Which sources are switched on: from their names to the sources themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oarlock.node.sources import gpu
from oarlock.node.sources.gpu import JobGpuSource, NodeGpuSource, NvidiaGpus
from oarlock.node.sources.host import machine, sensors
from oarlock.node.sources.host.machine import CoreSource, DiskSource, MachineSource
from oarlock.node.sources.host.network import InfinibandSource, LustreSource, NetworkSource
from oarlock.node.sources.host.sensors import RaplSource, TemperatureSource
from oarlock.node.sources.job import perf
from oarlock.node.sources.job.blockio import BlockIoSource
from oarlock.node.sources.job.cpu import CpuSource
from oarlock.node.sources.job.memory import MemorySource
from oarlock.node.sources.job.perf import PerfSource
from oarlock.node.sources.job.processes import ProcessSource
from oarlock.node.sources.job.steps import StepSource
from oarlock.node.sources.job.tasks import PidsSource, PressureSource
from oarlock.node.sources.probe import JobSource, NodeSource

if TYPE_CHECKING:
    from oarlock.node.sources.host.redfish import RedfishController

log = logging.getLogger(__name__)

CGROUP = ("cpu", "memory", "blockio", "pids", "pressure")
USUAL = (*CGROUP, "steps", "processes", "gpu", "machine", "disk", "filesystem", "network", "infiniband", "lustre")
"""Sources that are on by default: cheap ones that need no special permissions."""
ALL = (*USUAL, "cores", "perf", "rapl", "temperature", "ipmi", "redfish")


def chosen_names(changes: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the usual sources with some more; those with a `-` before them are left out."""
    words = list(changes)
    unknown = [word for word in words if word.lstrip("-") not in ALL]
    if unknown:
        raise ValueError(f"there is no source `{unknown[0].lstrip('-')}`; there are {', '.join(ALL)}")
    left_out = {word[1:] for word in words if word.startswith("-")}
    wanted = [*USUAL, *(word for word in words if not word.startswith("-"))]
    return tuple(name for name in dict.fromkeys(wanted) if name not in left_out)


class SourceOptions(NamedTuple):
    """What some sources need to know."""

    scratch: Sequence[str] = ("/scratch",)
    perf_events: Sequence[str] = perf.DEFAULT
    nvidia_library: str = gpu.NVML_LIBRARY
    ipmi_command: Sequence[str] | None = None  # None: the first that is installed
    redfish: RedfishController | None = None


class EnabledSources(NamedTuple):
    """Sources that are switched on."""

    job: list[JobSource]
    node: list[NodeSource]


def assemble(names: Iterable[str] = USUAL, options: SourceOptions | None = None) -> EnabledSources:
    """Make the sources of these names; those that this machine has nothing for are left out, with a log line."""
    wanted, options = list(dict.fromkeys(names)), options or SourceOptions()
    unknown = [name for name in wanted if name not in ALL]
    if unknown:
        raise ValueError(f"there is no source `{unknown[0]}`; there are {', '.join(ALL)}")
    sources = EnabledSources([], [])
    for name in wanted:
        _MAKERS[name](sources, options)
    return sources


def _add_gpus(sources: EnabledSources, options: SourceOptions) -> None:
    library = gpu.load_nvml(options.nvidia_library)
    if library:
        gpus = NvidiaGpus(library)
        sources.job.append(JobGpuSource(gpus))
        sources.node.append(NodeGpuSource(gpus))


def _add_ipmi(sources: EnabledSources, options: SourceOptions) -> None:
    command = options.ipmi_command or sensors.installed_ipmi()
    if command:
        sources.node.append(sensors.ipmi_source(command))
    else:
        log.info("no program for IPMI is installed: power is not measured by it")


def _add_redfish(sources: EnabledSources, options: SourceOptions) -> None:
    if options.redfish:
        from oarlock.node.sources.host import redfish  # HTTP and TLS are large; few nodes need them

        sources.node.append(redfish.source(options.redfish))
    else:
        log.info("no management controller is named: power is not measured by Redfish")


_MAKERS: dict[str, Callable[[EnabledSources, SourceOptions], None]] = {
    "cpu": lambda sources, _: sources.job.append(CpuSource()),
    "memory": lambda sources, _: sources.job.append(MemorySource()),
    "blockio": lambda sources, _: sources.job.append(BlockIoSource()),
    "pids": lambda sources, _: sources.job.append(PidsSource()),
    "pressure": lambda sources, _: sources.job.append(PressureSource()),
    "steps": lambda sources, _: sources.job.append(StepSource()),
    "processes": lambda sources, options: sources.job.append(ProcessSource(scratch=options.scratch)),
    "perf": lambda sources, options: sources.job.append(PerfSource(options.perf_events)),
    "gpu": _add_gpus,
    "machine": lambda sources, _: sources.node.append(MachineSource()),
    "cores": lambda sources, _: sources.node.append(CoreSource()),
    "disk": lambda sources, _: sources.node.append(DiskSource()),
    "filesystem": lambda sources, _: sources.node.append(machine.filesystems()),
    "network": lambda sources, _: sources.node.append(NetworkSource()),
    "infiniband": lambda sources, _: sources.node.append(InfinibandSource()),
    "lustre": lambda sources, _: sources.node.append(LustreSource()),
    "rapl": lambda sources, _: sources.node.append(RaplSource()),
    "temperature": lambda sources, _: sources.node.append(TemperatureSource()),
    "ipmi": _add_ipmi,
    "redfish": _add_redfish,
}
