"""A connection to a server that stays open: TLS that is verified, a token from a file, answers with their sentence."""

import http.client
import ipaddress
import json
import os
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from oarlock.model.errors import ConfigRefused
from oarlock.settings import secret

CA_VARIABLE = "OARLOCK_CA"
TIMEOUT_SECONDS = 30.0
_LONGEST_ANSWER = 1 << 20
_LONGEST_PAUSE = 600.0
_PORT = 6680


class ServerReply(NamedTuple):
    """An answer: its status, the kind and sentence of a refusal, and in how many seconds it wants to be asked again."""

    status: int
    kind: str = ""
    sentence: str = ""
    retry: float | None = None


class ServerConnection:
    """Requests to one server, one after the other. For one thread."""

    def __init__(self, url: str, token_file: Path, ca_file: Path | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigRefused(f"`{url}` is not the address of a server.", hint="Write https://host:6680.")
        if parts.scheme == "http" and not _is_here(parts.hostname):
            raise ConfigRefused(
                f"{url} would carry the token across the network unencrypted.", hint="Write https://, or use a tunnel."
            )
        self._host, self._port, self._base = parts.hostname, parts.port or _PORT, parts.path.rstrip("/")
        self._context = _verifying(ca_file) if parts.scheme == "https" else None
        self._token_file = token_file
        self._token = _read_token(token_file)
        self._connection: http.client.HTTPConnection | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next request goes over a connection that was used before."""
        return self._connection is not None

    def request(self, method: str, path: str, body: bytes, content_type: str) -> ServerReply:
        """Send a request and read the answer; `OSError` if that fails, after which the connection is a new one."""
        connection = self._connection or self._connect()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        try:
            connection.request(method, f"{self._base}{path}", body, headers)
            response = connection.getresponse()
            content = response.read(_LONGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise error if isinstance(error, OSError) else OSError(str(error) or type(error).__name__) from error
        self._connection = connection
        if response.will_close:
            self.close()
        if response.status == http.client.UNAUTHORIZED:
            self._token = _read_token(self._token_file)  # it may have been renewed
        return ServerReply(response.status, *_refusal(content), _pause(response.getheader("Retry-After")))

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_SECONDS, context=self._context)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _verifying(ca_file: Path | None) -> ssl.SSLContext:
    named = str(ca_file) if ca_file else os.environ.get(CA_VARIABLE) or None
    try:
        return ssl.create_default_context(cafile=named)
    except (OSError, ssl.SSLError) as error:
        raise ConfigRefused(
            f"The certificate of the authority in {named} cannot be used: {error.strerror or error}.",
            hint="It is a PEM file that this user can read.",
        ) from error


def _read_token(file: Path) -> str:
    token = secret.read(f"{secret.PREFIX}{file.absolute()}")
    value = token.value.strip() if token else ""
    if not value.isascii() or not value.isprintable():
        raise ConfigRefused(f"{file} does not hold a token.", hint="`oarlock token add … -o FILE` writes one.")
    return value


def _refusal(content: bytes) -> tuple[str, str]:
    """Return the kind and the sentence of a refusal; whoever answers may be a proxy, which has none."""
    try:
        answer = json.loads(content)
        return str(answer["kind"])[:100], str(answer["error"])[:500]
    except (ValueError, KeyError, TypeError):
        return "", content[:200].decode("utf-8", "replace")


def _pause(header: str | None) -> float | None:
    return min(float(header), _LONGEST_PAUSE) if header and header.isdecimal() else None
