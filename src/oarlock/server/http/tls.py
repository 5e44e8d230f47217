"""TLS at the port: the certificate of the settings, read again when its files change."""

import logging
import os
import ssl
import stat
import time
from pathlib import Path

from oarlock.config import Config
from oarlock.model.errors import ConfigRefused

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 5.0
_LOOK_SECONDS = 1.0  # at most so often are the files looked at

Stamp = tuple[tuple[int, int, int], ...]


def server_context(config: Config) -> ssl.SSLContext | None:
    """Return the TLS context of the port; None where the settings name no certificate (`ConfigRefused`: unusable)."""
    certificate, key = config.tls_certificate, config.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "TLS_CERTIFICATE" if certificate is None else "TLS_KEY"
        raise ConfigRefused(f"{missing} is not set, its other half is.", hint="Set both, or neither.")
    return CertificateFiles(certificate, key).context()


class CertificateFiles:
    """A certificate and its key. A connection that begins after they changed is given the new ones."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._current = self._load()
        self._stamp, self._looked = self._files(), time.monotonic()

    def context(self) -> ssl.SSLContext:
        """Return the context to listen with; each handshake goes on with the newest one."""
        return self._current

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _check_private(self._key)
        try:
            context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as problem:
            raise ConfigRefused(
                f"The certificate {self._certificate} and the key {self._key} cannot be used: {_reason(problem)}.",
                hint="Both are PEM files that belong together; the server must be able to read them.",
            ) from problem
        # OpenSSL calls this for every handshake, before it chooses a certificate.
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        self._look()
        connection.context = self._current

    def _look(self) -> None:
        """Load the files again if they changed; a pair that does not fit (half of it is new) changes nothing."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        try:
            stamp = self._files()
            if stamp == self._stamp:
                return
            self._current, self._stamp = self._load(), stamp
        except (OSError, ConfigRefused) as problem:
            log.warning("the new certificate is not used", extra={"why": str(problem)})
            return
        log.info("the certificate was read again", extra={"file": str(self._certificate)})

    def _files(self) -> Stamp:
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in map(os.stat, (self._certificate, self._key)))


def _check_private(key: Path) -> None:
    try:
        mode = key.stat().st_mode
    except OSError as problem:
        raise ConfigRefused(f"TLS_KEY {key} cannot be read: {problem.strerror}.") from problem
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        raise ConfigRefused(f"Others can read or write the private key {key}.", hint=f"chmod 600 {key}")


def _reason(problem: OSError) -> str:
    if isinstance(problem, ssl.SSLError):
        return problem.reason or "they are not a certificate and its key"
    return problem.strerror or str(problem)
