"""Refuse commit subjects that are too long to be read in a list: those since a named commit.

Where the history is not there (a shallow clone, an archive) it says that it could not look. Standard library only.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SINCE = "42c805475413b31265654bdfff4a6c54138bcad1"
"""The last commit that was written before the rule; older subjects may be longer."""

LONGEST = 72


def too_long(lines: Iterable[str]) -> list[str]:
    """Return a complaint for each line `HASH SUBJECT` whose subject is too long."""
    pairs = (line.partition(" ")[::2] for line in lines)
    return [
        f"commit {commit}: its subject has {len(subject)} characters, at most {LONGEST} are allowed: {subject}"
        for commit, subject in pairs
        if len(subject) > LONGEST
    ]


def subjects(root: Path, since: str) -> list[str] | None:
    """Return `HASH SUBJECT` of every commit after one; None where that part of the history is not there."""
    try:
        listed = subprocess.run(
            ["git", "-C", root, "log", "--no-merges", "--format=%h %s", f"{since}..HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return listed.stdout.splitlines() if listed.returncode == 0 else None


def main() -> int:
    """Check the commits; return 1 and print the complaints if there are any."""
    lines = subjects(ROOT, SINCE)
    if lines is None:
        print(f"Commit subjects were not looked at: commit {SINCE[:10]} is not in this clone, or git is not here.")
        return 0
    complaints = too_long(lines)
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
