"""`python -m bench [ONLY=name]`: measure, tell a line a figure, write `build/bench.json`.

Ends with 0 when everything holds, 1 when a target is missed or something could not be measured, 2 when there is no
figure of that name.
"""

import sys
from pathlib import Path

from bench.harness import FIGURES, Outcome, all_hold, chosen, discover, measured, write

RESULTS = Path("build/bench.json")


def main(arguments: list[str]) -> int:
    """Run the figures that were asked for."""
    only = arguments[0].removeprefix("ONLY=") if arguments else ""
    outcomes: list[Outcome] = [*discover()]
    for broken in outcomes:
        print(broken.full_text())
    figures = chosen(only)
    if only and not figures:
        print(f"There is no figure named {only}; there are: {', '.join(FIGURES) or 'none yet'}.", file=sys.stderr)
        return 2
    for asked in figures:
        outcomes.append(outcome := measured(asked))
        print(outcome.full_text(), flush=True)
    write(outcomes, RESULTS)
    return 0 if all_hold(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
