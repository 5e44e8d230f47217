"""TLS for one request of a command, by the C module `_ssl`: the module `ssl` costs more than the rest of the command.

It checks what `ssl.create_default_context` checks: the chain, against the system's authorities or the site's own, and
the name. Standard library only.
"""

from __future__ import annotations

import _socket
import _ssl

TYPE_CHECKING = False  # importing `typing` costs as much as half a command
if TYPE_CHECKING:
    from typing import Any

_EOF = 8
"""The other side closed the connection without a word (SSL_ERROR_EOF); what was read tells whether it was all."""


class CertificateRefused(Exception):
    """The certificate is not to be trusted; says why."""


class _Socket(_socket.socket):
    """A socket that can be referred to weakly, as `_ssl` does."""


class TlsConnection:
    """A connection, as far as `minimal_http` and a request need one; it takes the socket over."""

    def __init__(self, plain: _socket.socket, name: str, authority: str | None) -> None:
        seconds = plain.gettimeout()
        self._plain = _Socket(fileno=plain.detach())
        self._plain.settimeout(seconds)
        try:
            self._tls = self._secured(name, authority)
        except BaseException:
            self._plain.close()
            raise

    def _secured(self, name: str, authority: str | None) -> Any:
        # This protocol demands a certificate that is valid for the name, and TLS 1.2 at least.
        context: Any = _ssl._SSLContext(_ssl.PROTOCOL_TLS_CLIENT)
        if authority is None:
            context.set_default_verify_paths()
        else:
            context.load_verify_locations(authority, None, None)
        secured = context._wrap_socket(self._plain, False, name)
        try:
            secured.do_handshake()
        except _ssl.SSLCertVerificationError as problem:
            raise CertificateRefused(problem.verify_message) from None
        return secured

    def settimeout(self, seconds: float | None) -> None:
        """Set how long one operation may take."""
        self._plain.settimeout(seconds)

    def sendall(self, data: bytes) -> None:
        """Send all of it; `ConnectionError` if the other side is gone."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except _ssl.SSLError as problem:
            raise ConnectionError(str(problem)) from None

    def recv(self, most: int) -> bytes:
        """Return what is there, at most so many bytes; nothing at the end."""
        try:
            return bytes(self._tls.read(most))
        except _ssl.SSLZeroReturnError:
            return b""
        except _ssl.SSLError as problem:
            if problem.args and problem.args[0] == _EOF:
                return b""
            raise ConnectionError(str(problem)) from None

    def close(self) -> None:
        """Close the connection."""
        self._plain.close()
