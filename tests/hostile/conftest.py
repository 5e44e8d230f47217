"""A server with two real users, one of whom means no good."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import address  # noqa: F401 - both databases
from tests.e2e.instance import Instance, instance

Request = tuple[str, str, Any]
Ask = Callable[[str, Sequence[Request]], list[tuple[int, str]]]
PROGRAM = Path(__file__).with_name("asking.py")


@pytest.fixture
def site(workspace, two_users, address) -> Iterator[Instance]:  # noqa: F811
    """A server that serves, on SQLite and on PostgreSQL."""
    more = {"JOB_MIN_UID": 1, "LOG_LEVEL": 3}
    with instance(workspace, two_users[0], f"h{os.getpid()}n", nodes=2, more=more, address=address) as made:
        made.serve()
        yield made


@pytest.fixture
def ask(site: Instance) -> Ask:
    """Send requests as a user; return the status and the text of each answer."""

    def sent(user: str, requests: Sequence[Request]) -> list[tuple[int, str]]:
        uid = pwd.getpwnam(user).pw_uid
        done = subprocess.run(
            [sys.executable, "-IS", PROGRAM, site.state / "server.sock", str(uid)],
            input=json.dumps(list(requests)),
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return [(status, text) for status, text in json.loads(done.stdout)]

    return sent
