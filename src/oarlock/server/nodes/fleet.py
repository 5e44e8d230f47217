"""The fleet: the clients of all nodes, connected as the settings say."""

import hashlib
import hmac
import os
import socket
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from oarlock.config import Config
from oarlock.job.run import site_programs
from oarlock.job.run.reports import NodeReport
from oarlock.node.wire.messages import NodeSettings
from oarlock.server.nodes import ConnectionSlots, NodeClient, Timeouts, installed, local, ssh
from oarlock.server.nodes.client_on_node import ClientOnNode
from oarlock.server.nodes.command import NodeCommand
from oarlock.server.nodes.install import FixedNodeSettings
from oarlock.settings.choices import NodeAccess, NodeTransport

_SPOOL, _RUNTIME = Path("/var/lib/oarlock/node"), Path("/run/oarlock")


OnNodeClient = Callable[[str, ClientOnNode], None]
"""Takes the connection of a process on a node, and the node's name."""

OnSamples = Callable[[str, bytes, Set[int]], None]
"""Takes what a node measured: its name, the sample, and the jobs that it may speak of."""


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
    ) -> None:
        self._instance, self._on_client = instance, on_client
        self._config, self._state_dir, self._on_event, self._on_samples = config, state_dir, on_event, on_samples
        self._slots = ConnectionSlots()
        self._timeouts = Timeouts(connect=config.oar_ssh_connection_timeout + 10.0)
        self._nodes: dict[str, NodeClient] = {}

    def node(self, name: str) -> NodeClient:
        """Return the client of a node, without connecting yet."""
        if name not in self._nodes:
            way, settings = self._command(name), self._settings(name)
            node = self._nodes[name] = NodeClient(settings, way, self._on_event, self._slots, self._timeouts)
            node.on_samples = lambda data: self._on_samples(name, data, node.expected)
            node.on_client = lambda client: self._on_client(name, client)
        return self._nodes[name]

    async def close(self) -> None:
        """Close all connections; jobs go on."""
        for node in self._nodes.values():
            await node.close()

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
            return local()
        config = self._config
        reach = installed if config.node_access is NodeAccess.INSTALLED else ssh
        return reach(name, command=config.openssh_cmd, connect_seconds=config.oar_ssh_connection_timeout)

    def _settings(self, name: str) -> NodeSettings:
        """Return where the node keeps its files; nodes of this machine have a place each in the state directory."""
        config = self._config
        spool, runtime = node_directories(config)
        if self._is_here(name):
            spool, runtime = self._state_dir / "spool" / name, self._state_dir / "run" / name
        lowest = config.job_min_uid if os.geteuid() == 0 else 0
        return NodeSettings(
            name,
            str(spool),
            str(runtime),
            lowest_uid=lowest,
            sample_period=config.sample_period,
            check=tuple(program.path for program in site_programs.on_nodes(config)),
            pretended=config.node_transport is NodeTransport.LOCAL,
            instance=self._instance.identity,
            spool_key=self._instance.spool_key(name),
        )


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
    )
    return FixedNodeSettings(spool, runtime, config.job_min_uid, tuple(path for path in site if path))


def own_names() -> frozenset[str]:
    """Return the names that mean this very machine."""
    name = socket.gethostname()
    return frozenset({"localhost", "127.0.0.1", "::1", name, name.partition(".")[0]})
