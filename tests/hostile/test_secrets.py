"""What belongs to one user shows nowhere that another can look: a canary in every private text of a job."""

import re
from pathlib import Path

import pytest

from oarlock.web.registry import VERBS
from oarlock.web.verbs import __all__ as _registered  # noqa: F401 - fills the registry
from tests.bed import needs_root
from tests.hostile.asking import PRIVATE_PAGES

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.hostile, pytest.mark.timeout(300)]

CANARY = "canary7f3a91"
ADDRESS = "whom5c02d4"
"""Of a mail: administrators may read in their log that it could not be sent."""


def private_job(home: str) -> dict[str, object]:
    """A submission whose private texts all hold the canary."""
    return {
        "command": f"echo {CANARY}; sleep 60",
        "environment": {"TOKEN": CANARY},
        "initial_request": f"oarsub 'echo {CANARY}; sleep 60'",
        "resources": ["/core=1,walltime=0:2:0"],
        "directory": home,
        "stdout": "/dev/null",
        "notify": f"mail:{ADDRESS}@lab.example",
    }


def owned_by_root() -> list[str]:
    """Return the argument lists of root's processes, which everybody may read."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == 0:
                found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def test_a_canary_in_private_texts_shows_to_nobody_else(site, ask, two_users):
    owner, other = two_users
    [(status, text)] = ask(owner, [("POST", "/api/v1/jobs", private_job(str(site.home)))])
    assert status == 200, text
    number = int(re.search(r"\[(\d+)\]", text)[1])
    site.until(lambda: "Running" in site.story(number))
    gets = [verb for verb in VERBS.values() if verb.method == "GET"]
    paths = [verb.path.format(id=number, name=site.nodes[0]) for verb in gets]
    asked = [("GET", f"/api/v1{path}" if not path.startswith("/metrics") else path, None) for path in paths]
    asked += [("GET", f"/api/v1/jobs?full=1&where=command%20like%20%27%25{CANARY}%25%27", None)]
    asked += [("GET", page.format(id=number, node=site.nodes[0]), None) for page in PRIVATE_PAGES]
    answers = ask(other, asked)
    leaks = [path for (_, path, _), (_, text) in zip(asked, answers, strict=True) if CANARY in text or ADDRESS in text]
    assert leaks == []
    [(status, own)] = ask(owner, [("GET", f"/api/v1/jobs/{number}", None)])
    assert (status, CANARY in own) == (200, True)  # its owner sees it: the test looks in the right places
    assert CANARY not in site.log()
    assert [line for line in owned_by_root() if CANARY in line and "asking.py" not in line] == []
    modes = {path.stat().st_mode & 0o077 for path in site.state.glob("oarlock.db*")}
    assert modes <= {0}
    site.delete(number)
