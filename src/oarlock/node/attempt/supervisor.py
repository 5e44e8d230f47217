"""The supervisor of one attempt: from the spool entry to the signed report, whether or not the node program lives.

It is the only process that knows the job from beginning to end. It enforces the walltime by a clock that neither jumps
nor stops while the machine sleeps, and it opens no file of the user's.
"""

from __future__ import annotations

import os
import signal
import time

from oarlock.node.attempt import command, job_cgroup, logind, site_script, spool
from oarlock.node.attempt.children import ChildProcesses, NoteWriter, format_note
from oarlock.node.attempt.command import CannotStart
from oarlock.node.attempt.environment import JobFiles
from oarlock.node.attempt.identity import AccountCache, User
from oarlock.node.attempt.job_cgroup import ManagerUnusable
from oarlock.node.attempt.lease import CHECKPOINT, END, KILL, Lease
from oarlock.node.attempt.link import ProgramLink, drain, receive_with_fd
from oarlock.node.attempt.session_table import SessionTable
from oarlock.node.attempt.spawner import SpawnerVanished
from oarlock.node.attempt.spool import SpoolEntry
from oarlock.node.cgroup.base import CgroupDriver, CgroupError, JobCgroup
from oarlock.node.cgroup.signals import choose_targets
from oarlock.node.wire.channel import RAW, BadFrame, Body, Frame, encode_body
from oarlock.node.wire.messages import (
    BAD,
    CLEANED,
    EXIT,
    EXITED,
    FAILED,
    FIRST,
    KILLED,
    LOST,
    NOT_NOW,
    OTHER,
    UNUSABLE,
    WALLTIME,
    Launch,
    NodeRequestRefused,
    NodeSettings,
    Report,
    sign_report,
)

_LONGEST_WAIT = 15.0  # poll sleeps by a clock that stops while the machine sleeps; ours does not
_OTHER_MARGIN = 60.0
_NOTES_SECONDS = 1.0  # for the last notes in a user's file to be written
_FAR = 1e12
MAIN_SECONDS = 60.0
"""How long an interactive job waits for its main session: a server that was restarted meanwhile needs some of it."""


def now() -> float:
    """Return the seconds since boot, system sleep included (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def memory_kill(kills: int, limit: int | None) -> str:
    """Describe how many processes of a job the kernel killed for memory, and over which limit in bytes."""
    count = "a process" if kills == 1 else f"{kills} processes"
    over = "the node had none left" if limit is None else f"the job reached its limit of {limit >> 20} MiB"
    return f"the kernel killed {count} of the job for want of memory; {over}"


class EndedBeforeStart(Exception):
    """The attempt was ended before the user's code began."""


