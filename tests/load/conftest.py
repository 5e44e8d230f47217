"""Both databases, for servers under load."""

from tests.e2e.conftest import address

__all__ = ["address"]
