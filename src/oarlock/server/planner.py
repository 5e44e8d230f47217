"""The planning process: reads passes on its standard input, answers decisions; ends when its server does."""

import sys
from typing import BinaryIO

import msgspec

from oarlock.server.planning import Asked, plan
from oarlock.store.database import Database
from oarlock.store.opening import place

_LENGTH = 4


def main() -> None:
    """Plan until the other end closes; a pass that fails ends the process, and the server starts another."""
    opened: dict[str, Database] = {}
    while body := _read(sys.stdin.buffer):
        asked = msgspec.msgpack.decode(body, type=Asked)
        if asked.where not in opened:
            opened[asked.where] = Database(place(asked.where))
        answer = msgspec.msgpack.encode(plan(opened[asked.where], asked, depth=None))
        sys.stdout.buffer.write(len(answer).to_bytes(_LENGTH, "big") + answer)
        sys.stdout.buffer.flush()


def _read(stream: BinaryIO) -> bytes:
    length = stream.read(_LENGTH)
    return stream.read(int.from_bytes(length, "big")) if len(length) == _LENGTH else b""


if __name__ == "__main__":
    main()