class Supervisor:
    """One attempt on one node."""

    _report: Report

    def __init__(self, settings: NodeSettings, driver: CgroupDriver, boot: str, link: ProgramLink, wake: int) -> None:
        self._settings, self._driver, self._boot, self._link, self._wake = settings, driver, boot, link, wake
        self._accounts, self._children, self._notes = AccountCache(), ChildProcesses(), NoteWriter()
        self._sessions = SessionTable(link, self._children, self._remember_account)

    def run(self, launch: Launch, entry: SpoolEntry) -> None:
        """Run the attempt to its end; on return the report is on the disk and sent."""
        self._launch, self._entry = launch, entry
        self._reset()
        self._link.serve(entry, self._describe)
        try:
            self._start()
            self._watch()
        except CannotStart as failure:
            self._report = self._report._replace(outcome=FAILED, event=failure.event, says=str(failure))
        except SpawnerVanished as failure:
            if not self._ending:
                self._report = self._report._replace(outcome=LOST, event="EXIT_VALUE_OAREXEC", says=str(failure))
        except EndedBeforeStart:
            pass
        self._clean()
        self._children.keep_idle_spawner()
        self._send_report()

    def _reset(self) -> None:
        """Forget the attempt before this one: supervisors are reused."""
        self._state = "launching"
        self._report = Report(self._launch.job, self._launch.attempt, self._settings.node, self._boot, EXITED)
        self._notes.pending = []
        self._check_writer()
        self._children.reset()
        self._sessions.reset()
        self._has_files = False
        self._group: JobCgroup | None = None
        self._stderr = -1
        self._ending = self._lingers = False
        # Other nodes keep the place a little longer: the first may still be within its grace.
        margin = self._launch.grace + _OTHER_MARGIN if self._launch.role == OTHER else 0.0
        self._lease = Lease(self._launch.walltime, checkpoint=self._launch.checkpoint, margin=margin)
        self._files = JobFiles.of(self._settings.runtime, spool.entry_name(self._entry.key))

    # The beginning.

    def _start(self) -> None:
        self._make_cgroup()
        self._lingers = logind.keep_user(self._launch.user, self._settings.node, self._entry.key)
        if self._launch.role == FIRST:
            self._run_prologue()
            if not self._launch.interactive:
                self._start_command()
        self._state = "running"
        self._report = self._report._replace(started=time.time())
        self._began = now()
        self._lease.begin(self._began)
        # Other nodes and shells are waited for, and the site's own program may take its time to clean up.
        launch = self._launch
        quick = launch.role == FIRST and not launch.hooks.manager and not launch.interactive
        self._link.send_event({"event": "started", **self._describe()}, may_wait=quick)

    def _describe(self) -> Body:
        return {
            "job": self._launch.job,
            "attempt": self._launch.attempt,
            "state": self._state,
            "started": self._report.started,
            "role": self._launch.role,
        }

    def _make_cgroup(self) -> None:
        try:
            self._group = job_cgroup.make_cgroup(self._launch, self._driver, self._settings.node)
            self._launch = job_cgroup.drop_undenied_devices(self._launch, self._driver)
        except (CgroupError, OSError) as error:
            self._blame_manager("CPUSET_ERROR", error)
            raise CannotStart("CPUSET_ERROR", str(error)) from error

    def _blame_manager(self, event: str, error: Exception) -> None:
        """Note what went wrong with the site's own program, where it takes the place of the cgroup step."""
        if self._launch.hooks.manager:
            self._blame(event, UNUSABLE if isinstance(error, ManagerUnusable) else EXIT)

    def _job_cgroup(self) -> JobCgroup:
        if self._group is None:
            raise CannotStart("CPUSET_ERROR", "the job has no cgroup")
        return self._group

    def _remove_files(self) -> None:
        for path in self._files:
            spool.remove(path)

    def _command_spec(self, launch: Launch) -> command.CommandSpec:
        """Build what a child needs; write the files of the job first, if they are not there."""
        account = self._accounts.get(launch.user, launch.uid, now=now())
        if not self._has_files:
            command.write_files(launch, self._files)
            self._has_files = True
        return command.make_command_spec(
            launch, self._job_cgroup(), self._files, account, lowest_uid=self._settings.lowest_uid
        )

    def _remember_account(self, user: User) -> None:
        self._accounts.add(user, self._launch.uid, now=now())

    def _start_command(self) -> None:
        """Start the child and wait until exec, or raise what the child reports."""
        launch = self._launch
        spec = self._command_spec(launch)
        child = self._children.start(spec, self._job_cgroup())
        try:
            self._wait_for_exec(child, now() + launch.start_timeout)
        finally:
            child.status.close()

    def _wait_for_exec(self, child: command.StartedCommand, deadline: float) -> None:
        """Read the child's messages until exec. With a spawner, wait for its report first: each wake-up costs."""
        while True:
            try:
                data, stderr = receive_with_fd(child.status, command.LONGEST_MESSAGE)
            except BlockingIOError:
                self._raise_if_ending()
                if now() >= deadline:
                    raise self._start_timeout_error() from None
                # Exec closes the child's end a moment after the spawner may have reported its PID.
                self._wait(deadline, [child.status.fileno()] if self._children.main else [])
                continue
            if not data and self._stderr < 0:
                raise CannotStart("EXIT_VALUE_OAREXEC", "the child vanished before the user's command")
            if not data:
                return
            if stderr >= 0:
                self._stderr = stderr
            elif isinstance(message := command.parse_child_message(data), CannotStart):
                raise message
            else:
                self._remember_account(message)

    def _start_timeout_error(self) -> Exception:
        if self._stderr >= 0:
            return SpawnerVanished("the command was about to run, and nobody said that it did")
        seconds = self._launch.start_timeout
        return CannotStart("WORKING_DIRECTORY", f"the user's directory did not answer within {seconds} s")

    def _raise_if_ending(self) -> None:
        if self._ending:
            raise EndedBeforeStart

    # Scripts of the site.

    def _run_prologue(self) -> None:
        problem = self._hook("prologue", self._launch.hooks.prologue)
        self._raise_if_ending()
        if problem:
            self._blame("PROLOGUE_ERROR", problem.cause)
            raise CannotStart("PROLOGUE_ERROR", problem.says)

    def _run_epilogue(self) -> None:
        if self._launch.role == FIRST:
            self._ending = False  # the epilogue runs also when the attempt was ended
            problem = self._hook("epilogue", self._launch.hooks.epilogue)
            if problem:
                self._blame("EPILOGUE_ERROR", problem.cause)
                self._add_event("EPILOGUE_ERROR", problem.says)

    def _blame(self, event: str, cause: str) -> None:
        """Note in the report why a program of the site failed."""
        self._report = self._report._replace(causes={**self._report.causes, event: cause})

    def _hook(self, word: str, path: str) -> site_script.ScriptProblem | None:
        """Run a script of the site, if there is one; return what went wrong."""
        if not path:
            return None
        context = site_script.HookContext(word, path, self._launch, self._settings.node, self._files.nodes)
        return site_script.run_hook(context, self._driver, lambda pid, seconds: self._ended_by(pid, now() + seconds))

    def _ended_by(self, pid: int, deadline: float) -> int | None:
        """Wait for a child; `None` when its time is over, or when the attempt has to end first."""
        was_ending = self._ending
        while (status := self._children.status(pid)) is None:
            if now() >= deadline or self._ending != was_ending:
                return None
            self._wait(deadline)
        return status

    # While it runs.

    def _watch(self) -> None:
        """Wait for the end of the command; on another node than the first, for a request to end."""
        while not self._done():
            self._enforce_lease()
            self._wait(min(self._lease.next(), self._sessions.next(), self._main_deadline()))
            self._check_main()
        if self._children.is_lost:
            raise SpawnerVanished("the process that waited for the command is gone")

    def _done(self) -> bool:
        if self._launch.role == OTHER or (self._launch.interactive and not self._sessions.main_name):
            return self._ending
        return self._children.is_over

    def _main_deadline(self) -> float:
        """Return until when the main session of an interactive job must be opened."""
        waits = self._launch.interactive and self._launch.role == FIRST and not self._sessions.main_name
        return self._began + MAIN_SECONDS if waits else _FAR

    def _check_main(self) -> None:
        """Note the process of the main session; end the job if nobody opens one."""
        if self._sessions.main and not self._children.main:
            self._children.main = self._sessions.main
        if now() >= self._main_deadline() and not self._ending:
            self._add_event("CANNOT_NOTIFY_OARSUB", f"nobody opened its shell within {MAIN_SECONDS:.0f} s")
            self._finish(KILLED, self._launch.grace)

    def _enforce_lease(self) -> None:
        """Send the checkpoint signal, end the job or kill it, as the lease says."""
        due = self._lease.due(now())
        if due == KILL:
            self._job_cgroup().kill()
        elif due == END:
            self._add_event("WALLTIME", f"the walltime of {self._lease.walltime} s is over")
            self._finish(WALLTIME, self._launch.grace)
        elif due == CHECKPOINT:
            self._checkpoint()

    def _wait(self, until: float, others: list[int] | None = None) -> None:
        """Wait for a request, a child that ended, a descriptor, or the instant `until`."""
        wait = min(max(until - now(), 0.0), _LONGEST_WAIT)
        fds = [self._wake, *self._children.fds(), *(others or [])]
        for frame in self._link.wait(fds, wait * 1000 + 1, sessions=self._sessions.watched()):
            self._handle_request(frame)
        drain(self._wake)
        self._children.reap()
        self._check_writer()
        if self._sessions:
            self._sessions.serve(self._report.outcome if self._ending else "", now=now())

    # What is asked of it.

    def _handle_request(self, frame: Frame) -> None:
        if frame.kind == RAW:
            self._sessions.receive(frame.number, frame.data)
            return
        try:
            body = frame.body()
            if str(body.get("verb")) in _SESSION_VERBS:
                self._handle_session(frame.number, body)
                return
            _VERBS.get(str(body.get("verb")), Supervisor._refuse_unknown)(self, body)
        except BadFrame as error:
            self._link.refuse(frame.number, NodeRequestRefused(BAD, str(error)))
        except NodeRequestRefused as refusal:
            self._link.refuse(frame.number, refusal)
        else:
            self._link.answer(frame.number, {"state": self._state})

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
        if self._state != "running" or self._ending:
            raise NodeRequestRefused(NOT_NOW, f"the job is {'ending' if self._ending else self._state} here")
        if request.is_main and not (self._launch.interactive and self._launch.role == FIRST):
            raise NodeRequestRefused(BAD, "the job is not interactive: it has no main session")
        launch = self._launch._replace(environment={**self._launch.environment, **request.environment})
        try:
            spec = self._command_spec(launch)
            self._sessions.open(number, request, spec, self._job_cgroup(), now() + launch.start_timeout)
        except CannotStart as failure:
            raise NodeRequestRefused(failure.event, str(failure)) from failure
        except OSError as error:
            raise NodeRequestRefused("EXIT_VALUE_OAREXEC", f"it cannot be started: {error}") from error

    def _refuse_unknown(self, body: Body) -> None:
        raise NodeRequestRefused(BAD, f"a supervisor has no verb {body.get('verb')!r}")

    def _do_kill(self, body: Body) -> None:
        grace = body.get("grace", self._launch.grace)
        self._finish(KILLED, grace if isinstance(grace, int) else self._launch.grace)

    def _do_end(self, _: Body) -> None:
        if self._launch.role != OTHER:
            raise NodeRequestRefused(
                NOT_NOW, "only a place on another node than the first is given back; the first is killed"
            )
        self._ending, self._report = True, self._report._replace(outcome=CLEANED)

    def _finish(self, outcome: str, grace: int) -> None:
        """Send TERM to the job; what is left after the grace is killed as a whole."""
        if not self._ending:
            self._ending, self._report = True, self._report._replace(outcome=outcome)
            self._note("KILLED")
            if self._lease.is_suspended:
                self._thaw()
            if self._group is not None:
                self._group.signal(signal.SIGTERM)
            self._sessions.hang_up_terminals()
        self._lease.finish(now(), grace)

    def _do_signal(self, body: Body) -> None:
        number = body.get("signal")
        if not isinstance(number, int) or not 0 < number < signal.NSIG:
            raise NodeRequestRefused(BAD, f"{number!r} is not the number of a signal")
        self._check_running()
        self._note(f"SIGNALED with {number}")
        self._signal(number)

    def _do_checkpoint(self, _: Body) -> None:
        self._check_running()
        self._checkpoint()

    def _checkpoint(self) -> None:
        number = self._launch.checkpoint_signal
        self._lease.signalled()
        self._note(f"CHECKPOINTED with signal {number}")
        self._signal(number)
        self._link.send_event({"event": "checkpointed", **self._describe()})
        self._add_event("CHECKPOINT_SUCCESS", f"signal {number} was sent")

    def _signal(self, number: int) -> None:
        group = self._job_cgroup()
        pids = group.pids()
        group.signal(number, [pid for pid in choose_targets(number, pids, self._children.main) if pid in pids])

    def _check_running(self) -> None:
        if self._state != "running" or self._ending or self._launch.role != FIRST:
            raise NodeRequestRefused(NOT_NOW, f"the job is {'ending' if self._ending else self._state} here")

    def _do_suspend(self, _: Body) -> None:
        if self._lease.is_suspended:
            return
        if self._state != "running" or self._ending:
            raise NodeRequestRefused(NOT_NOW, f"the job is {self._state} here; it cannot be suspended")
        try:
            self._job_cgroup().freeze()
        except (CgroupError, OSError) as error:
            raise NodeRequestRefused("SUSPEND_ERROR", str(error)) from error
        self._state = "suspended"
        self._lease.suspend(now())

    def _do_resume(self, _: Body) -> None:
        if not self._lease.is_suspended:
            return
        try:
            self._thaw()
        except (CgroupError, OSError) as error:
            raise NodeRequestRefused("RESUME_ERROR", str(error)) from error

    def _thaw(self) -> None:
        self._job_cgroup().thaw()
        self._lease.resume(now())
        self._state = "running"

    def _do_walltime(self, body: Body) -> None:
        seconds = body.get("seconds")
        if not isinstance(seconds, int) or seconds <= 0:
            raise NodeRequestRefused(BAD, f"{seconds!r} is not a walltime in seconds")
        self._lease.walltime = seconds

    def _add_event(self, event: str, says: str) -> None:
        self._report = self._report._replace(events=(*self._report.events, (event, says)))

    def _note(self, what: str) -> None:
        if self._stderr >= 0:
            self._notes.add(self._stderr, format_note(self._launch.job, what, time.localtime()))

    # The end.

    def _clean(self) -> None:
        """Kill what is left, remove the cgroup, then run the epilogue."""
        if self._report.started is not None:
            ran = self._lease.ran(now())
            self._report = self._report._replace(ended=time.time(), ran=ran, status=self._children.outcome)
        self._state = "ending"
        if self._group is not None:
            self._empty(self._group)
        self._sessions.finish("" if self._report.outcome == EXITED else self._report.outcome)
        self._run_epilogue()
        self._remove_files()
        if self._lingers:
            logind.release_user(self._launch.user, self._settings.node, self._entry.key)
        if self._stderr >= 0:
            if self._notes.pending:
                self._ended_by(self._notes.pid, now() + _NOTES_SECONDS)
                self._check_writer()
            os.close(self._stderr)

    def _check_writer(self) -> None:
        """Write the notes that waited for an earlier one, if that is written by now."""
        if self._notes.pid and self._children.status(self._notes.pid) is not None:
            self._notes.pid = 0
            self._notes.go_on(self._stderr)

    def _empty(self, group: JobCgroup) -> None:
        try:
            if self._is_empty(group):
                self._children.reap()
                counters = group.counters()
                self._report = self._report._replace(counters=counters)
                self._report_memory_kills(int(counters.get("memory_oom_kills_total", 0)))
                group.remove()
            else:
                left = f"processes are left in {group.path}: {group.pids()[:5]}"
                self._add_event("CPUSET_CLEAN_ERROR", left)
        except (CgroupError, OSError) as error:
            self._blame_manager("CPUSET_CLEAN_ERROR", error)
            self._add_event("CPUSET_CLEAN_ERROR", str(error))

    def _report_memory_kills(self, kills: int) -> None:
        """Report to the server, and to the user in stderr, that the kernel killed processes of the job for memory."""
        if not kills:
            return
        says = memory_kill(kills, self._launch.limits.memory)
        self._add_event("OUT_OF_MEMORY", says)
        self._note(f"OUT OF MEMORY: {says}")

    def _is_empty(self, group: JobCgroup) -> bool:
        if group.wait_empty(0):
            return True
        self._link.flush_now()
        return job_cgroup.kill_and_wait(group)

    def _send_report(self) -> None:
        body = sign_report(self._report._replace(suspended=self._lease.suspended), self._launch.secret)
        text = encode_body({"event": "exited", **body}).encode()
        self._save(text)
        self._link.send_event(text)

    def _save(self, report: bytes) -> None:
        """Write the report to the spool; on a full disk, send it at once and retry until there is room."""
        while True:
            try:
                # A connected program passes it to the server soon; without one it must survive a power cut (fsync).
                self._entry.write(report, durable=not self._link.connected)
            except OSError:
                self._link.send_event(report)
                self._wait(now() + _LONGEST_WAIT)
            else:
                return


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
