"""Put an agent together with its outputs, warn of sources that it may not read, and run it until a signal."""

import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from oarlock.measure import control, options
from oarlock.measure.agent import Agent
from oarlock.measure.http import MetricsAccess, MetricsServer, check_address
from oarlock.measure.options import NOWHERE, AgentOptions
from oarlock.measure.outputs import CsvOutput, JsonLinesOutput, SampleOutput
from oarlock.measure.owners import OwnerLookup
from oarlock.node.sources.files import allow_many_files

log = logging.getLogger(__name__)

_FRESH_PERIODS, _FRESH_SECONDS = 5, 10
_CAPABILITY_BITS = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
_PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_ENERGY = "/sys/class/powercap/intel-rapl:0/energy_uj"
_MANAGEMENT = "/dev/ipmi0"


@contextmanager
def started(options: AgentOptions) -> Iterator[Agent]:
    """Make an agent with all its outputs; close everything at the end."""
    for sentence in missing_permissions(options.sources, process_permissions()):
        log.warning(sentence)
    allow_many_files()
    with ExitStack() as stack:
        agent = Agent(options, look_up=_look_up(options, stack), outputs=_outputs(options))
        stack.callback(agent.close)
        _serve(options, agent, stack)
        if options.control != NOWHERE:
            path = Path(options.control) if options.control else control.default_path()
            stack.callback(control.ControlSocket(path, agent.change).close)
        yield agent


def run(options: AgentOptions) -> None:
    """Run until SIGTERM or SIGINT."""
    with started(options) as agent:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        gc.collect()
        gc.freeze()  # what is here now stays: the collector need not look at it again
        agent.run()


def _look_up(options: AgentOptions, stack: ExitStack) -> OwnerLookup | None:
    if options.look_up == NOWHERE:
        return None
    from oarlock.measure import cluster_lookup  # databases and processes are large; most agents ask nobody

    site = cluster_lookup.start_lookup(options)
    stack.callback(site.close)
    return site


def _outputs(options: AgentOptions) -> list[SampleOutput]:
    wanted: list[tuple[str, Callable[[str], SampleOutput]]] = [
        (options.json, JsonLinesOutput),
        (options.csv, CsvOutput),
    ]
    return [make(path) for path, make in wanted if path]


def _serve(agent_options: AgentOptions, agent: Agent, stack: ExitStack) -> None:
    address = options.address(agent_options.listen)
    if address:
        access = MetricsAccess(
            agent_options.tls_certificate,
            agent_options.tls_key,
            _token(agent_options.token_file) if agent_options.token_file else None,
        )
        check_address(address[0], access, open_to_all=agent_options.open_to_all)
        server = MetricsServer(address, lambda: agent.page, access, lambda: _oldest(agent))
        stack.callback(server.close)
        log.info("serving /metrics", extra={"address": "{}:{}".format(*server.address)})
    if agent_options.push:
        from oarlock.measure.push import PushGateway

        gateway = PushGateway(agent_options.push, socket.gethostname())
        stack.callback(gateway.close)
        agent.page_callbacks.append(gateway.offer)
        agent.failures["push"] = lambda: gateway.failures


def _token(file: Path) -> str | None:
    from oarlock.settings import secret

    token = secret.read(f"{secret.PREFIX}{file.absolute()}")
    return token.value if token else None


def _oldest(agent: Agent) -> float:
    return agent.options.period * _FRESH_PERIODS + _FRESH_SECONDS


class Permissions(NamedTuple):
    """What this process may do."""

    capabilities: frozenset[str]
    perf_paranoid: int | None
    unreadable: frozenset[str]  # files that are there and may not be read


def process_permissions() -> Permissions:
    """Return the permissions of this process."""
    unreadable = {path for path in (_ENERGY, _MANAGEMENT) if os.path.exists(path) and not os.access(path, os.R_OK)}  # noqa: PTH110
    return Permissions(
        parse_capabilities(Path("/proc/self/status").read_text()), _read_number(_PARANOID), frozenset(unreadable)
    )


def parse_capabilities(status: str) -> frozenset[str]:
    """Read the effective capabilities that matter here out of /proc/PID/status."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    mask = int(line.split()[1], 16)
    return frozenset(name for name, bit in _CAPABILITY_BITS.items() if mask >> bit & 1)


def missing_permissions(sources: Iterable[str], permissions: Permissions) -> Iterator[str]:
    """Yield a sentence for each source that cannot be read, with the permission it needs."""
    sources, has = set(sources), permissions.capabilities
    if "processes" in sources and "CAP_SYS_PTRACE" not in has:
        yield "I/O, open files and executables of other users' processes cannot be read: CAP_SYS_PTRACE is needed"
    may_count = has & {"CAP_PERFMON", "CAP_SYS_ADMIN"} or (
        permissions.perf_paranoid is not None and permissions.perf_paranoid <= 0
    )
    if "perf" in sources and not may_count:
        yield "events cannot be counted: CAP_PERFMON, or kernel.perf_event_paranoid at most 0, is needed"
    if "rapl" in sources and _ENERGY in permissions.unreadable and not may_count:
        yield "energy of the processors cannot be read: CAP_PERFMON, or CAP_DAC_READ_SEARCH, is needed"
    if "ipmi" in sources and _MANAGEMENT in permissions.unreadable:
        yield f"the management controller cannot be asked: {_MANAGEMENT} may not be opened"


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
