"""What a session printed last, kept on its node for a client that was away."""

import os
import stat
from pathlib import Path

import pytest

from oarlock.node import trust
from oarlock.node.attempt.sessions import undelivered
from oarlock.node.attempt.sessions.undelivered import KEPT_SECONDS, Undelivered
from oarlock.node.wire.stream import DATA, PIECE

KEY, NAME = (7, 1), "ab" * 16
REST = Undelivered(1000, os.urandom(3 * PIECE + 5), 42)


@pytest.mark.parametrize("received", [1000, 1001, 1000 + PIECE, 1000 + len(REST.data)])
def test_a_client_gets_what_follows_the_bytes_that_it_has(tmp_path: Path, received: int):
    undelivered.write(str(tmp_path), KEY, NAME, REST)
    kept = undelivered.read(str(tmp_path), KEY, NAME)
    assert kept == REST
    frames = list(kept.frames(received) or ())
    assert {frame[:1] for frame in frames} <= {DATA}
    assert b"".join(frame[1:] for frame in frames) == REST.data[received - 1000 :]


@pytest.mark.parametrize("received", [-1, 0, 999, 1001 + len(REST.data)])
def test_a_client_that_cannot_have_so_much_gets_nothing(received: int):
    assert REST.frames(received) is None


def test_only_the_program_s_user_reads_it_and_only_under_its_name(tmp_path: Path):
    undelivered.write(str(tmp_path), KEY, NAME, REST)
    [file] = (tmp_path / "undelivered").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    for key, name in [((7, 2), NAME), (KEY, "cd" * 16), (KEY, "../7.1"), (KEY, ""), (KEY, None), (KEY, "a" * 65)]:
        assert undelivered.read(str(tmp_path), key, name) is None
    file.write_bytes(b"short")
    assert undelivered.read(str(tmp_path), KEY, NAME) is None


def test_what_nobody_came_back_for_is_removed(tmp_path: Path):
    undelivered.remove_old(str(tmp_path))  # where nothing was ever kept
    for name, age in ((NAME, KEPT_SECONDS + 1), ("cd" * 16, KEPT_SECONDS - 1)):
        undelivered.write(str(tmp_path), KEY, name, REST)
        os.utime(tmp_path / "undelivered" / f"7.1.{name}", (10_000 - age, 10_000 - age))
    undelivered.remove_old(str(tmp_path), now=10_000)
    assert [path.name for path in (tmp_path / "undelivered").iterdir()] == ["7.1." + "cd" * 16]


def test_a_folder_that_leads_elsewhere_is_not_written_to(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir(mode=0o777)
    (tmp_path / "elsewhere").chmod(0o777)
    (tmp_path / "undelivered").symlink_to("elsewhere")
    with pytest.raises((trust.UnsafeDirectory, OSError)):
        undelivered.write(str(tmp_path), KEY, NAME, REST)
    assert list((tmp_path / "elsewhere").iterdir()) == []
