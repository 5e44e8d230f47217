"""`oarlock desktop` with what it cannot use: one sentence, a way out, nothing left."""

import os
import subprocess
import sys
import time

import pytest

from oarlock.cli.oarlock import main
from tests.monitoring import ROOT

URL = "https://localhost:1"


@pytest.fixture
def token(tmp_path):
    """The file of a token."""
    path = tmp_path / "token"
    path.write_text("a-token\n")
    path.chmod(0o600)
    return path


def refused(capsys, *words):
    assert main(["desktop", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 2), err
    return err.removeprefix("oarlock: ").partition("\n")[0]


@pytest.mark.parametrize(
    "url", ["", "x", "/run/server.sock", "https://", "ftp://host", "http://cluster:6680", "x" * 2**20]
)
def test_an_address_is_one_where_a_token_is_safe(capsys, token, url):
    assert refused(capsys, url, "--token-file", token) == (
        f"`{url[:200]}` is not the address of a server that a desktop can use."
    )


def test_a_port_that_is_none_is_no_address(capsys, token, tmp_path):
    says = refused(capsys, "https://host:-1", "--token-file", token, "--state", tmp_path / "state")
    assert says == "`https://host:-1` is not the address of a server."
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"a\nb", b"x" * 2**20])
def test_what_is_no_token_is_refused(capsys, token, content):
    token.write_bytes(content)
    assert refused(capsys, URL, "--token-file", token) == f"{token} does not hold a token."


def test_a_token_is_a_file_of_ones_own(capsys, token, tmp_path):
    assert refused(capsys, URL, "--token-file", tmp_path / "none") == (
        f"{tmp_path}/none cannot be read: No such file or directory."
    )
    assert refused(capsys, URL, "--token-file", tmp_path) == f"{tmp_path} cannot be read: Is a directory."
    assert refused(capsys, URL, "--token-file", "/dev/null") == "/dev/null is not a plain file."
    token.chmod(0o644)
    assert refused(capsys, URL, "--token-file", token) == f"Others can read the token in {token}."


def test_a_state_directory_that_others_can_write_is_refused(capsys, token, tmp_path):
    tmp_path.chmod(0o777)
    says = refused(capsys, URL, "--token-file", token, "--state", tmp_path / "state")
    assert f"The directory {tmp_path}/state cannot be used: others than its owner can write {tmp_path}" in says


def test_an_authority_that_cannot_be_read_is_refused(capsys, token, tmp_path):
    says = refused(capsys, URL, "--token-file", token, "--ca", tmp_path / "none")
    assert says == f"{tmp_path}/none cannot be read: No such file or directory."


def test_a_server_that_is_down_is_told_soon(token, tmp_path):
    began = time.monotonic()
    words = ["desktop", URL, "--token-file", str(token), "--state", str(tmp_path / "state")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-m", "oarlock", *words], capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2,
        "",
        f"oarlock: No server answers at {URL} (Connection refused).\n  Look at the URL, or try again later.\n",
    )
    assert time.monotonic() - began < 20  # about 2 s on a machine that has nothing else to do
