"""The planning process: reads passes on its line, answers decisions; ends when its server does."""

import os
import signal
import socket
import sys
import traceback
from typing import BinaryIO

import msgspec

from oarlock.server.planning import LENGTH, Asked, Helper, plan
from oarlock.store.database import Database
from oarlock.store.opening import place


def main(asking: BinaryIO, answering: BinaryIO) -> None:
    """Plan until the other end closes; a pass that fails ends the process, and the server starts another."""
    opened: dict[str, Database] = {}
    while body := _read(asking):
        asked = msgspec.msgpack.decode(body, type=Asked)
        if asked.where not in opened:
            opened[asked.where] = Database(place(asked.where))
        answer = msgspec.msgpack.encode(plan(opened[asked.where], asked, depth=None))
        answering.write(len(answer).to_bytes(LENGTH, "big") + answer)
        answering.flush()


def _read(stream: BinaryIO) -> bytes:
    length = stream.read(LENGTH)
    return stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH else b""


def forked() -> Helper:
    """Fork a planning process: what the server has loaded it need not load again.

    Only for a process without threads, open files and children of its own: a server that has just been started.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            ours.close()
            main(theirs.makefile("rb"), theirs.makefile("wb"))
        except BrokenPipeError:  # the server went away during a pass
            pass
        except Exception:  # noqa: BLE001 - the boundary of a forked child
            traceback.print_exc()
        finally:
            os._exit(0)
    theirs.close()
    return Helper(ours, lambda: os.kill(pid, signal.SIGKILL), lambda: os.waitpid(pid, 0))


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
