"""The reactor: holds what the server remembers between two transactions, and decides what it does next.

It does no input or output and reads no clock. A driver asks it what is due (`due`, `next_step`), carries that out, and
reports the end (`ended`, `failed`); when nothing is due it waits for `wake_in` seconds or until `wake` is called.
Reports, quick passes, whole passes and each periodic step may be under way at the same time, one of each kind.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from oarlock.job.cluster import node_states
from oarlock.job.reactor import dispatch, watch
from oarlock.job.reactor.passes import PassSchedule
from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, Moment, Periodic, QuickPass, Step, WholePass
from oarlock.job.run.effects import Effect
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import Hello, IncomingReport
from oarlock.job.run.starting import launch, schedule
from oarlock.job.run.starting.apply import apply_decision
from oarlock.job.run.starting.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.errors import DatabaseAway
from oarlock.store.engine.tx import Tx

Change = Callable[[Tx], list[Effect]]
"""A transaction of a step."""

Now = Callable[[], float]
"""Returns the wall time; called when a transaction runs, which may be later than it was made."""

AGAIN_SECONDS = 2.0
"""Between two tries to write what must not be lost."""

_FEW = 4
_GATHERING = 3.0  # under load, reports are gathered this many times as long as the last transaction took
_LONGEST_GATHERING = 0.03


class Reactor:
    """What the server knows of its nodes and owes the database; `wake` is called when something was added to it."""

    def __init__(
        self,
        context: StepContext,
        periods: Mapping[Periodic, float],
        *,
        began: float,
        passes: PassSchedule | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.context = context
        self.finished = FinishedAttempts()
        self.hosts: dict[str, Hello] = {}  # nodes with a connection
        self.unreachable: dict[str, float] = {}  # nodes whose connection is lost → since when, wall time
        self.hopeless: Mapping[int, str] = {}  # jobs that cannot be placed as things are → their message
        self.passes = passes or PassSchedule()
        self._wake = wake
        self._reports: list[IncomingReport] = []
        self._one_by_one: deque[IncomingReport] = deque()
        self._reached: list[int] = []
        self._writing = False
        self._began = self._write_at = 0.0
        self._periods = dict(periods)
        self._repeated: set[Periodic] = set()
        self._due_at: dict[Periodic, float | None] = {step: began + period for step, period in periods.items()}

    # What happens.

    def receive(self, report: IncomingReport) -> None:
        """Keep a report for the next transaction."""
        self._reports.append(report)
        if len(self._reports) == 1:  # the driver knows of the others, or is told when the transaction under way ends
            self._wake()

    def connection_lost(self, node: str, *, now: float) -> None:
        """Note that a node cannot be reached; its jobs go on."""
        self.unreachable.setdefault(node, now)
        self.hosts.pop(node, None)

    def connection_made(self, node: str, hello: Hello) -> None:
        """Note that a node answers."""
        self.unreachable.pop(node, None)
        self.hosts[node] = hello

    def nodes_reached(self, jobs: Sequence[int]) -> None:
        """Note that the nodes of jobs that are to be launched answer."""
        self._reached += jobs
        self._wake()

    def request_pass(self, at: int | None = None) -> None:
        """Request a scheduling pass, now or at an instant."""
        self.passes.request(at)
        self._wake()

    def request(self, step: Periodic) -> None:
        """Make a periodic step due now, or once more when it is under way."""
        if self._due_at.get(step) is None:
            self._repeated.add(step)
        else:
            self._due_at[step] = 0.0
            self._wake()

    # What to do next.

    def due(self, at: Moment) -> list[Periodic]:
        """Begin the periodic steps whose time has come."""
        due = [step for step, instant in self._due_at.items() if instant is not None and instant <= at.steady]
        self._due_at |= dict.fromkeys(due)
        return due

    def next_step(self, at: Moment) -> Step | None:
        """Begin the next step: reports first, then launches, then passes. None: there is nothing to do yet."""
        step = None if self._writing else self._next_write(at)
        if step is None:
            return self.passes.next(at)
        self._writing, self._began = True, at.steady
        return step

    def _next_write(self, at: Moment) -> Step | None:
        if at.steady < self._write_at:
            return None
        if self._one_by_one:
            return ApplyReports((self._one_by_one.popleft(),), retry=True)
        if self._reports:
            taken, self._reports = tuple(self._reports), []
            return ApplyReports(taken)
        if self._reached:
            # After the reports, so that resources of unknown attempts on these nodes are blocked.
            reached, self._reached = tuple(self._reached), []
            return BeginLaunches(reached)
        return None

    def wake_in(self, at: Moment) -> float | None:
        """Return in how many seconds something is due, if nothing happens before; None: never."""
        waits = [instant - at.steady for instant in self._due_at.values() if instant is not None]
        if not self._writing and (self._reports or self._reached or self._one_by_one):
            waits.append(self._write_at - at.steady)
        if (seconds := self.passes.wake_in(at)) is not None:
            waits.append(seconds)
        return max(min(waits), 0.0) if waits else None

    # How steps are carried out.

    def changes(self, step: ApplyReports | BeginLaunches | Periodic, now: Now) -> list[Change]:
        """Return the transactions of a step, in their order."""
        context = self.context
        match step:
            case ApplyReports():
                return [lambda tx: dispatch.apply_reports(tx, context, step.reports, self.finished, now=now())]
            case BeginLaunches():
                hosts = dict(self.hosts)
                return [lambda tx: launch.begin_reached(tx, context, step.jobs, hosts, now=now())]
            case Periodic.WATCH:
                away = dict(self.unreachable)
                return [
                    lambda tx: node_states.apply(tx, context, now=now()),
                    lambda tx: watch.check(tx, context, now=now(), finished=self.finished, unreachable=away),
                ]
            case _:
                return []

    def apply_decision(self, decision: Decision, now: Now) -> list[Change]:
        """Return the transactions that apply a decision of the scheduler; none if nothing changes."""
        self.hopeless = schedule.hopeless_after(self.hopeless, decision)
        if not decision.has_changes:
            return []
        hosts = dict(self.hosts)

        def apply(tx: Tx, part: Decision) -> list[Effect]:
            return apply_decision(tx, self.context, part, hosts, now=now())

        return [partial(apply, part=part) for part in schedule.slices(decision)]

    def written(self, effects: Iterable[Effect]) -> None:
        """Note that a transaction was committed, with the effects that it returned."""
        self.finished.mark_written((), effects)

    # How they ended.

    def ended(self, step: ApplyReports | BeginLaunches | Periodic, at: Moment) -> None:
        """Note that a step was carried out."""
        match step:
            case ApplyReports():
                self.finished.mark_written(step.reports, ())
                self._writing = False
                if len(step.reports) > _FEW:
                    # Under load, waiting a little makes the next transaction carry more.
                    self._write_at = at.steady + min(_LONGEST_GATHERING, _GATHERING * (at.steady - self._began))
            case BeginLaunches():
                self._writing = False
            case _:
                self._end_periodic(step, at)

    def planned(self, step: QuickPass | WholePass, decision: Decision, at: Moment, *, cost: float) -> None:
        """Note that the decision of a pass was applied, and the CPU seconds that a quick one took."""
        if isinstance(step, QuickPass):
            self.passes.quick_ended(step, decision, cost, at)
        else:
            self.passes.whole_ended(step, decision, at)

    def failed(self, step: Step | Periodic, error: Exception, at: Moment) -> None:
        """Note that a step failed.

        Nobody reports twice, so a database that accepts nothing is tried again; and after any other error the reports
        of a batch are applied one by one, so that a bad one is the only one that is lost.
        """
        match step:
            case ApplyReports() | BeginLaunches():
                self._writing = False
                if isinstance(error, DatabaseAway):
                    self._put_back(step)
                    self._write_at = at.steady + AGAIN_SECONDS
                elif isinstance(step, ApplyReports) and not step.retry:
                    self._one_by_one.extend(step.reports)
            case QuickPass():
                self.passes.quick_failed(at, again_in=AGAIN_SECONDS if isinstance(error, DatabaseAway) else None)
            case WholePass():
                self.passes.whole_ended(step, None, at)
            case _:
                self._end_periodic(step, at)

    def _end_periodic(self, step: Periodic, at: Moment) -> None:
        self._due_at[step] = at.steady + (0.0 if step in self._repeated else self._periods[step])
        self._repeated.discard(step)

    def _put_back(self, step: ApplyReports | BeginLaunches) -> None:
        if isinstance(step, BeginLaunches):
            self._reached[:0] = step.jobs
        elif step.retry:
            self._one_by_one.appendleft(step.reports[0])
        else:
            self._reports[:0] = step.reports
