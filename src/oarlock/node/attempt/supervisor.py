"""The supervisor of one attempt: from the spool entry to the signed report, whether or not the node program lives.

It is the only process that knows the job from beginning to end. It enforces the walltime by a clock that neither jumps
nor stops while the machine sleeps, and it opens no file of the user's.
"""

from __future__ import annotations

import signal

from oarlock.node.attempt.debug_log import DebugLog
from oarlock.node.attempt.link import ProgramLink, drain
from oarlock.node.attempt.run import AttemptRun, EndedBeforeStart, SupervisorTools, now
from oarlock.node.attempt.sessions.session_table import SessionTable
from oarlock.node.attempt.spool import SpoolEntry
from oarlock.node.attempt.user.children import ChildProcesses, NoteWriter
from oarlock.node.attempt.user.command import CannotStart
from oarlock.node.attempt.user.identity import AccountCache, User
from oarlock.node.attempt.user.spawner import SpawnerVanished
from oarlock.node.cgroup.base import CgroupDriver
from oarlock.node.wire.channel import RAW, BadFrame, Body, Frame, encode_body
from oarlock.node.wire.messages import (
    BAD,
    CLEANED,
    EXITED,
    FAILED,
    FIRST,
    KILLED,
    LOST,
    NOT_NOW,
    OTHER,
    Launch,
    NodeRequestRefused,
    NodeSettings,
    sign_report,
)

_LONGEST_WAIT = 15.0  # poll sleeps by a clock that stops while the machine sleeps; ours does not
_FAR = 1e12
MAIN_SECONDS = 60.0
"""How long an interactive job waits for its main session: a server that was restarted meanwhile needs some of it."""

SAVE_SECONDS = 3600.0
"""How long a supervisor tries to write its report, on a full disk for example."""


def log_to_system(line: str) -> None:
    """Leave a line in the system log; where there is none it is lost."""
    import syslog  # imported late: what a supervisor maps, every fork pays for

    syslog.openlog("oarlock-node", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_ERR, line)


