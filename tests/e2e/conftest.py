"""What whole instances stand on."""

import itertools
import os

import pytest

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
