"""Processes of ours that work on files of a job's user, as that user: they unpack what it needs, pack what it wrote."""

from __future__ import annotations

import os
import signal
import socket
from typing import Callable

from oarlock.node.archive import BadArchive
from oarlock.node.attempt.user.command import (
    CannotStart,
    CommandSpec,
    StartedCommand,
    close_others,
    look_up_and_send,
    raise_oom_score,
    run_step,
    send_failure,
    status_sockets,
)
from oarlock.node.attempt.user.identity import become

Work = Callable[[socket.socket], None]
"""What the process does; it may send messages on the socket."""


def start(
    spec: CommandSpec, join: Callable[[], None], work: Work, *, keep: int, event: str, failed: str
) -> StartedCommand:
    """Fork a process that becomes the user and works; the descriptor `keep` stays open in it.

    It reports a failure on its socket, as a child on its way to a command does, with this event; `failed` begins the
    sentence.
    """
    ours, theirs = status_sockets()
    pid = os.fork()
    if pid == 0:
        _child(spec, join, work, theirs, keep, event, failed)
    theirs.close()
    return StartedCommand(pid, ours)


def _child(
    spec: CommandSpec, join: Callable[[], None], work: Work, status: socket.socket, keep: int, event: str, failed: str
) -> None:
    """Work and exit: a child never returns into the code that forked it."""
    try:
        _become_user(spec, join, status, keep)
        work(status)
        os._exit(0)
    except CannotStart as failure:
        send_failure(status, failure.event, str(failure))
    except BadArchive as failure:
        send_failure(status, event, f"{failed}: {failure}")
    except OSError as failure:
        where = f"{failure.filename}: " if isinstance(failure.filename, str) else ""
        send_failure(status, event, f"{failed}: {where}{failure.strerror or failure}")
    except BaseException as failure:  # noqa: BLE001 - the boundary of a forked child
        send_failure(status, event, f"{type(failure).__name__}: {failure}")
    finally:
        os._exit(1)


def _become_user(spec: CommandSpec, join: Callable[[], None], status: socket.socket, keep: int) -> None:
    os.setsid()
    run_step("CPUSET_ERROR", join)
    user = spec.account or look_up_and_send(spec, status)
    raise_oom_score()
    os.umask(0o022)
    close_others(keep=(status.fileno(), keep))
    become(user)
    signal.signal(signal.SIGTERM, _end)  # who is told to end takes away what it has made


def _end(*_: object) -> None:
    raise InterruptedError("it was told to end")
