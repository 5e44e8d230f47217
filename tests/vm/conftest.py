"""Virtual machines, started once and shared where a test does them no harm; clusters of them."""

import pytest

from tests.releases import RELEASES
from tests.vm import cluster as clusters
from tests.vm import image as images
from tests.vm import machine as machines
from tests.vm import packages


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show what the machines of a cluster logged, while they are there."""
    report = yield
    if report.when == "call" and report.failed:
        made = [value for value in item.funcargs.values() if isinstance(value, clusters.Cluster)]
        report.sections += [("machines", cluster.logs()) for cluster in made]
    return report


@pytest.fixture(scope="session")
def image():
    return images.built()


@pytest.fixture(scope="session")
def shared(image, tmp_path_factory):
    """The first node. It stays up, so whoever uses it leaves it as it was."""
    with machines.machine(image, tmp_path_factory.mktemp("vm"), "n1") as made:
        yield made


@pytest.fixture
def fresh(image, tmp_path):
    """The second node, as it was after its first boot: to be broken."""
    with machines.machine(image, tmp_path, "n2") as made:
        yield made


@pytest.fixture(scope="session")
def site_image():
    return images.built(images.SITE)


@pytest.fixture(scope="session")
def bare(site_image):
    """Open a cluster of three bare machines in a folder."""
    return lambda workspace: clusters.cluster(site_image, workspace)


@pytest.fixture(scope="session")
def installed(site_image):
    """Where the machines of an installed cluster are saved, the server stopped; maybe not yet."""
    return clusters.checkpoint(site_image, "installed", packages.sum_of_tree())


@pytest.fixture
def stopped(site_image, installed, tmp_path):
    """A cluster as the page leads to, the server stopped: to be broken. It is installed now if no test has done it."""
    with clusters.from_checkpoint(site_image, tmp_path, installed, lambda: packages.of_this_tree()[0]) as made:
        yield made


@pytest.fixture
def cluster(stopped):
    """Such a cluster, which serves."""
    stopped.head.run("systemctl start oarlock", seconds=clusters.PATIENCE)
    return stopped


@pytest.fixture
def released(site_image, tmp_path):
    """Such a cluster of the last release, which serves."""
    release = RELEASES[0]
    release.require_commit()
    place = clusters.checkpoint(site_image, "released", release.commit)
    with clusters.from_checkpoint(site_image, tmp_path, place, lambda: packages.of_release(release)[0]) as made:
        made.head.run("systemctl start oarlock", seconds=clusters.PATIENCE)
        yield made
