"""Tokens for those who come over the port: random, shown once, kept only as a hash."""

import hashlib
import secrets

_BYTES = 32


def make() -> str:
    """Make a new token: 256 random bits, as a text for a header."""
    return secrets.token_urlsafe(_BYTES)


def hash_of(token: str) -> str:
    """Return the hash that is kept of a token. It is random, so a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
