"""Archives of stage-in: what is read, what is refused, and what unpacking leaves."""

import gzip
import io
import os
import stat
import subprocess
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oarlock.node.archive import ArchiveReader, BadArchive
from oarlock.node.attempt.staging.stage_in import Archive, unpack
from tests.node.archives import THEN, archive, changed

LONG = "d" * 120 + "/" + "f" * 200
CONTENT = {"a": b"one", "sub/": None, "sub/b": b"x" * 100_000, LONG: b"long", "caf\u00e9": b"", "./c": b"dot"}


def entries(data: bytes, *, most: int = 1 << 30) -> dict[str, bytes | None]:
    reader = ArchiveReader(io.BytesIO(data).read, most=most)
    return {one.path: None if one.is_directory else b"".join(reader.content()) for one in reader.entries()}


@pytest.mark.parametrize("how", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_was_packed_is_read(how):
    wanted = {name.removeprefix("./").rstrip("/"): what for name, what in CONTENT.items()}
    assert entries(archive(CONTENT, how=how)) == wanted
    halves = archive(CONTENT, how=how, zipped=False)
    assert entries(gzip.compress(halves[:700]) + gzip.compress(halves[700:])) == wanted  # as `cat a.gz b.gz`


def test_what_tar_itself_packs_is_read(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(b"content")
    packed = subprocess.run(["tar", "-C", tmp_path, "-cz", "."], capture_output=True, check=True).stdout
    assert entries(packed) == {"deep": None, "deep/er": None, "deep/er/file": b"content"}


def _large_header() -> bytes:
    header = bytearray(archive({"x": changed(type=tarfile.XHDTYPE, size=1 << 30)}, zipped=False)[:512])
    return gzip.compress(bytes(header))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (archive({"l": changed(type=tarfile.SYMTYPE, linkname="/etc/passwd")}), "l is a link"),
        (archive({"l": changed(type=tarfile.LNKTYPE, linkname="a")}), "l is a link"),
        (archive({"d": changed(type=tarfile.CHRTYPE)}), "d is a device"),
        (archive({"p": changed(type=tarfile.FIFOTYPE)}), "p is a named pipe"),
        (archive({"../out": b"x"}), "leads out of the directory"),
        (archive({"a/../../out": b"x"}), "leads out of the directory"),
        (archive({"/etc/x": b"x"}), "is an absolute path"),
        (archive({"s": changed(mode=0o4755)}), "has the mode 4755"),
        (archive({"a": b"x", "a/b": b"y"}), "a twice"),
        (archive({"a": b"x", "./a": b"y"}), "a twice"),
        (archive({"/".join("d" * 101): b"x"}), "is no name of a file"),
        (archive({"big": b"\0" * (3 << 20)}), "unpacks to more than 2 MiB"),
        (archive({"a": b"x" * 9000})[:60], "is cut off"),
        (archive({"a": b"x"}, zipped=False), "is not a tar archive compressed with gzip"),
        (gzip.compress(b"x" * 5000), "is not a tar archive compressed with gzip"),
        (b"x" * 5000, "is not a tar archive compressed with gzip"),
        (_large_header(), "has a header of 1073741824 bytes"),
    ],
    ids=range(17),
)
def test_what_could_do_harm_is_refused_and_leaves_nothing(data, why, tmp_path):
    (tmp_path / "archive").write_bytes(data)
    with pytest.raises(BadArchive, match=why):
        _unpack(tmp_path, tmp_path / "new" / "work", most=2 << 20)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_an_archive_of_very_many_files_is_refused(monkeypatch):
    monkeypatch.setattr("oarlock.node.archive.MOST_ENTRIES", 3)
    with pytest.raises(BadArchive, match="more than 3 files"):
        entries(archive({str(number): b"" for number in range(4)}))


def _unpack(tmp_path, directory, *, most: int = 1 << 30) -> None:
    with (tmp_path / "archive").open("rb") as file:
        unpack(Archive(file.fileno(), most, ".aside"), str(directory))


def test_files_replace_older_ones_and_never_newer_ones(tmp_path):
    work = tmp_path / "work"
    (tmp_path / "archive").write_bytes(
        archive({"data": b"new", "same": b"s", "sub/run": changed(mode=0o755), "kept/": None})
    )
    work.mkdir()
    (work / "data").write_bytes(b"old")
    os.utime(work / "data", (THEN - 5, THEN - 5))
    (work / "same").write_bytes(b"s")
    inode = (work / "same").stat().st_ino
    _unpack(tmp_path, work)
    assert sorted(path.name for path in work.iterdir()) == ["data", "kept", "same", "sub"]
    assert ((work / "data").read_bytes(), int((work / "data").stat().st_mtime)) == (b"new", THEN)
    assert (work / "same").stat().st_ino == inode  # somebody may read it now
    assert stat.S_IMODE((work / "sub" / "run").stat().st_mode) == 0o755
    (work / "data").write_bytes(b"edited since")
    (work / "sub" / "run").unlink()
    with pytest.raises(BadArchive, match="data is there already, and is newer than the one in the archive"):
        _unpack(tmp_path, work)
    assert ((work / "data").read_bytes(), list((work / "sub").iterdir())) == (b"edited since", [])


def test_nodes_that_share_a_directory_unpack_into_it_at_once(tmp_path):
    (tmp_path / "archive").write_bytes(archive({"sub/file": b"x", "run": changed(mode=0o755)}))
    nodes, together = 8, threading.Barrier(8)

    def unpacked(node: int, place: Path) -> None:
        together.wait()
        fd = os.open(tmp_path / "archive", os.O_RDONLY)
        unpack(Archive(fd, 1 << 20, f".aside{node}"), str(place))
        os.close(fd)

    with ThreadPoolExecutor(nodes) as threads:
        for turn in range(20):
            place = tmp_path / f"{turn}" / "very" / "deep" / "directory" / "below"
            for each in [threads.submit(unpacked, node, place) for node in range(nodes)]:
                each.result()
            assert sorted(path.name for path in place.iterdir()) == ["run", "sub"]


def test_a_link_in_the_working_directory_leads_nowhere(tmp_path):
    (tmp_path / "archive").write_bytes(archive({"sub/file": b"x"}))
    for name in ("work", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadArchive, match="sub is in the way: it is not a directory"):
        _unpack(tmp_path, tmp_path / "work")
    assert list((tmp_path / "elsewhere").iterdir()) == []
