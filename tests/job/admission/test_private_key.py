"""Private keys that users bring: what is taken, and what is said of everything else."""

import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448

from oarlock.job.admission.private_key import hide_keys, parse_key
from oarlock.model.submission_errors import BadJobKey


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes a key with ssh-keygen; gives its text, and that of its public half."""
    folder = tmp_path_factory.mktemp("keys")

    def make(*words: str, name: str = "key", passphrase: str = "") -> tuple[str, str]:
        path = folder / f"{name}{len(list(folder.iterdir()))}"
        subprocess.run(["ssh-keygen", "-q", *words, "-N", passphrase, "-C", "a note", "-f", path], check=True)
        return path.read_text(), path.with_suffix(".pub").read_text()

    return make


@pytest.mark.parametrize(
    "words",
    [
        ["-t", "ed25519"],
        ["-t", "ecdsa", "-b", "521"],
        ["-t", "rsa", "-b", "2048"],
        ["-t", "rsa", "-b", "2048", "-m", "PEM"],
        ["-t", "ecdsa", "-m", "PKCS8"],
    ],
)
def test_every_kind_that_ssh_takes_is_taken_with_the_same_fingerprint(made, tmp_path, words):
    private, public = made(*words)
    key = parse_key(private.strip().replace("\n", "\r\n"), public)  # as `$(cat key)` gives it, from Windows
    (tmp_path / "key").write_text(key.private)
    (tmp_path / "key").chmod(0o600)
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key"], check=True, capture_output=True, text=True).stdout
    assert (key.public, key.fingerprint) == (" ".join(public.split()[:2]), shown.split()[1])
    assert key.private not in repr(key)


def pem(key):
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def test_what_is_no_key_for_a_job_is_refused_with_the_reason(made):
    good, public = made("-t", "ed25519")
    other = made("-t", "ed25519")
    cases = {
        "": "The text that was given is no private key: it is empty.",
        "x" * 10_000: "The text that was given is no private key: there is none in its 10000 characters.",
        "\0ä\ufffd": "The text that was given is no private key",
        public: "That is a public key, not a private one.",
        good + other[0]: "There are 2 private keys; a job has one.",
        made("-t", "ed25519", passphrase="secret")[0]: "The private key has a passphrase",
        made("-t", "rsa", "-m", "PEM", passphrase="secret")[0]: "The private key has a passphrase",
        made("-t", "rsa", "-m", "PKCS8", passphrase="secret")[0]: "The private key has a passphrase",
        made("-t", "rsa", "-b", "1024")[0]: "An RSA key of 1024 bits is not taken",
        pem(dsa.generate_private_key(2048)): "A key of the kind DSA is not taken",
        pem(ed448.Ed448PrivateKey.generate()): "A key of the kind Ed448 is not taken",
        pem(ec.generate_private_key(ec.SECP256K1())): "A key on the curve secp256k1 is not taken",
        good[:200] + "\n-----END OPENSSH PRIVATE KEY-----": "The private key cannot be read",
        good[:200]: "The text that was given is no private key",
    }
    for text, says in cases.items():
        with pytest.raises(BadJobKey, match=says.replace(".", r"\.")) as refused:
            parse_key(text)
        assert refused.value.hint
        assert text[40:120] not in str(refused.value) or len(text) < 40
    with pytest.raises(BadJobKey, match="The public key is not the one that belongs to the private key"):
        parse_key(good, other[1])


def test_no_key_is_left_in_a_text(made):
    private, _ = made("-t", "ed25519")
    typed = f"oarsub --import-job-key-inline {private.strip()} ./x"
    assert hide_keys(typed) == hide_keys(typed, private) == "oarsub --import-job-key-inline (a private key) ./x"
    assert hide_keys("oarsub -n k3y ./x", "k3y") == "oarsub -n (a private key) ./x"
