"""Servers for tests of the way in, on both databases."""

from tests.store.conftest import database, place, postgres, sqlite_path, sqlite_template

__all__ = ["database", "place", "postgres", "sqlite_path", "sqlite_template"]
