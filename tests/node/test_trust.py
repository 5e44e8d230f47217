"""Directories whose content is believed: nobody else may be able to put something there."""

import os

import pytest

from oarlock.node.trust import UnsafeDirectory, check, prepare
from tests.bed import needs_root


@needs_root
def test_a_directory_that_somebody_else_made_is_refused(tmp_path):
    (tmp_path / "s").mkdir()
    os.chown(tmp_path / "s", 12345, 12345)
    with pytest.raises(UnsafeDirectory, match=r"s belongs to user 12345, not to root"):
        prepare(str(tmp_path / "s"), 0o700)


@needs_root
def test_a_directory_below_one_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "theirs" / "ours").mkdir(parents=True)
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.raises(UnsafeDirectory, match=r"theirs belongs to user 12345"):
        check(str(tmp_path / "theirs" / "ours"))


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
def test_a_directory_that_others_can_write_is_refused(tmp_path, mode):
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(mode)
    with pytest.raises(UnsafeDirectory, match="others than its owner can write"):
        prepare(str(tmp_path / "s"), 0o700)


def test_below_a_directory_with_the_sticky_bit_ours_is_safe(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    prepare(str(tmp_path / "shared" / "s"), 0o700)
    assert (tmp_path / "shared" / "s").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(UnsafeDirectory, match=r"can write .*/shared \(mode 0777\)"):
        check(str(tmp_path / "shared" / "s"))


@needs_root
def test_a_link_that_somebody_else_made_is_refused(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    check(str(tmp_path / "link"))
    os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
    with pytest.raises(UnsafeDirectory, match="link belongs to user 12345"):
        check(str(tmp_path / "link"))


def test_directories_are_made_closed_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        prepare(str(tmp_path / "a" / "b"), 0o755)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o755, 0o755]
