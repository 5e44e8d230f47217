"""The fleet: the clients of all nodes, connected as the settings say."""

import asyncio
import contextlib
import hashlib
import hmac
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oarlock.config import Config
from oarlock.job.check.live import NodeAttempts
from oarlock.job.run import site_programs
from oarlock.job.run.reports import NodeReport
from oarlock.measure.energy import redfish_file
from oarlock.model.errors import OarlockError
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import NodeSettings
from oarlock.server.nodes import ConnectionSlots, NodeClient, Timeouts, installed, local, ssh
from oarlock.server.nodes.client_on_node import ClientOnNode
from oarlock.server.nodes.command import NodeCommand, by_root_program
from oarlock.server.nodes.desktop import DesktopClient
from oarlock.server.nodes.install import FixedNodeSettings
from oarlock.settings.kinds import NodeAccess, NodeTransport

_DESKTOP_SECONDS = 60.0  # for its node program to start: it may be a slow machine
_DESKTOP_IDLE = 1  # supervisors that are kept for the next job
_SHORTEST_PING = 2
_METERS = {"rapl", "ipmi", "temperature"}  # sources that may have one
_SPOOL, _RUNTIME = Path("/var/lib/oarlock/node"), Path("/run/oarlock")


OnNodeClient = Callable[[str, ClientOnNode], None]
"""Takes the connection of a process on a node, and the node's name."""

ReadPrivateKey = Callable[[str], Awaitable[str | None]]
"""Returns the private key of a fingerprint, or None if it is gone."""

IsDesktop = Callable[[str], Awaitable[bool]]
"""Returns whether a node is a desktop, as the database says now."""

OnSamples = Callable[[str, bytes, Mapping[int, int]], None]
"""Takes what a node measured: its name, the sample, and the jobs that it may speak of with their attempts."""


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """How nodes identify an instance: the identity of its database, and its key, from which each node's is derived."""

    identity: str
    key: bytes

    def spool_key(self, node: str) -> str:
        """Return the key that signs what is in the spool of a node."""
        return hmac.new(self.key, f"spool of {node}".encode(), hashlib.sha256).hexdigest()


