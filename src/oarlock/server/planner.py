"""The planning process: reads passes on its line, answers decisions; ends when its server does."""

import sys
from typing import BinaryIO

import msgspec

from oarlock.server.planning import LENGTH, Asked, plan
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


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
