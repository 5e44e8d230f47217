"""`oarlock serve` that dies at a failpoint. Arguments: which one it passes since its start, then those of `serve`."""

import itertools
import os
import sys

from oarlock.cli.oarlock import main as oarlock
from oarlock.failpoints import armed
from tests.crash.interrupted import DEAD


def main(number: int, words: list[str]) -> int:
    """Serve as usual until the failpoint, in whichever thread that is."""
    passed = itertools.count(1)

    def point(name: str, node: str) -> None:
        if next(passed) == number:
            print(f"died at failpoint {number}:", name, node, file=sys.stderr, flush=True)
            os._exit(DEAD)

    with armed(point):
        return oarlock(words)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
