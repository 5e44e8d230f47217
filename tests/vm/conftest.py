"""Virtual nodes, started once and shared where a test does them no harm."""

import pytest

from tests.vm import image as images
from tests.vm import machine as machines


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
