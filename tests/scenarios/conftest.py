"""Virtual clusters for stories."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oarlock.store.opening import open_database
from tests.scenarios.cluster import Cluster


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "oarlock.db"
    open_database(path, create=True).close()
    return path


@pytest.fixture
def make(empty: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Make clusters, each with a database of its own."""
    opened = []

    def cluster(**settings: object) -> Cluster:
        place = tmp_path_factory.mktemp("state")
        for ending in ("", ".created"):
            shutil.copy(f"{empty}{ending}", place)
        opened.append(open_database(place / empty.name))
        return Cluster(opened[-1], **settings)  # type: ignore[arg-type]

    yield cluster
    for database in opened:
        database.close()


@pytest.fixture
def cluster(make: Callable[..., Cluster]) -> Cluster:
    return make()
