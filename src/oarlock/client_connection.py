"""Where a server is, who asks it, and how a connection is opened: sockets, TLS, tokens, munge. Standard library only.

As in `client.py`, a command pays for every import each time it runs.
"""

from __future__ import annotations

import _socket
import os

TYPE_CHECKING = False  # importing `typing` costs as much as half a command
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "OARLOCK_SERVER"
TOKEN_VARIABLE = "OARLOCK_TOKEN"  # noqa: S105 - the name of a variable
CA_VARIABLE = "OARLOCK_CA"
MUNGE_VARIABLE = "OARLOCK_MUNGE"
MUNGE_SOCKET = "/run/munge/munge.socket.2"
"""Where munge listens, if it does; the variable names another socket."""
SYSTEM_SOCKET = "/var/lib/oarlock/server.sock"
SERVER_FILE = "/etc/oarlock/server"
"""On a login host: the addresses of the site's servers, in one line. `oarlock setup login` writes it."""
CA_FILE = "/etc/oarlock/ca.pem"
PORT = 6680

CONNECT_SECONDS = 2.0
"""How long a server that refuses connections is given to come back; a restart takes less."""


class RequestRefused(Exception):
    """A refusal: a sentence to a person, the way out, and the kind that exit codes are found by.

    `text` is what the server could not read, where it says so.
    """

    def __init__(self, sentence: str, *, kind: str, hint: str = "", text: str | None = None) -> None:
        super().__init__(sentence)
        self.kind, self.hint, self.text = kind, hint, text


def default_server() -> str:
    """Return the socket of a plain user's own instance where there is one, else what this login host is set to, else
    the system's socket."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    own = f"{state}/oarlock/server.sock"
    if os.geteuid() != 0 and os.path.exists(own):
        return own
    try:
        with open(SERVER_FILE) as file:
            return file.readline().strip() or SYSTEM_SOCKET
    except OSError:
        return SYSTEM_SOCKET


def _site_authority() -> str | None:
    return CA_FILE if os.path.exists(CA_FILE) else None


def addresses(server: str) -> list[tuple[str, tuple[str, str, int, str] | None]]:
    """Split the addresses of a site's servers: each as it is written, and what it stands for if it is no socket."""
    several = [server] if os.path.exists(server) else [part.strip() for part in server.split(",") if part.strip()]
    return [(where, parse_url(where) if "://" in where else None) for where in several or [server]]


def parse_url(server: str) -> tuple[str, str, int, str]:
    """Split an address into host (as a header has it), name, port and path prefix."""
    scheme, _, rest = server.partition("://")
    host, _, path = rest.partition("/")
    name, colon, port = host.rpartition(":")
    if not colon or name.endswith(":") or host.endswith("]"):
        name, port = host, str(PORT)
    if scheme not in {"http", "https"} or not name or not port.isdecimal() or not host.isascii():
        raise RequestRefused(
            f"`{server}` is not the address of a server.",
            kind="BadAddress",
            hint=f"Give the path of a socket, or https://NAME:{PORT}, or http:// behind an ssh tunnel.",
        )
    return host, name.strip("[]"), int(port), f"/{path}".rstrip("/")


def token_file() -> str:
    """Return where a user's token for the network is kept."""
    return f"{os.environ.get('XDG_CONFIG_HOME') or os.path.expanduser('~/.config')}/oarlock/token"


def user_token() -> str | None:
    """Return the user's token; None if there is none, but munge, which says who asks as well."""
    token = os.environ.get(TOKEN_VARIABLE) or _kept_token()
    if not token and os.path.exists(_munge_socket()):
        return None
    if not token or not token.isascii() or not token.isprintable():
        raise RequestRefused(
            f"A server that is reached over the network needs a token: neither ${TOKEN_VARIABLE} nor {token_file()} "
            "has one.",
            kind="NoToken",
            hint="`oarlock token add NAME --save`, on the machine of the server, makes one. Or is munge stopped here?",
        )
    return token


def _munge_socket() -> str:
    return os.environ.get(MUNGE_VARIABLE) or MUNGE_SOCKET


def munge_credential(request: str) -> str:
    # Late: nobody with a token, or on the socket, pays for it.
    from oarlock.munge import CredentialRefused, MungeAway, encode

    try:
        return encode(request.encode(), _munge_socket())
    except (MungeAway, CredentialRefused) as problem:
        raise RequestRefused(
            f"Nobody says who you are: {problem}; nothing was sent.",
            kind="NoToken",
            hint="Has munge.service failed on this host? A token does as well: `oarlock token add` on the server.",
        ) from None


def _kept_token() -> str:
    path = token_file()
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise RequestRefused(f"Others can read your token in {path}.", kind="NoToken", hint=f"chmod 600 {path}")
            return file.read(4096).strip()
    except OSError:
        return ""


def open_tls(name: str, port: int) -> Any:
    # Imported here: nobody on the socket pays for it.
    from oarlock.minimal_tls import CertificateRefused, TlsConnection

    try:
        return TlsConnection(open_any(name, port), name, os.environ.get(CA_VARIABLE) or _site_authority())
    except CertificateRefused as problem:
        raise _untrusted(name, str(problem)) from None


def open_any(name: str, port: int) -> _socket.socket:
    """Connect to the first address of a name that answers."""
    problem: OSError = ConnectionRefusedError()
    for family, *_, place in _socket.getaddrinfo(name, port, 0, _socket.SOCK_STREAM):
        try:
            return open_connection(family, place)
        except OSError as why:  # noqa: PERF203 - a name has one or two addresses
            problem = why
    raise problem


def _untrusted(name: str, why: str) -> RequestRefused:
    return RequestRefused(
        f"The certificate of {name} is not to be trusted: {why}.",
        kind="ServerDown",
        hint=f"If it is your site's own authority, ${CA_VARIABLE} names the file of its certificate.",
    )


def open_session_tls(name: str, port: int) -> _socket.socket:
    import socket
    import ssl

    context = ssl.create_default_context(cafile=os.environ.get(CA_VARIABLE) or _site_authority())
    plain = socket.create_connection((name, port), timeout=CONNECT_SECONDS)
    try:
        return context.wrap_socket(plain, server_hostname=name)
    except ssl.SSLCertVerificationError as problem:
        plain.close()
        raise _untrusted(name, problem.verify_message) from None
    except BaseException:
        plain.close()
        raise


def open_connection(family: int, where: Any) -> _socket.socket:
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(where)
    except BaseException:
        connection.close()
        raise
    return connection
