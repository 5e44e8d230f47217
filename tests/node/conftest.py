"""What the tests of the node share."""

import pytest

from tests import bed


@pytest.fixture
def ground():
    with bed.open_directory() as path:
        yield path


@pytest.fixture
def site():
    with bed.site_directory() as path:
        yield path


@pytest.fixture(scope="session")
def people():
    """Two accounts that may run jobs."""
    with bed.accounts() as names:
        yield names
