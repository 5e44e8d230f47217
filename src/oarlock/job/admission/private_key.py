"""Private keys that users bring for their jobs: parsed, checked, and written in one form.

The library is loaded when the first key comes: most servers never see one.
"""

import base64
import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

from oarlock.model.submission_errors import BadJobKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

LEAST_RSA_BITS, MOST_RSA_BITS = 2048, 16384

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]*)-----.*?-----END \1-----", re.DOTALL)
_HIDDEN = "(a private key)"
_PUBLIC = re.compile(r"(ssh-|ecdsa-|sk-)\S+ |-----BEGIN (RSA )?PUBLIC KEY-----|---- BEGIN SSH2 PUBLIC KEY")
_WAY_OUT = "`ssh-keygen -t ed25519 -N '' -f FILE` makes a key for this."


class ImportedKey(NamedTuple):
    """A key that a user brought: its private half, which is a secret, and what may be known of it."""

    private: str
    public: str
    fingerprint: str

    def __repr__(self) -> str:
        return f"ImportedKey({self.fingerprint})"  # never in a traceback


def parse_key(text: str, public: str | None = None) -> ImportedKey:
    """Parse the text of one private key without passphrase; raise `BadJobKey` for anything else.

    `public` is the public half, where the user gave that as well: it has to belong to the key.
    """
    from cryptography.hazmat.primitives import serialization as forms

    key = _load(_only_block(text))
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()).decode()
    half = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH).decode()
    if public is not None and public.split()[:2] != half.split():
        raise BadJobKey(
            "The public key is not the one that belongs to the private key.",
            hint="`ssh-keygen -y -f FILE` prints it; the private key alone is enough.",
        )
    return ImportedKey(private, half, fingerprint_of(half))


def fingerprint_of(public: str) -> str:
    """Return the fingerprint of a public key, `type base64`, as ssh-keygen writes it; `ValueError` if it is none."""
    digest = hashlib.sha256(base64.b64decode(public.split()[1], validate=True)).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def hide_keys(text: str, *keys: str | None) -> str:
    """Return a text without private keys: those given, and whatever looks like one."""
    for key in keys:
        if key and key.strip():
            text = text.replace(key, _HIDDEN).replace(key.strip(), _HIDDEN)
    return _BLOCK.sub(_HIDDEN, text)


def _only_block(text: str) -> str:
    """Return the one block of a private key that a text consists of."""
    if _PUBLIC.match(text.lstrip()):
        raise BadJobKey("That is a public key, not a private one.", hint="Its private half is the file without `.pub`.")
    blocks = list(_BLOCK.finditer(text))
    if not blocks or any("PRIVATE KEY" not in block[1] for block in blocks):
        what = "it is empty" if not text.strip() else f"there is none in its {len(text)} characters"
        raise BadJobKey(f"The text that was given is no private key: {what}.", hint=_WAY_OUT)
    if len(blocks) > 1:
        raise BadJobKey(f"There are {len(blocks)} private keys; a job has one.", hint="Give one of them.")
    return blocks[0][0] + "\n"


def _load(text: str) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    load = load_ssh_private_key if "BEGIN OPENSSH PRIVATE KEY" in text else load_pem_private_key
    if "ENCRYPTED" in text:
        raise _passphrase()
    try:
        key = load(text.encode(), password=None)
    except TypeError:
        raise _passphrase() from None
    except (ValueError, UnsupportedAlgorithm) as problem:
        if "password" in str(problem).lower():
            raise _passphrase() from None
        # Not the library's own words: they may quote what they could not read.
        raise BadJobKey(
            "The private key cannot be read: it is damaged, or of an unknown kind.", hint=_WAY_OUT
        ) from None
    _check_kind(key)
    return key


def _passphrase() -> BadJobKey:
    return BadJobKey(
        "The private key has a passphrase: nobody could enter it on a node.",
        hint="`ssh-keygen -p -N '' -f COPY` takes it away from a copy; better is a key for this purpose alone.",
    )


def _check_kind(key: "PrivateKeyTypes") -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPrivateKey):
        if not LEAST_RSA_BITS <= key.key_size <= MOST_RSA_BITS:
            raise BadJobKey(
                f"An RSA key of {key.key_size} bits is not taken: {LEAST_RSA_BITS} to {MOST_RSA_BITS} bits are.",
                hint=_WAY_OUT,
            )
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        if key.curve.name not in {"secp256r1", "secp384r1", "secp521r1"}:
            raise BadJobKey(f"A key on the curve {key.curve.name} is not taken: ssh knows no such key.", hint=_WAY_OUT)
    elif not isinstance(key, ed25519.Ed25519PrivateKey):
        name = type(key).__name__.removesuffix("PrivateKey").lstrip("_")
        raise BadJobKey(f"A key of the kind {name} is not taken: rsa, ecdsa and ed25519 are.", hint=_WAY_OUT)
