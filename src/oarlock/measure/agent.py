"""The agent of a node: takes a sample each period and hands it to every output; settings change while it runs.

A change holds until the jobs that were there are over; then the agent measures as it was started, as Colmet does.

`run` puts it together with its outputs, warns of sources that it may not read, and runs it until a signal.
"""

import gc
import logging
import queue
import resource
import signal
import socket
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock import __version__
from oarlock.measure import control, names, options
from oarlock.measure.batch import BatchAssembler, JobOwners, OwnerLookup, SampleBatch
from oarlock.measure.exposition import Exposition, MetricsPage
from oarlock.measure.http import MetricsAccess, MetricsServer, check_address
from oarlock.measure.naming import Naming
from oarlock.measure.options import NOWHERE, AgentOptions, select_layouts
from oarlock.measure.outputs import CsvOutput, JsonLinesOutput, PushGateway, SampleOutput
from oarlock.measure.permissions import missing_permissions, process_permissions
from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.discovery import CgroupFinder
from oarlock.node.measure.sampler import Sampler
from oarlock.node.sources.assemble import EnabledSources, SourceOptions, assemble
from oarlock.node.sources.files import Hierarchy, allow_many_files, mounted_hierarchies
from oarlock.node.sources.probe import series

if TYPE_CHECKING:
    from oarlock.measure.colmet.control import ColmetControl
    from oarlock.node.measure.discovery import Key
    from oarlock.node.sources.host.redfish import RedfishController

log = logging.getLogger(__name__)

CHANGEABLE = ("period", "perf_events", "enable", "disable", "names")
"""What may be changed while the agent runs."""

KEEP = "keep"
"""Beside a change: it holds after the jobs that are there now, too."""

COLMET_EVENTS = 5
"""How many events of the processor Colmet counts at once."""


