"""Attempts that a node knows and the database does not: it was restored, or begun anew, while they were there."""

from msgspec import Struct

from oarlock.model.errors import OarlockError


class UnknownAttempt(Struct, frozen=True, kw_only=True):
    """A job on a node that another generation of the database began."""

    id: int = 0
    node: str
    job: int
    attempt: int
    tag: str  # the fingerprint of its secret; empty if this server did not sign what the node says of it
    generation: str = ""
    user: str = ""
    since: int = 0  # when it was first heard of, epoch seconds
    walltime: int = 0  # seconds; 0 if it is not known
    resources: tuple[int, ...] = ()  # those of the node that it holds; empty if it is not known
    alive: bool = True


class NoUnknownAttempt(OarlockError):
    """An unknown attempt that is not there."""

    http_status = 404

    def __init__(self, number: int) -> None:
        super().__init__(f"There is no unknown job {number}.", hint="`oarlock unknown list` lists them.")
