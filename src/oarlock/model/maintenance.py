"""Maintenance: a window in which resources are kept free of jobs."""

from msgspec import Struct

from oarlock.model.errors import OarlockError


class UnknownWindow(OarlockError):
    """A maintenance window that is not there."""

    http_status = 404


class BadWindow(OarlockError):
    """A maintenance window that cannot be."""


class Maintenance(Struct, frozen=True):
    """A window [start, stop) as an administrator said it; `where` is a condition on resources, nothing for all."""

    id: int
    name: str
    start: int
    stop: int
    where: str
    by: str