class Supervisor:
    """Runs attempts on one node, one after the other: waits, answers requests, and writes the reports."""

    _run: AttemptRun

    def __init__(self, settings: NodeSettings, driver: CgroupDriver, boot: str, link: ProgramLink, wake: int) -> None:
        self._link, self._wake = link, wake
        self._accounts, self._children = AccountCache(), ChildProcesses()
        self._log = DebugLog(settings.spool, enabled=settings.debug)
        self._sessions = SessionTable(link, self._children, self._remember_account, settings.spool)
        self._tools = SupervisorTools(
            settings,
            driver,
            boot,
            link,
            self._accounts,
            self._children,
            NoteWriter(),
            wait=self._wait,
            on_finish=self._sessions.hang_up_terminals,
            log=self._log,
        )

    def run(self, launch: Launch, entry: SpoolEntry) -> None:
        """Run the attempt to its end; on return the report is on the disk and sent."""
        self._log.begin(entry.key)
        self._log.write("launch", user=launch.user, role=launch.role, walltime=launch.walltime, boot=launch.boot)
        run = self._run = AttemptRun(self._tools, launch, entry.key)
        self._sessions.reset()
        self._link.serve(entry, run.describe)
        try:
            run.start()
            self._send_started()
            self._watch(entry)
        except CannotStart as failure:
            run.report = run.report._replace(outcome=FAILED, event=failure.event, says=str(failure))
            self._log.write("cannot start", event=failure.event, says=str(failure))
        except SpawnerVanished as failure:
            if not run.is_ending:
                run.report = run.report._replace(outcome=LOST, event="EXIT_VALUE_OAREXEC", says=str(failure))
            self._log.write("lost", says=str(failure))
        except EndedBeforeStart:
            pass
        run.stop()
        self._sessions.finish(entry.key, "" if run.report.outcome == EXITED else run.report.outcome)
        run.clean_up()
        self._children.keep_idle_spawner()
        self._send_report(entry)
        self._log.write("reported", outcome=run.report.outcome, status=run.report.status, ran=run.report.ran)
        self._log.end()

    def _remember_account(self, user: User) -> None:
        self._accounts.add(user, self._run.launch.uid, now=now())

    def _send_started(self) -> None:
        # Other nodes and shells are waited for, and the site's own program may take its time to clean up.
        launch = self._run.launch
        quick = launch.role == FIRST and not launch.hooks.manager and not launch.interactive
        self._link.send_event({"event": "started", **self._run.describe()}, may_wait=quick)

    # While it runs.

    def _watch(self, entry: SpoolEntry) -> None:
        """Wait for the end of the command; on another node than the first, for a request to end."""
        while not self._done():
            self._run.enforce_lease()
            self._wait(min(self._run.lease.next(), self._sessions.next(), self._main_deadline()), [])
            self._check_main()
            if self._run.launch.role == OTHER and self._is_hopeless(entry):
                self._do_end({})  # nobody can ask for it any more
        if self._children.is_lost:
            raise SpawnerVanished("the process that waited for the command is gone")

    def _done(self) -> bool:
        if self._run.launch.role == OTHER or (self._run.launch.interactive and not self._children.main):
            return self._run.is_ending and not self._sessions.is_opening_main
        return self._children.is_over

    def _main_deadline(self) -> float:
        """Return until when the main session of an interactive job must be opened."""
        waits = self._run.launch.interactive and self._run.launch.role == FIRST and not self._sessions.main_name
        return self._run.began + MAIN_SECONDS if waits else _FAR

    def _check_main(self) -> None:
        """Note the process of the main session; end the job if nobody opens one."""
        if self._sessions.main and not self._children.main:
            self._children.main = self._sessions.main
        failure = self._sessions.main_failure
        if failure is None and now() >= self._main_deadline():
            failure = CannotStart("CANNOT_NOTIFY_OARSUB", f"nobody opened its shell within {MAIN_SECONDS:.0f} s")
        if failure is not None and not self._run.is_ending:
            self._run.add_event(failure.event, str(failure))
            self._run.finish(KILLED, self._run.launch.grace)

    def _wait(self, until: float, others: list[int]) -> None:
        """Wait for a request, a child that ended, a descriptor, or the instant `until`."""
        wait = min(max(until - now(), 0.0), _LONGEST_WAIT)
        fds = [self._wake, *self._children.fds(), *others]
        for frame in self._link.wait(fds, wait * 1000 + 1, sessions=self._sessions.watched()):
            self._handle_request(frame)
        drain(self._wake)
        self._children.reap()
        self._run.check_writer()
        if self._sessions:
            self._sessions.serve(self._run.report.outcome if self._run.is_ending else "", now=now())

    # What is asked of it.

    def _handle_request(self, frame: Frame) -> None:
        if frame.kind == RAW:
            self._sessions.receive(frame.number, frame.data)
            return
        try:
            body = frame.body()
            self._log.write("request", verb=body.get("verb"))
            if str(body.get("verb")) in _SESSION_VERBS:
                self._handle_session(frame.number, body)
                return
            _VERBS.get(str(body.get("verb")), Supervisor._refuse_unknown)(self, body)
        except BadFrame as error:
            self._link.refuse(frame.number, NodeRequestRefused(BAD, str(error)))
        except NodeRequestRefused as refusal:
            self._log.write("refused", says=str(refusal))
            self._link.refuse(frame.number, refusal)
        else:
            self._link.answer(frame.number, {"state": self._run.state})

    def _handle_session(self, number: int, body: Body) -> None:
        """Handle a request about a session, which the table answers."""
        if body["verb"] == "session-hangup":
            self._sessions.hang_up(number, body)
        elif body["verb"] == "session-join" or self._sessions.has(body):  # asked to be opened once more: it was
            self._sessions.join(number, body)
        elif not self._sessions.is_starting(number, body):
            self._open_session(number, body)

    def _open_session(self, number: int, body: Body) -> None:
        request = self._sessions.check_open(body)
        if self._run.state != "running" or self._run.is_ending:
            raise NodeRequestRefused(NOT_NOW, f"the job is {'ending' if self._run.is_ending else self._run.state} here")
        if request.is_main and not (self._run.launch.interactive and self._run.launch.role == FIRST):
            raise NodeRequestRefused(BAD, "the job is not interactive: it has no main session")
        launch = self._run.launch._replace(environment={**self._run.launch.environment, **request.environment})
        try:
            spec = self._run.command_spec(launch)
            self._sessions.open(number, request, spec, self._run.job_cgroup(), now() + launch.start_timeout)
        except CannotStart as failure:
            raise NodeRequestRefused(failure.event, str(failure)) from failure
        except OSError as error:
            raise NodeRequestRefused("EXIT_VALUE_OAREXEC", f"it cannot be started: {error}") from error

    def _refuse_unknown(self, body: Body) -> None:
        raise NodeRequestRefused(BAD, f"a supervisor has no verb {body.get('verb')!r}")

    def _do_kill(self, body: Body) -> None:
        grace = body.get("grace", self._run.launch.grace)
        self._run.finish(KILLED, grace if isinstance(grace, int) else self._run.launch.grace)

    def _do_end(self, _: Body) -> None:
        if self._run.launch.role != OTHER:
            raise NodeRequestRefused(
                NOT_NOW, "only a place on another node than the first is given back; the first is killed"
            )
        self._run.is_ending, self._run.report = True, self._run.report._replace(outcome=CLEANED)

    def _do_signal(self, body: Body) -> None:
        number = body.get("signal")
        if not isinstance(number, int) or not 0 < number < signal.NSIG:
            raise NodeRequestRefused(BAD, f"{number!r} is not the number of a signal")
        self._run.check_running()
        self._run.note(f"SIGNALED with {number}")
        self._run.signal(number)

    def _do_checkpoint(self, _: Body) -> None:
        self._run.check_running()
        self._run.checkpoint()

    def _do_suspend(self, _: Body) -> None:
        self._run.suspend()

    def _do_resume(self, _: Body) -> None:
        self._run.resume()

    def _do_walltime(self, body: Body) -> None:
        seconds = body.get("seconds")
        if not isinstance(seconds, int) or seconds <= 0:
            raise NodeRequestRefused(BAD, f"{seconds!r} is not a walltime in seconds")
        self._run.lease.walltime = seconds

    # The end.

    def _send_report(self, entry: SpoolEntry) -> None:
        body = sign_report(self._run.report._replace(suspended=self._run.lease.suspended), self._run.launch.secret)
        text = encode_body({"event": "exited", **body}).encode()
        self._save(entry, text, now() + SAVE_SECONDS)
        self._link.send_event(text)

    def _save(self, entry: SpoolEntry, report: bytes, until: float) -> None:
        """Write the report to the spool; on a full disk, send it at once and retry until there is room.

        Where nobody can ever read it, or after `until`, leave a line in the system log instead: a supervisor that
        stays for ever holds memory of the node, and nobody comes for it.
        """
        while True:
            try:
                # A connected program passes it to the server soon; without one it must survive a power cut (fsync).
                entry.write(report, durable=not self._link.connected)
            except OSError as error:
                self._link.send_event(report)
                if self._is_hopeless(entry) or now() >= until:
                    self._log_unsaved(entry, error)
                    return
                self._wait(min(now() + _LONGEST_WAIT, until), [])
            else:
                return

    def _is_hopeless(self, entry: SpoolEntry) -> bool:
        """Return whether the file was removed and no program is connected: nobody will look for the report."""
        return entry.is_removed and not self._link.connected

    def _log_unsaved(self, entry: SpoolEntry, error: OSError) -> None:
        report = self._run.report
        name = f"job {report.job} (attempt {report.attempt})"
        ended = f"outcome {report.outcome}, status {report.status}"
        log_to_system(f"the report of {name} could not be written to {entry.path}: {error.strerror}; {ended}")


_SESSION_VERBS = frozenset({"session-open", "session-join", "session-hangup"})
_VERBS = {
    "kill": Supervisor._do_kill,
    "end": Supervisor._do_end,
    "signal": Supervisor._do_signal,
    "checkpoint": Supervisor._do_checkpoint,
    "suspend": Supervisor._do_suspend,
    "resume": Supervisor._do_resume,
    "walltime": Supervisor._do_walltime,
}