def next_sample_time(now: float, period: float) -> float:
    """Return the next instant that is a multiple of the period, so that all nodes sample in step."""
    instant = (now // period + 1) * period
    return instant if instant > now else instant + period


class Agent:
    """Measure this node. Everything but `change` and `page` is for the thread that runs it."""

    def __init__(
        self,
        options: AgentOptions,
        *,
        hierarchies: Callable[[], Sequence[Hierarchy]] = mounted_hierarchies,
        look_up: OwnerLookup | None = None,
        outputs: Sequence[SampleOutput] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.options = options
        self.outputs = list(outputs)
        self.page_callbacks: list[Callable[[MetricsPage], None]] = []
        self.failures: dict[str, Callable[[], int]] = {}  # of outputs that take pages
        self._clock = clock
        wanted = select_layouts(options.layout, options.layouts_file)
        finder = CgroupFinder(wanted, hierarchies, others=not options.jobs_only)
        sources = assemble(options.sources, source_settings(options))
        self._sampler = Sampler(finder, sources.job, sources.node)
        self._job_layouts = {layout.name for layout in wanted if layout.is_job}
        self._assembler = BatchAssembler(JobOwners(look_up), self._job_layouts, socket.gethostname())
        self._configured = options  # what holds again when a change is over
        self._until: frozenset[Key] | None = None  # the jobs whose end ends a change; empty: those that come next
        self._measured: Mapping[Key, object] = {}
        self._counts: Counter[str] = Counter(samples_total=0, late_samples_total=0, failed_samples_total=0)
        self._dropped: Counter[str] = Counter({output.name: 0 for output in self.outputs})
        self._duration = 0.0
        self._changes: queue.SimpleQueue[tuple[Mapping[str, Any], Future[AgentOptions]]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._over = False
        self._page: MetricsPage | None = None
        self._rename_series()

    @property
    def page(self) -> MetricsPage | None:
        """Return the page of the last sample."""
        return self._page

    def run(self) -> None:
        """Sample until `stop`. A sample that fails is logged and counted; the next one is tried all the same."""
        self._sample()
        due_at = next_sample_time(self._clock(), self.options.period)
        while not self._over:
            self._wake.wait(max(0.0, due_at - self._clock()))
            if self._wake.is_set():
                self._wake.clear()
                self._apply_changes()
                due_at = next_sample_time(self._clock(), self.options.period)
                continue
            if self._clock() < due_at:
                due_at = min(due_at, next_sample_time(self._clock(), self.options.period))  # the clock was set back
                continue
            self._sample()
            was_due, due_at = due_at, next_sample_time(self._clock(), self.options.period)
            self._counts["late_samples_total"] += max(0, round((due_at - was_due) / self.options.period) - 1)

    def stop(self) -> None:
        """End `run` soon. May be called from anywhere, a signal handler included."""
        self._over = True
        self._wake.set()

    def change(self, changes: Mapping[str, Any], timeout: float = 30) -> AgentOptions:
        """Change settings from another thread; return those in effect. A refused change changes nothing."""
        result: Future[AgentOptions] = Future()
        self._changes.put((changes, result))
        self._wake.set()
        return result.result(timeout)

    @property
    def status(self) -> dict[str, Any]:
        """What is to be told beside the settings: the jobs that a change waits for; None if none is in force."""
        until = self._until
        return {"until_jobs": None if until is None else sorted(job for _, _, job in until)}

    def sample(self) -> SampleBatch:
        """Take one sample now and pass it to every output."""
        begin = time.perf_counter()
        sample = self._sampler.sample(self._clock())
        self._measured = sample.jobs
        batch = self._assembler.batch(sample, self._about_itself())
        self._page = self._exposition.take(batch)
        for output in self.outputs:
            self._write_to(output, batch)
        for callback in self.page_callbacks:
            callback(self._page)
        self._counts["samples_total"] += 1
        self._duration = time.perf_counter() - begin
        if self._until is not None:
            self._end_change(self._until)
        return batch

    def close(self) -> None:
        """Close the sampler and all outputs."""
        self._sampler.close()
        for output in self.outputs:
            output.close()

    def _sample(self) -> None:
        try:
            self.sample()
        except Exception:
            self._counts["failed_samples_total"] += 1
            log.exception("a sample failed")

    def _write_to(self, output: SampleOutput, batch: SampleBatch) -> None:
        try:
            output.take(batch, self._naming)
        except OSError as error:
            self._dropped[output.name] += 1
            if self._dropped[output.name] == 1:
                log.warning("an output cannot be written: %s", error, extra={"output": output.name})

    def _apply_changes(self) -> None:
        while not self._changes.empty():
            changes, result = self._changes.get()
            try:
                if changes:
                    self._change(changes)
                result.set_result(self.options)
            except Exception as refused:  # noqa: BLE001  it is raised again in the thread that called `change`
                result.set_exception(refused)

    def _change(self, changes: Mapping[str, Any]) -> None:
        """Apply a change until the jobs that are there are over or, if it is to be kept, for good."""
        wanted = {name: value for name, value in changes.items() if name != KEEP}
        if not wanted:
            self._configured = self.options
        elif changes.get(KEEP):
            configured = _allowed(wanted, self._configured)
            self._apply(_allowed(wanted, self.options))
            self._configured = configured
        else:
            self._apply(_allowed(wanted, self.options))
            self._until = self._present_jobs()
        if self.options == self._configured:
            self._until = None

    def _present_jobs(self) -> "frozenset[Key]":
        return frozenset(key for key in self._measured if key[0] in self._job_layouts)

    def _end_change(self, until: "frozenset[Key]") -> None:
        """Measure as configured again if all jobs are over that a change was made for.

        One that was made while there was no job is for those that come next.
        """
        present = self._present_jobs()
        if not until:
            self._until = present
        elif not until & present:
            self._until = None
            self._apply(self._configured)

    def _apply(self, wanted: AgentOptions) -> None:
        before = self.options
        off = [name for name in before.sources if name not in wanted.sources]
        on = [name for name in wanted.sources if name not in before.sources]
        if wanted.perf_events != before.perf_events and "perf" in wanted.sources:
            on = [*(name for name in on if name != "perf"), "perf"]
        switched = assemble(on, source_settings(wanted))
        for name in off:
            self._sampler.switch_off(name)
        self._switch_on(switched)
        self.options = wanted
        if wanted.names != before.names:
            self._rename_series()
        log.info("settings changed", extra={"period": wanted.period, "sources": wanted.sources})

    def _switch_on(self, sources: EnabledSources) -> None:
        for job_source in sources.job:
            self._sampler.switch(job_source)
        for node_source in sources.node:
            self._sampler.switch_node(node_source)

    def _rename_series(self) -> None:
        self._naming = Naming(names.select_families(self.options.names, self.options.names_file))
        constant = {"cluster": self.options.cluster} if self.options.cluster else {}
        self._exposition = Exposition(self._naming, constant)

    def _lost_batches(self) -> dict[str, int]:
        return {**self._dropped, **{name: failures() for name, failures in self.failures.items()}}

    def _about_itself(self) -> dict[str, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            series("info", version=__version__): 1,
            **self._counts,
            "period_seconds": self.options.period,
            "sample_duration_seconds": self._duration,
            "cpu_seconds_total": used.ru_utime + used.ru_stime,
            "series": self.page.series if self.page else 0,
            **{series("dropped_batches_total", output=name): count for name, count in self._lost_batches().items()},
        }


def _allowed(changes: Mapping[str, Any], current: AgentOptions) -> AgentOptions:
    """Parse changes; refuse those of options that are fixed at the start."""
    fixed = sorted(changes.keys() - set(CHANGEABLE))
    if fixed:
        raise ConfigRefused(
            f"`{fixed[0]}` is fixed when the agent starts.", hint=f"You can change {', '.join(CHANGEABLE)}."
        )
    return options.make_options(changes, current)


def source_settings(options: AgentOptions) -> SourceOptions:
    """Return the options of the sources."""
    return SourceOptions(
        scratch=options.scratch,
        perf_events=counted_events(options),
        nvidia_library=options.nvidia_library,
        redfish=_controller(options.redfish) if options.redfish else None,
    )


def counted_events(options: AgentOptions) -> tuple[str, ...]:
    """Return the events to count: all, or with `colmet` the first five, which is said once a change."""
    left_out = options.perf_events[COLMET_EVENTS:]
    if not options.colmet or not left_out:
        return options.perf_events
    if "perf" in options.sources:
        log.warning("only the first five events are counted, as Colmet does", extra={"left_out": ", ".join(left_out)})
    return options.perf_events[:COLMET_EVENTS]


def _controller(file: Path) -> "RedfishController":
    """Read how to reach the management controller: `url`, `user` and `password` in TOML, in a file of mode 0600."""
    from oarlock.node.sources.host.redfish import RedfishController, RedfishError
    from oarlock.settings import secret

    text = secret.read(f"{secret.PREFIX}{file.absolute()}")
    try:
        return RedfishController(**tomllib.loads(text.value if text else ""))
    except (tomllib.TOMLDecodeError, TypeError, RedfishError) as error:
        raise ConfigRefused(f"{file} does not say how to reach a management controller: {error}.",
                            hint='It holds url = "https://…", user = "…", password = "…".') from error  # fmt: skip


_FRESH_PERIODS, _FRESH_SECONDS = 5, 10


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
            stack.callback(control.ControlSocket(path, agent.change, lambda: agent.status).close)
        if options.control_zmq:
            stack.callback(_colmet_control(options, agent).close)
        yield agent


def run(options: AgentOptions) -> None:
    """Run until SIGTERM or SIGINT."""
    with started(options) as agent:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        gc.collect()
        gc.freeze()  # what is here now stays: the collector need not look at it again
        agent.run()


def _colmet_control(options: AgentOptions, agent: Agent) -> "ColmetControl":
    from oarlock.measure.colmet.control import ColmetControl

    return ColmetControl(options.control_zmq, options.control_keys, agent.change)


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
    # With --send, --token-file is the node's own token: nobody else may be asked for it.
    scrape_token = agent_options.scrape_token_file or (None if agent_options.send else agent_options.token_file)
    if address:
        access = MetricsAccess(
            agent_options.tls_certificate,
            agent_options.tls_key,
            read_token(scrape_token) if scrape_token else None,
        )
        check_address(address[0], access, open_to_all=agent_options.open_to_all)
        server = MetricsServer(address, lambda: agent.page, access, lambda: _oldest(agent))
        stack.callback(server.close)
        log.info("serving /metrics", extra={"address": "{}:{}".format(*server.address)})
    if agent_options.push:
        gateway = PushGateway(agent_options.push, socket.gethostname())
        stack.callback(gateway.close)
        agent.page_callbacks.append(gateway.offer)
        agent.failures["push"] = lambda: gateway.failures
    if agent_options.send:
        _send(agent_options, agent)


def _send(agent_options: AgentOptions, agent: Agent) -> None:
    from oarlock.measure.posting.https import ServerConnection  # TLS is large, and few agents send
    from oarlock.measure.posting.send import SampleSender

    if agent_options.token_file is None:
        raise ConfigRefused(
            "--send needs a token.",
            hint="`oarlock token add --node NAME -o FILE` on the server makes one; name it with --token-file FILE.",
        )
    connection = ServerConnection(agent_options.send, agent_options.token_file, agent_options.ca)
    sender = SampleSender(connection, agent_options.node or socket.gethostname(), lambda: agent.options.period)
    agent.outputs.append(sender)
    agent.failures["send"] = lambda: sender.dropped
    log.info("sending samples", extra={"server": agent_options.send})


def read_token(file: Path) -> str | None:
    """Return the token in a file that its owner alone can read."""
    from oarlock.settings import secret

    token = secret.read(f"{secret.PREFIX}{file.absolute()}")
    return token.value if token else None


def _oldest(agent: Agent) -> float:
    return agent.options.period * _FRESH_PERIODS + _FRESH_SECONDS
