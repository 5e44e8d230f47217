"""Secrets stay secret: in files of their own, and nowhere in what is shown."""

import os
import re

import pytest

from oarlock.config import Config, load
from oarlock.model.errors import ConfigRefused, SecretExposed
from oarlock.settings.secret import Secret

KEY = "DB_BASE_PASSWD"


@pytest.fixture
def kept(tmp_path):
    """Write a secret file of some mode."""

    def write(content, mode=0o600):
        path = tmp_path / "passwd"
        path.write_bytes(content)
        path.chmod(mode)
        return path

    return write


def loaded(folder, value, mode=0o644):
    path = folder / "oar.conf"
    path.write_text(f"{KEY}={value}\n")
    path.chmod(mode)
    return load(path, environment={}).config


def test_a_secret_is_read_from_its_own_file(tmp_path, kept):
    path = kept(b"s3cret\n")
    config = loaded(tmp_path, f"file:{path}")
    assert config == Config(db_base_passwd=Secret("s3cret", path))
    assert "s3cret" not in repr(config)
    assert str(config.db_base_passwd) == f"file:{path}"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o601])
def test_a_secret_that_others_can_read_refuses_to_start(tmp_path, kept, mode):
    path = kept(b"s3cret", mode)
    with pytest.raises(SecretExposed, match=re.escape(f"{path} can be read by others (mode {mode:04o})")) as refused:
        loaded(tmp_path, f"file:{path}")
    assert refused.value.hint.startswith("chmod 600")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_secret_of_another_user_is_refused(tmp_path, kept):
    path = kept(b"s3cret")
    os.chown(path, 12345, -1)
    with pytest.raises(SecretExposed, match=r"belongs to another user \(uid 12345\)"):
        loaded(tmp_path, f"file:{path}")


def test_a_password_is_taken_only_from_a_private_file(tmp_path):
    assert loaded(tmp_path, "s3cret", mode=0o600).db_base_passwd == Secret("s3cret")
    with pytest.raises(SecretExposed, match=r"holds a password \(DB_BASE_PASSWD\)") as refused:
        loaded(tmp_path, "s3cret", mode=0o644)
    assert f"{KEY}=file:/path/to/it" in refused.value.hint
    assert "s3cret" not in refused.value.full_text()


def test_no_secret_is_no_secret(tmp_path):
    assert loaded(tmp_path, "''") == Config()


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "empty"), (b"\n", "empty"), (b"\xff", "not UTF-8"), (b"x" * 4097, "too long")]
)
def test_what_cannot_be_a_secret_is_refused(tmp_path, kept, content, told):
    with pytest.raises(ConfigRefused, match=told):
        loaded(tmp_path, f"file:{kept(content)}")


def test_a_missing_secret_file_is_refused(tmp_path):
    with pytest.raises(ConfigRefused, match="cannot be read: No such file"):
        loaded(tmp_path, f"file:{tmp_path}/none")


def test_a_relative_secret_path_is_refused(tmp_path):
    with pytest.raises(ConfigRefused, match="`passwd` is not an absolute path"):
        loaded(tmp_path, "file:passwd")


def test_a_pipe_in_place_of_a_secret_does_not_stop_us(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigRefused, match="is not a plain file"):
        loaded(tmp_path, f"file:{tmp_path}/pipe")
