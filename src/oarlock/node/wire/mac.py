"""HMAC-SHA256 without OpenSSL where Python has a small module for it: what a supervisor maps, every fork pays for."""

from __future__ import annotations

from typing import Any

_BLOCK = 64


def _hash() -> Any:
    """Find SHA-256: its own module is named by the version of Python, and absent where a site allows only OpenSSL."""
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            return __import__(name).sha256
        except (ImportError, AttributeError):
            continue
    raise ImportError("this Python has no SHA-256")


_SHA256 = _hash()
# The two pads of RFC 2104, as tables for bytes.translate: one XOR per byte of the key.
_INNER, _OUTER = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))


def mac(text: str, secret: str) -> str:
    """Sign a text with a secret in hex; the signature is hex as well."""
    return mac_of_bytes(text.encode("utf-8", "surrogatepass"), secret)


def mac_of_bytes(data: bytes, secret: str) -> str:
    """Sign bytes with a secret in hex."""
    key = bytes.fromhex(secret)
    if len(key) > _BLOCK:
        key = _SHA256(key).digest()
    key = key.ljust(_BLOCK, b"\0")
    inner = _SHA256(key.translate(_INNER) + data).digest()
    return str(_SHA256(key.translate(_OUTER) + inner).hexdigest())


def fingerprint(secret: str) -> str:
    """Return the SHA-256 of a secret, which identifies it without revealing it."""
    return str(_SHA256(secret.encode("utf-8", "surrogatepass")).hexdigest())


def same_mac(left: str, right: str) -> bool:
    """Compare two signatures in constant time."""
    from hmac import compare_digest  # imported late: it maps OpenSSL, and supervisors never compare

    return compare_digest(left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass"))