class Fleet:
    """Nodes by name, made when they are first needed."""

    def __init__(
        self,
        config: Config,
        state_dir: Path,
        instance: InstanceIdentity,
        on_event: Callable[[NodeReport], None],
        on_samples: OnSamples,
        on_client: OnNodeClient,
        private_key: ReadPrivateKey,
    ) -> None:
        self._has_meter = has_meter(config)
        self._by_controller = frozenset(read_controlled(config))
        self._instance, self._on_client, self._private_key = instance, on_client, private_key
        self._config, self._state_dir, self._on_event, self._on_samples = config, state_dir, on_event, on_samples
        self._slots = ConnectionSlots(open_=config.node_connections)
        has_program = config.suspend_resume_file or config.job_resource_manager_file
        program = config.prologue_epilogue_timeout if has_program else 0
        self._timeouts = Timeouts(connect=config.oar_ssh_connection_timeout + 10.0, program=program)
        self._nodes: dict[str, NodeClient] = {}
        self.desktops: set[str] = set()  # nodes that connect by themselves
        self.is_desktop: IsDesktop | None = None

    def desktop(self, name: str) -> DesktopClient:
        """Return the client of a desktop."""
        self.desktops.add(name)
        there = self._nodes.get(name)
        if isinstance(there, DesktopClient):
            return there
        settings = self._settings(name)._replace(check=(), idle=_DESKTOP_IDLE)
        every = float(max(_SHORTEST_PING, min(self._config.desktop_computing_expiry, self._timeouts.ping)))
        timeouts = replace(self._timeouts, connect=_DESKTOP_SECONDS, ping=every, pong=every, idle=math.inf)
        desktop = self._nodes[name] = DesktopClient(settings, self._on_event, self._slots, timeouts)
        # No `on_client`: that a process there is one of some user is nothing a desktop can vouch for.
        desktop.on_samples = lambda data: self._on_samples(name, data, desktop.expected)
        desktop.private_key = self._private_key
        return desktop

    def connected_desktops(self) -> dict[str, DesktopClient]:
        """Return the desktops that are connected."""
        return {
            name: node for name, node in self._nodes.items() if isinstance(node, DesktopClient) and node.is_connected
        }

    def node(self, name: str) -> NodeClient:
        """Return the client of a node, without connecting yet."""
        if name in self.desktops:
            return self.desktop(name)
        if name not in self._nodes:
            way, settings = self._command(name), self._settings(name)
            node = self._nodes[name] = NodeClient(settings, way, self._on_event, self._slots, self._timeouts)
            node.on_samples = lambda data: self._on_samples(name, data, node.expected)
            node.on_client = lambda client: self._on_client(name, client)
            node.private_key = self._private_key
            if (is_desktop := self.is_desktop) is not None:
                node.is_desktop = lambda: is_desktop(name)
            node.is_measured_idle = self._has_meter and name not in self._by_controller
        return self._nodes[name]

    async def survey(self, names: Sequence[str]) -> list[NodeAttempts]:
        """Ask nodes what is there; those that do not answer say why."""

        async def ask(name: str) -> NodeAttempts:
            try:
                boot, there = await self.node(name).survey()
            except OarlockError as problem:
                return NodeAttempts(name, problem=str(problem))
            return NodeAttempts(name, boot, there)

        return list(await asyncio.gather(*map(ask, names)))

    async def measure(self, names: Sequence[str], change: Body) -> None:
        """Change how nodes measure; if one cannot be reached, or refuses, all measure as before."""
        await asyncio.gather(*(self.node(name).ping() for name in names))
        changed: list[NodeClient] = []
        try:
            for name in names:
                await self.node(name).measure(change)
                changed.append(self.node(name))
        except OarlockError:
            for node in changed:
                with contextlib.suppress(OarlockError):  # it lost its connection, and with it the change
                    await node.measure({"reset": True})
            raise

    async def measure_idle(self, names: Iterable[str]) -> None:
        """Connect to nodes that have no jobs and are worth measuring, as long as there is room; some may be away."""
        idle = [node for node in map(self.node, names) if node.is_measured_idle]
        await asyncio.gather(*(node.stay() for node in idle), return_exceptions=True)

    @property
    def measures_idle(self) -> bool:
        """Whether anything is gained by staying connected to idle nodes."""
        return self._has_meter

    async def close(self) -> None:
        """Close all connections; jobs go on."""
        for node in self._nodes.values():
            await node.close()

    @property
    def _has_root_program(self) -> bool:
        """Whether nodes of this machine are served by a program of root's, since this server is not root's."""
        return os.geteuid() != 0 and self._config.serve_everybody

    def _is_here(self, name: str) -> bool:
        match self._config.node_transport:
            case NodeTransport.LOCAL:
                return True
            case NodeTransport.SSH:
                return False
            case _:
                return name in own_names()

    def _command(self, name: str) -> NodeCommand:
        if self._is_here(name):
            return by_root_program(self._config.local_node_cmd) if self._has_root_program else local()
        config = self._config
        reach = installed if config.node_access is NodeAccess.INSTALLED else ssh
        return reach(name, command=config.openssh_cmd, connect_seconds=config.oar_ssh_connection_timeout)

    def _settings(self, name: str) -> NodeSettings:
        """Return where the node keeps its files; nodes of this machine have a place each in the state directory."""
        config = self._config
        spool, runtime = node_directories(config)
        if self._is_here(name) and not self._has_root_program:
            spool, runtime = self._state_dir / "spool" / name, self._state_dir / "run" / name
        lowest = config.job_min_uid if os.geteuid() == 0 or config.serve_everybody else 0
        return NodeSettings(
            name,
            str(spool),
            str(runtime),
            lowest_uid=lowest,
            sample_period=config.sample_period,
            sample_sources=config.sample_sources,
            check=tuple(program.path for program in site_programs.on_nodes(config)),
            pretended=config.node_transport is NodeTransport.LOCAL,
            files_kept=config.stagein_cache_expiry * 3600,
            instance=self._instance.identity,
            spool_key=self._instance.spool_key(name),
            debug=config.oarexec_debug_mode,
        )


def has_meter(config: Config) -> bool:
    """Return whether nodes may tell what they draw: only then it is worth staying connected to idle ones."""
    return config.sample_period > 0 and (bool(_METERS & set(config.sample_sources)) or config.energy_busy_watts > 0)


def read_controlled(config: Config) -> list[str]:
    """Return the nodes whose management controllers the collector reads."""
    return [] if config.redfish_file is None else [node.node for node in redfish_file.read(config.redfish_file)]


def node_directories(config: Config) -> tuple[Path, Path]:
    """Return where a node keeps its spool, and the files that jobs read."""
    if config.oar_runtime_directory:
        return config.oar_runtime_directory / "spool", config.oar_runtime_directory / "run"
    return _SPOOL, _RUNTIME


def fixed_settings(config: Config) -> FixedNodeSettings:
    """Return what no server may change on a node where the program was installed."""
    spool, runtime = node_directories(config)
    site = (
        config.prologue_exec_file,
        config.epilogue_exec_file,
        config.job_resource_manager_file,
        config.suspend_resume_file,
        config.oarmonitor_sensor_file,
    )
    return FixedNodeSettings(spool, runtime, config.job_min_uid, tuple(path for path in site if path))


def own_names() -> frozenset[str]:
    """Return the names that mean this very machine."""
    name = socket.gethostname()
    return frozenset({"localhost", "127.0.0.1", "::1", name, name.partition(".")[0]})
