"""What a job wrote on a desktop: packed without what is not its own, and within bounds."""

import hashlib
import os
import socket
import tarfile

import pytest

from oarlock.node.archive import ArchiveReader, BadArchive
from oarlock.node.attempt.staging import stage_out, work_folder
from oarlock.node.attempt.staging.stage_out import JobDirectory, PackedFiles
from oarlock.node.attempt.user.command import CannotStart
from oarlock.node.wire.messages import Launch, NodeSettings
from tests.bed import needs_root


@pytest.fixture
def folder(tmp_path):
    """A directory to which files were brought."""
    made = tmp_path / "1.1"
    (made / "sub").mkdir(parents=True)
    (made / "same").write_text("as it was")
    (made / "sub" / "edited").write_text("before")
    return made


def packed(folder, before, tmp_path, most=1 << 20):
    fd = os.open(tmp_path / "archive", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        return stage_out.pack(JobDirectory(str(folder), before, most), fd)
    finally:
        os.close(fd)


def test_what_is_new_or_changed_is_packed_and_nothing_but_plain_files(folder, tmp_path):
    before = work_folder.scan(str(folder))
    (folder / "sub" / "edited").write_text("after")
    (folder / "new").write_bytes(b"x" * 5000)
    (folder / "new").chmod(0o4750)
    (folder / "secret").symlink_to("/etc/shadow")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "socket"))
    result = packed(folder, before, tmp_path)
    content = (tmp_path / "archive").read_bytes()
    assert result == PackedFiles(hashlib.sha256(content).hexdigest(), len(content))
    with tarfile.open(tmp_path / "archive") as archive:
        assert {entry.name: (entry.isreg(), entry.mode) for entry in archive} == {
            "sub": (False, 0o755), "new": (True, 0o750), "sub/edited": (True, 0o644),
        }  # fmt: skip
        assert archive.extractfile("sub/edited").read() == b"after"
    with (tmp_path / "archive").open("rb") as file:
        ArchiveReader(file.read, most=1 << 20).check()  # as the server does


def test_a_job_that_wrote_nothing_has_no_archive(folder, tmp_path):
    assert packed(folder, work_folder.scan(str(folder)), tmp_path) == PackedFiles("", 0)


@pytest.mark.parametrize("sparse", [True, False])
def test_too_much_is_refused_before_it_is_read(folder, tmp_path, sparse):
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 40) if sparse else file.write(os.urandom(2 << 20))
    with pytest.raises(BadArchive, match="more than the 1 MiB that are brought back"):
        packed(folder, {}, tmp_path)
    assert (tmp_path / "archive").stat().st_size == 0


def test_a_directory_is_cleared_with_what_its_owner_had_closed(folder):
    (folder / "sub").chmod(0)
    (folder / "out").symlink_to(folder.parent)
    (folder.parent / "stays").write_text("outside")
    stage_out.clear(str(folder))
    assert list(folder.iterdir()) == []
    assert (folder.parent / "stays").read_text() == "outside"


@needs_root
def test_a_user_without_an_account_is_told_and_has_no_directory(tmp_path):
    launch = Launch(7, 1, "00", "", "nobody-of-this-name", "true", directory=str(tmp_path / "7.1"))
    with pytest.raises(CannotStart, match="is not known on this node; this desktop runs jobs of its own") as failure:
        work_folder.make(launch, lowest_uid=1000)
    assert (failure.value.event, list(tmp_path.iterdir())) == ("USER_SHELL", [])


def test_only_a_desktop_runs_a_job_elsewhere_than_it_asked():
    launch = Launch(7, 2, "00", "", "ada", "true", uid=1000, directory="/home/ada", stdout="/x/out", stderr=os.devnull)
    node = NodeSettings("n", "/spool", "/run")
    assert work_folder.place(launch, node) == launch
    placed = work_folder.place(launch, node._replace(work="/w"))
    assert (placed.directory, placed.stdout, placed.stderr) == ("/w/7.2", "out", os.devnull)
