"""Proof that a client has the private key of a job: what `ssh-keygen -Y sign` makes of a challenge.

The format is that of PROTOCOL.sshsig in OpenSSH: the public key, and a signature of a hash of the challenge.
"""

import base64
import binascii
import hashlib
import struct
from typing import TYPE_CHECKING, NamedTuple

from oarlock.model.errors import BadKeyProof
from oarlock.node.wire.stream import PROOF_NAMESPACE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

_MAGIC = b"SSHSIG"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_LONGEST = 16 * 1024
_HASHES = ("sha256", "sha512")


class KeyProof(NamedTuple):
    """A signature as it was sent: the public key in it, and what it says of itself."""

    public: bytes
    namespace: str
    hash_name: str
    algorithm: str
    signature: bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key, as ssh-keygen writes it."""
        digest = hashlib.sha256(self.public).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    def verify(self, challenge: str) -> None:
        """Raise `BadKeyProof` unless the owner of the key signed this challenge for this purpose."""
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

        if self.namespace != PROOF_NAMESPACE or self.hash_name not in _HASHES:
            raise BadKeyProof(f"the signature is one for `{self.namespace}`")
        digest = hashlib.new(self.hash_name, challenge.encode()).digest()
        parts = (self.namespace.encode(), b"", self.hash_name.encode(), digest)
        signed = _MAGIC + b"".join(struct.pack(">I", len(part)) + part for part in parts)
        try:
            self._verify(signed)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            raise BadKeyProof("the signature is not one of this challenge by that key") from None

    def _verify(self, signed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key

        kind = _strings(self.public)[0].decode()
        key = load_ssh_public_key(f"{kind} {base64.b64encode(self.public).decode()}".encode())
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(self.signature, signed)
        elif isinstance(key, rsa.RSAPublicKey) and self.algorithm in {"rsa-sha2-256", "rsa-sha2-512"}:
            key.verify(self.signature, signed, padding.PKCS1v15(), _hash_of(int(self.algorithm[-3:])))
        elif isinstance(key, ec.EllipticCurvePublicKey):
            r, s = (int.from_bytes(number, "big") for number in _strings(self.signature))
            key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(_hash_of(_ecdsa_bits(key.curve.key_size))))
        else:
            raise ValueError(kind)


def parse_proof(text: str) -> KeyProof:
    """Parse a signature in its armour; raise `BadKeyProof` for anything else."""
    body = text.strip()
    if len(body) > _LONGEST or not (body.startswith(_BEGIN) and body.endswith(_END)):
        raise BadKeyProof("it is not a signature")
    try:
        data = base64.b64decode("".join(body[len(_BEGIN) : -len(_END)].split()), validate=True)
        if data[:10] != _MAGIC + b"\0\0\0\1":
            raise BadKeyProof("it is not a signature of version 1")
        public, namespace, _, hash_name, signature = _strings(data[10:])
        algorithm, made = _strings(signature)
        return KeyProof(public, namespace.decode(), hash_name.decode(), algorithm.decode(), made)
    except (binascii.Error, ValueError, struct.error):
        raise BadKeyProof("it is not a signature") from None


def _strings(data: bytes) -> list[bytes]:
    """Split texts with their lengths before them; raise `ValueError` if one is cut off."""
    texts = []
    while data:
        (length,) = struct.unpack(">I", data[:4])
        if len(data) < 4 + length:
            raise ValueError("cut off")
        texts.append(data[4 : 4 + length])
        data = data[4 + length :]
    return texts


def _ecdsa_bits(size: int) -> int:
    """Return the hash that goes with the size of a curve (RFC 5656)."""
    return 256 if size <= 256 else 384 if size <= 384 else 512


def _hash_of(bits: int) -> "HashAlgorithm":
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

    return {256: SHA256(), 384: SHA384(), 512: SHA512()}[bits]
