"""Certificates for tests."""

import subprocess
from pathlib import Path


def certificate(folder: Path, name: str = "localhost", *, kind: str = "DNS") -> tuple[Path, Path]:
    """Make a certificate that signs itself, and its key; `kind` is `IP` where the name is an address."""
    pem, key = folder / "cert.pem", folder / "key.pem"
    early = folder / "early.pem", folder / "early.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{name}", "-keyout", early[1], "-out", early[0]],
        check=True, capture_output=True,
    )  # fmt: skip
    early[1].chmod(0o600)
    early[1].replace(key)
    early[0].replace(pem)
    return pem, key


def expire(pem: Path, key: Path) -> None:
    """Sign a certificate anew, so that it was good until yesterday."""
    old = pem.with_suffix(".old")
    pem.replace(old)
    command = ["openssl", "x509", "-in", old, "-signkey", key, "-days", "-1", "-out", pem]
    subprocess.run(command, check=True, capture_output=True)
