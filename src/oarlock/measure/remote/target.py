"""The engine that series are written to, and what is needed to do so."""

from importlib.util import find_spec

from msgspec import Struct

from oarlock.model.errors import ConfigRefused


class RemoteTarget(Struct, frozen=True):
    """Where series go: the address, the token and the tenant that it wants, and the cluster's name as a label."""

    url: str
    token: str = ""
    tenant: str = ""
    cluster: str = ""


def check_installed() -> None:
    """Refuse the setting where what it needs is not installed."""
    if find_spec("cramjam") is None:
        raise ConfigRefused(
            "REMOTE_WRITE_URL is set, and cramjam is not installed, which compresses what is written there.",
            hint="Install `oarlock[remote]` on the server, or leave REMOTE_WRITE_URL empty.",
        )
