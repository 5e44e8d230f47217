"""Put an agent together with its outputs, and run it until it is told to end."""

import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oarlock.measure import control, options, permissions
from oarlock.measure.agent import Agent
from oarlock.measure.http import MetricsAccess, MetricsServer, check_address
from oarlock.measure.options import NOWHERE, AgentOptions
from oarlock.measure.outputs import CsvOutput, JsonLinesOutput, SampleOutput
from oarlock.measure.owners import OwnerLookup
from oarlock.node.sources.files import allow_many_files

log = logging.getLogger(__name__)

_FRESH_PERIODS, _FRESH_SECONDS = 5, 10


@contextmanager
def started(options: AgentOptions) -> Iterator[Agent]:
    """Make an agent with all its outputs; everything is given back at the end."""
    for sentence in permissions.missing(options.sources, permissions.of_this_process()):
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
