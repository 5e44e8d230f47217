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
def started(asked: AgentOptions) -> Iterator[Agent]:
    """Make an agent with all its outputs; everything is given back at the end."""
    for sentence in permissions.missing(asked.sources, permissions.of_this_process()):
        log.warning(sentence)
    allow_many_files()
    with ExitStack() as stack:
        agent = Agent(asked, look_up=_look_up(asked, stack), sinks=_sinks(asked))
        stack.callback(agent.close)
        _serve(asked, agent, stack)
        if asked.control != NOWHERE:
            path = Path(asked.control) if asked.control else control.default_path()
            stack.callback(control.ControlSocket(path, agent.change).close)
        yield agent


def run(asked: AgentOptions) -> None:
    """Run until SIGTERM or SIGINT."""
    with started(asked) as agent:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        gc.collect()
        gc.freeze()  # what is here now stays: the collector need not look at it again
        agent.run()


def _look_up(asked: AgentOptions, stack: ExitStack) -> OwnerLookup | None:
    if asked.look_up == NOWHERE:
        return None
    from oarlock.measure import cluster_lookup  # databases and processes are large; most agents ask nobody

    site = cluster_lookup.start_lookup(asked)
    stack.callback(site.close)
    return site


def _sinks(asked: AgentOptions) -> list[SampleOutput]:
    wanted: list[tuple[str, Callable[[str], SampleOutput]]] = [(asked.json, JsonLinesOutput), (asked.csv, CsvOutput)]
    return [make(path) for path, make in wanted if path]


def _serve(asked: AgentOptions, agent: Agent, stack: ExitStack) -> None:
    address = options.address(asked.listen)
    if address:
        access = MetricsAccess(
            asked.tls_certificate, asked.tls_key, _token(asked.token_file) if asked.token_file else None
        )
        check_address(address[0], access, open_to_all=asked.open_to_all)
        server = MetricsServer(address, lambda: agent.page, access, lambda: _oldest(agent))
        stack.callback(server.close)
        log.info("serving /metrics", extra={"address": "{}:{}".format(*server.address)})
    if asked.push:
        from oarlock.measure.push import PushGateway

        gateway = PushGateway(asked.push, socket.gethostname())
        stack.callback(gateway.close)
        agent.on_page.append(gateway.offer)
        agent.failures["push"] = lambda: gateway.failures


def _token(file: Path) -> str | None:
    from oarlock.settings import secret

    token = secret.read(f"{secret.PREFIX}{file.absolute()}")
    return token.value if token else None


def _oldest(agent: Agent) -> float:
    return agent.options.period * _FRESH_PERIODS + _FRESH_SECONDS
