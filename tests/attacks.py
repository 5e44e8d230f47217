"""Which tests the page about security names: of them `make hostile` is made, beside the attacks on whole servers."""

import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs/how-it-works/security-rules.md"


@cache
def hostile_names() -> frozenset[str]:
    """Return the names of test files, and of single tests (`file::test`), below `tests/`."""
    names: set[str] = set()
    for row in PAGE.read_text().splitlines():
        file = ""
        for name in re.findall(r"`([^`\s]*\.py(?:::\w+)?|::\w+)`", row) if row.startswith("|") else ():
            file = file if name.startswith("::") else name.partition("::")[0]
            names.add(f"{file}{name}" if name.startswith("::") else name)
    return frozenset(names)
