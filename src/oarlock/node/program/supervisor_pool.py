"""Supervisors that are kept and used again, and the small process that makes them.

A fork costs by the size of who forks, so a launcher is forked before the node program grows. It holds nothing of the
channel: what it makes outlives the connection.
"""

from __future__ import annotations

import gc
import os
import pwd
import signal
import socket
from collections.abc import Callable
from functools import partial

from oarlock.node.attempt import sensor, spool
from oarlock.node.attempt.link import ProgramLink, receive_with_fd
from oarlock.node.attempt.supervisor import Supervisor
from oarlock.node.attempt.user import notice, output
from oarlock.node.cgroup import drivers
from oarlock.node.cgroup.base import CgroupDriver
from oarlock.node.wire.channel import BadFrame, Body, Frame
from oarlock.node.wire.messages import (
    BAD,
    FIRST,
    Launch,
    NodeRequestRefused,
    NodeSettings,
    check_site_programs,
    parse_launch,
)

_UNTOUCHED = {signal.SIGKILL, signal.SIGSTOP, 32, 33}
"""Signals that cannot be changed, or that libc keeps."""


def start_launcher(settings: NodeSettings, fence: Callable[[], CgroupDriver], boot: str) -> socket.socket:
    """Fork the launcher; return the socket on which it is sent one end of a socket pair for each new supervisor.

    On return it is where it stays. `fence` is asked there: where systemd runs, the place of all groups begins with it.
    """
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        _alone(keep=theirs.fileno())
        _warm_up()
        # Before the driver looks for groups: where systemd runs, ours begin with the scope that we enter here.
        drivers.leave_login_session(settings.node, drivers.mounted(), systemd=_systemd_is_ours())
        driver = fence()
        theirs.send(b"!")
        _launcher(theirs, settings, driver, boot)
    theirs.close()
    ours.recv(1)
    return ours


def _systemd_is_ours() -> bool:
    """Return whether systemd is PID 1 and we may give it commands."""
    return os.geteuid() == 0 and os.path.isdir("/run/systemd/system")


def _alone(*, keep: int) -> None:
    """Leave the session and every descriptor of the connection, which would otherwise be held open by us."""
    # A session of our own: the end of the ssh login sends HUP to its session.
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != keep:
            try:
                os.close(fd)
            except OSError:
                continue


def _warm_up() -> None:
    """Load once what every child would load again, and keep the collector from touching pages they share."""
    import array  # noqa: F401 - descriptors are sent with it

    plain_signals()
    name = pwd.getpwuid(os.geteuid()).pw_name
    os.getgrouplist(name, os.getegid())
    gc.freeze()
    gc.disable()


def plain_signals() -> None:
    """Ignore nothing and block nothing, so that jobs begin with plain signals.

    What Python ignores gets a handler that does nothing: a write to a closed pipe still fails without ending us, and
    a handler, other than an ignored signal, does not outlive exec.
    """
    for number in range(1, signal.NSIG):
        if number not in _UNTOUCHED and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _launcher(orders: socket.socket, settings: NodeSettings, driver: CgroupDriver, boot: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors
    while True:
        order, line = receive_with_fd(orders, 1)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            _supervisor(socket.socket(fileno=line), settings, driver, boot)
        os.close(line)


def _supervisor(line: socket.socket, settings: NodeSettings, driver: CgroupDriver, boot: str) -> None:
    """Serve requests of the line, one attempt after the other, until it is closed."""
    try:
        os.setsid()
        wake = _woken_by_children()
        link = ProgramLink(line)
        supervisor = Supervisor(settings, driver, boot, link, wake)
        notify = partial(notice.run, driver=driver, wake=wake, lowest_uid=settings.lowest_uid)
        sense = partial(sensor.run, node=settings.node, driver=driver, wake=wake)
        show = partial(output.run, wake=wake, lowest_uid=settings.lowest_uid)
        while True:
            for frame in link.wait([], -1):
                _attempt(link, supervisor, settings, frame, notify, sense, show)
            if not link.connected:
                break
    finally:
        os._exit(0)


def _woken_by_children() -> int:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written to the wake-up descriptor
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _attempt(
    link: ProgramLink,
    supervisor: Supervisor,
    settings: NodeSettings,
    frame: Frame,
    notify: Callable[[notice.Notice], str],
    sense: Callable[[sensor.SensorRequest], Body],
    show: Callable[[output.OutputRequest], Body],
) -> None:
    """Handle a request: run one attempt, or one program of a user or of the site, or read an output."""
    try:
        body = frame.body()
        if body.get("verb") == "notify":
            link.answer(frame.number, {"says": notify(notice.read(body))})
            return
        if body.get("verb") == "sense":
            link.answer(frame.number, sense(sensor.read(body, settings)))
            return
        if body.get("verb") == "output":
            link.answer(frame.number, show(output.read(body)))
            return
        launch = parse_launch(body)
        check_site_programs(launch, settings.programs)
        entry = _enter(settings, launch, frame.data)
    except BadFrame as error:
        link.refuse(frame.number, NodeRequestRefused(BAD, str(error)))
    except NodeRequestRefused as refusal:
        link.refuse(frame.number, refusal)
    else:
        # A script of the site may take its time before the next word, and other nodes are waited for.
        quick = launch.role == FIRST and not (launch.hooks.prologue or launch.hooks.manager)
        link.answer(frame.number, {"state": "launching"}, may_wait=quick)
        try:
            supervisor.run(launch, entry)
        except Exception as error:
            # Nobody reads our stderr; the program that finds the attempt orphaned reads this.
            entry.write({"crash": f"{type(error).__name__}: {error}"})
            raise
        finally:
            link.flush_now()  # also after a failure, queued frames are sent
            link.serve(None)
            entry.close()


def _enter(settings: NodeSettings, launch: Launch, text: bytes) -> spool.SpoolEntry:
    try:
        return spool.create_entry(settings.spool, (launch.job, launch.attempt), text, settings.spool_key)
    except FileNotFoundError as error:  # the directory is gone; it was made when the program started
        raise NodeRequestRefused("CANNOT_CREATE_TMP_DIRECTORY", f"{settings.spool}: {error}") from error
    except OSError as error:
        raise NodeRequestRefused("CAN_NOT_WRITE_PID_FILE", f"{settings.spool}: {error}") from error
