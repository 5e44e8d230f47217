"""What whole instances stand on."""

import itertools
import os

import pytest

from tests.e2e.instance import instance

_NUMBERS = itertools.count()


@pytest.fixture
def site(ground, people):
    """An instance whose server was not started yet."""
    with instance(ground, people[0], f"e{os.getpid()}x{next(_NUMBERS)}n") as made:
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
