"""Where tests with real accounts work: who may run jobs, and directories that others can, or cannot, enter and write.

pytest's own directories are root's alone, however deep one's own lies in them: a job of another account has no way in.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import bed


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory that every account can enter."""
    with bed.open_directory() as path:
        yield path


@pytest.fixture(scope="module")
def shared_workspace() -> Iterator[Path]:
    """A directory that every account can enter, for all tests of a module."""
    with bed.open_directory() as path:
        yield path


@pytest.fixture
def site() -> Iterator[Path]:
    """A directory that root alone can write, with every directory above it."""
    with bed.site_directory() as path:
        yield path


@pytest.fixture(scope="session")
def two_users() -> Iterator[tuple[str, str]]:
    """Two accounts that may run jobs."""
    with bed.accounts() as names:
        yield names
