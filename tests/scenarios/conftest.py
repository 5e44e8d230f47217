"""Virtual clusters for stories."""

from collections.abc import Callable, Iterator

import pytest

from oarlock.store.memory import MemoryDatabase
from tests.scenarios.cluster import Cluster


@pytest.fixture
def make() -> Iterator[Callable[..., Cluster]]:
    """Make clusters, each with a database of its own."""
    opened = []

    def cluster(**settings: object) -> Cluster:
        opened.append(MemoryDatabase())
        return Cluster(opened[-1], **settings)  # type: ignore[arg-type]

    yield cluster
    for database in opened:
        database.close()


@pytest.fixture
def cluster(make: Callable[..., Cluster]) -> Cluster:
    return make()
