"""Virtual clusters for stories."""

from collections.abc import Callable, Iterator

import pytest

from oarlock.store.engine.opening import MemoryDatabase
from tests.scenarios.cluster import Cluster


@pytest.fixture(autouse=True)
def _plans_are_kept_well(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What is kept between passes never fails, nor does it differ from a pass from scratch."""
    yield
    assert [one for one in caplog.get_records("call") if one.name == "oarlock.job.plan_cache"] == []


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
