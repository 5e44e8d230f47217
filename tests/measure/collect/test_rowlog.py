"""Row logs: what was written is read, whatever happens to the end of the file."""

import os
import random
import resource
import signal
import struct
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.measure.collect.files import rowlog
from oarlock.measure.collect.files.rowlog import (
    LogContent,
    LogNote,
    RowLog,
    cut_torn_end,
    read_log,
    read_log_file,
    recent_instants,
    survey_log,
)

A, B = ("cpu_seconds_total", "cpus"), ("cpus",)
ROWS = st.lists(
    st.tuples(st.integers(0, 2**41), st.sampled_from(["n1", "n2"]), st.sampled_from([A, B]), st.floats(-1e9, 1e9)),
    max_size=12,
)


def packed(names: tuple[str, ...], value: float) -> bytes:
    return struct.pack(f"<{len(names)}d", *[value + place for place in range(len(names))])


def written(path: Path, rows: list) -> None:
    log = RowLog(path)
    for at, node, names, value in rows:
        log.row(at, node, names, packed(names, value))
        log.write()
    log.close()


def rows_of(content: LogContent) -> list:
    """The rows of a log in the order of their tables, as they were written."""
    return [
        (at, content.nodes[node], names, value)
        for names, group in content.groups.items()
        for at, node, value in zip(group.times, group.nodes, group.column(0), strict=True)
    ]


def expected(rows: list) -> list:
    tables = list(dict.fromkeys(names for _, _, names, _ in rows))
    return sorted(rows, key=lambda row: tables.index(row[2]))


@settings(max_examples=40)
@given(ROWS, st.randoms(use_true_random=False), st.binary(max_size=40))
def test_any_split_of_any_log_at_any_byte_gives_a_prefix(rows, dice, noise):
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"oarlock-rowlog-{os.getpid()}.rows"
    path.unlink(missing_ok=True)
    written(path, rows)
    data = path.read_bytes() if rows else b""
    path.unlink(missing_ok=True)
    for cut in {0, len(data), *(dice.randrange(len(data) + 1) for _ in range(30))}:
        for torn in (data[:cut], data[:cut] + noise):
            content = read_log(torn)
            count = content.rows
            assert content.length <= len(torn)
            assert rows_of(content) == expected(rows[:count])
            assert count == len(rows) or cut < len(data)


@settings(max_examples=40)
@given(ROWS, st.integers(0, 3000))
def test_the_end_of_a_log_tells_its_last_instants_from_any_byte_on(rows, size):
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"oarlock-recent-{os.getpid()}.rows"
    path.unlink(missing_ok=True)
    written(path, rows)
    instants = [at for at, _, _, _ in rows]
    try:
        assert recent_instants(path) == frozenset(instants)
        some = recent_instants(path, size)
        assert any(some == frozenset(instants[place:]) for place in range(len(instants) + 1))
    finally:
        path.unlink(missing_ok=True)
    assert recent_instants(path) == frozenset()


def test_a_byte_that_changed_ends_the_log_before_it(tmp_path):
    rows = [(n, "n1", A, float(n)) for n in range(20)]
    written(tmp_path / "log", rows)
    data = bytearray((tmp_path / "log").read_bytes())
    data[len(data) // 2] ^= 1
    content = read_log(bytes(data))
    assert 0 < content.rows < 20
    assert rows_of(content) == rows[: content.rows]


def test_a_torn_end_is_cut_before_more_is_appended(tmp_path):
    path = tmp_path / "log"
    written(path, [(1, "n1", A, 1.0), (2, "n1", A, 2.0)])
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(path.read_bytes()[-30:-5])
    written(path, [(3, "n2", B, 3.0)])
    assert rows_of(read_log(path.read_bytes())) == [(1, "n1", A, 1.0), (2, "n1", A, 2.0), (3, "n2", B, 3.0)]
    assert cut_torn_end(path) == path.stat().st_size > whole


def test_notes_and_chosen_names_are_read_back(tmp_path):
    log = RowLog(tmp_path / "log")
    log.note(5, "n1", {"since": 1, "until": 5, "why": "the disk"})
    log.row(6, "n1", A, packed(A, 7.0))
    log.write()
    content = read_log((tmp_path / "log").read_bytes(), lambda names: tuple(n for n in names if n == "cpus"))
    assert content.notes == [LogNote(5, "n1", {"since": 1, "until": 5, "why": "the disk"})]
    assert [list(group.column(0)) for group in content.groups.values()] == [[8.0]]


def test_a_disk_that_takes_half_a_row_leaves_none_of_it(tmp_path):
    """The limit on the size of files stands for a full disk: the write is short."""
    path, log = tmp_path / "log", RowLog(tmp_path / "log")
    log.row(1, "n1", A, packed(A, 1.0))
    log.write()
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
        log.row(2, "n1", A, packed(A, 2.0))
        with pytest.raises(OSError, match="full"):
            log.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert path.stat().st_size == size
    log.row(3, "n1", A, packed(A, 3.0))
    log.write()
    assert rows_of(read_log(path.read_bytes())) == [(1, "n1", A, 1.0), (3, "n1", A, 3.0)]


def test_bytes_that_are_no_log_are_read_without_harm():
    """Changed logs, for a third of a second."""
    dice, end = random.Random("log"), time.monotonic() + 0.3
    head = struct.Struct("<2sBxIIIqI")
    while time.monotonic() < end:
        kind, count = dice.randrange(6), dice.choice([0, 3, 1 << 31])
        data = head.pack(b"\xa9R", kind, dice.randrange(3), dice.randrange(3), count, 1, 0) + dice.randbytes(24)
        assert read_log(data).length == 0
        assert read_log(data, verify=False).length <= len(data)


@given(ROWS, st.integers(1, 300), st.binary(max_size=9))
def test_a_file_read_in_pieces_of_any_size_says_what_its_bytes_say(rows, size, noise):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder, "log")
        path.touch()
        written(path, rows)
        data = path.read_bytes() + noise
        path.write_bytes(data)
        patched.setattr(rowlog, "_PIECE", size)
        whole, pieces, surveyed = read_log(data), read_log_file(path), survey_log(path)
    assert pieces == whole
    assert (surveyed.length, surveyed.rows) == (whole.length, len(rows))
    for names, group in surveyed.groups.items():
        width = 8 * len(names)
        assert b"".join(data[place : place + width] for place in group.places) == whole.groups[names].packed


@given(ROWS, st.integers(0, 2**41), st.integers(0, 2**41))
def test_rows_outside_of_the_wanted_time_are_left_out(rows, since, until):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.touch()
        written(path, rows)
        content = read_log_file(path, inside=(since, until))
    assert rows_of(content) == [row for row in expected(rows) if since <= row[0] <= until]
