"""`oarlock serve --standby` that dies at a point of its take-over. Arguments: its number, then those of `serve`."""

import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from oarlock.cli.oarlock import main as oarlock
from oarlock.failpoints import armed
from oarlock.server import serve
from tests.crash.interrupted import also_at_statements, end_at


def main(number: int, words: list[str]) -> int:
    """Stand by as usual; count points from the moment in which no other server holds the database."""
    wait, state = serve.wait_for_turn, Path(words[words.index("--state") + 1])
    with ExitStack() as stack:

        def wait_and_count(*given: object) -> None:
            wait(*given)  # type: ignore[arg-type]
            point = end_at(number, state)
            also_at_statements(point)
            stack.enter_context(armed(point))

        with patch.object(serve, "wait_for_turn", wait_and_count):
            return oarlock(words)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
