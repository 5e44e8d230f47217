"""What whole instances stand on."""

import itertools
import os
import sys
from pathlib import Path

import pytest

from oarlock.cli.commands import module_name
from tests.bed import accounts
from tests.e2e.instance import instance

_NUMBERS = itertools.count()


@pytest.fixture
def site(workspace, two_users):
    """An instance whose server was not started yet."""
    with instance(workspace, two_users[0], f"e{os.getpid()}x{next(_NUMBERS)}n") as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request):
    """An empty database of PostgreSQL; nothing means SQLite."""
    if request.param == "sqlite":
        yield ""
        return
    postgres = request.getfixturevalue("postgres")
    url = postgres.make(template="template0")
    yield url
    postgres.drop(url)


@pytest.fixture(scope="module")
def users():
    """Two accounts with a shell that people use."""
    names = tuple(f"oarin{os.getpid() % 100000}{letter}" for letter in "ab")
    with accounts(shell="/bin/bash", names=names) as made:
        yield made


@pytest.fixture(scope="module")
def shop(shared_workspace, users):
    """An instance that serves, for all tests of a module that leave it as it was."""
    more = {"COSYSTEM_HOSTNAME": "127.0.0.1", "DEPLOY_HOSTNAME": "127.0.0.1", "SESSIONS_PER_USER": 8}
    with instance(shared_workspace, users[0], f"i{os.getpid()}x{next(_NUMBERS)}n", nodes=2, more=more) as made:
        made.serve()
        yield made


@pytest.fixture
def own(workspace, users):
    """An instance that serves, for tests that kill it."""
    with instance(workspace, users[0], f"i{os.getpid()}x{next(_NUMBERS)}n", nodes=1) as made:
        made.serve()
        yield made


@pytest.fixture(scope="module")
def programs(shared_workspace) -> Path:
    """A folder with both commands, as an installation has them, that every account can enter."""
    folder = shared_workspace / "bin"
    folder.mkdir()
    for name in ("oarsh", "oarcp"):
        path = folder / name
        code = f"import sys; from {module_name(name)} import main; sys.exit(main())"
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
        path.chmod(0o755)
    return folder
