"""Verbs about the site: which server this is."""

from msgspec import Struct

import oarlock
from oarlock.web.call import Call
from oarlock.web.policy import May
from oarlock.web.reading import Asked
from oarlock.web.verb import verb


class Nothing(Asked):
    """Nothing has to be said."""


class Version(Struct, frozen=True):
    """Which server answers, and what time it thinks it is."""

    version: str
    cluster: str
    now: int


@verb(
    "version", "GET /version", may=May.ANYBODY, asks=Nothing, answers=Version,
    says="Say which server this is and what its clock shows.",
)  # fmt: skip
async def version(call: Call, _asked: Nothing) -> Version:
    """Answer without looking at the database, so that it answers when nothing else does."""
    return Version(oarlock.__version__, call.core.config.cluster_name, call.now)
