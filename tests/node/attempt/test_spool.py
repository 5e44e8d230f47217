"""What a node remembers: the gate lets an attempt through once."""

import os

import pytest

from oarlock.node.attempt.spool import HighestJob, create_entry, forget, list_attempts, open_entry, prepare, remove
from oarlock.node.wire.messages import NodeRequestRefused

KEY = "ab" * 32


def names(path):
    return [entry.name for entry in path.iterdir()]


@pytest.fixture
def entry(tmp_path):
    prepare(str(tmp_path))
    made = create_entry(str(tmp_path), (7, 1), b'{"job": 7}', KEY)
    yield made
    made.close()


def test_an_attempt_passes_the_gate_once(tmp_path, entry):
    with pytest.raises(NodeRequestRefused, match=r"attempt 7\.1 was here before"):
        create_entry(str(tmp_path), (7, 1), b"{}", KEY)
    assert entry.read_launch(KEY) == {"job": 7}
    assert names(tmp_path) == ["7.1"]


def test_of_two_that_come_at_once_one_passes(tmp_path):
    prepare(str(tmp_path))
    children = []
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            try:
                create_entry(str(tmp_path), (7, 1), b"{}", KEY)
            except NodeRequestRefused:
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert sorted(os.waitpid(pid, 0)[1] for pid in children) == [0] + [256] * 19


def test_the_lock_ends_with_its_holder(tmp_path, entry):
    other = open_entry(str(tmp_path), (7, 1))
    assert other is not None
    assert other.locked_elsewhere()
    os.close(entry.fd)
    assert not other.locked_elsewhere()
    entry.fd = other.fd


def test_a_forgotten_attempt_is_gone(tmp_path, entry):
    entry.write({}, durable=True)
    (tmp_path / "7.1.control").touch()
    assert list_attempts(str(tmp_path)) == [(7, 1)]
    forget(str(tmp_path), (7, 1))
    assert (list_attempts(str(tmp_path)), names(tmp_path)) == ([], [])


def test_what_never_passed_the_gate_is_cleared_away(tmp_path):
    prepare(str(tmp_path))
    (tmp_path / "new.99999").write_text("{")
    assert (list_attempts(str(tmp_path)), names(tmp_path)) == ([], [])


def test_a_spool_is_closed_to_others(tmp_path):
    (tmp_path / "s").mkdir(mode=0o755)
    prepare(str(tmp_path / "s"))
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("cut", [b"", b"\n", b'\n{"report": "x', b"\n[1]"])
def test_an_outcome_that_is_not_whole_is_written_anew(entry, cut):
    os.write(entry.fd, cut)  # and there the supervisor was cut off
    later = open_entry(entry.spool, entry.key)
    assert (later.read_launch(KEY), later.outcome()) == ({"job": 7}, None)
    later.write({"report": "it ended"})
    assert (later.read_launch(KEY), later.outcome()) == ({"job": 7}, {"report": "it ended"})
    later.close()


def test_what_is_said_later_takes_the_place_of_what_was_said_before(entry):
    entry.write({"crash": "a rather long sentence about it"})
    entry.write({"report": ""})
    assert entry.outcome() == {"report": ""}


def test_a_launch_of_several_lines_is_one_line_in_the_file(tmp_path):
    prepare(str(tmp_path))
    entry = create_entry(str(tmp_path), (8, 1), b'{\n"job": 8}', KEY)
    assert (entry.read_launch(KEY), entry.outcome()) == ({"job": 8}, None)
    entry.close()


def test_what_a_power_cut_left_of_a_launch_takes_an_outcome(tmp_path):
    (tmp_path / "9.1").touch()
    entry = open_entry(str(tmp_path), (9, 1))
    assert entry is not None
    entry.write({"report": "lost"})
    assert (entry.read_launch(KEY), entry.outcome()) == (None, {"report": "lost"})
    entry.close()


def test_removing_follows_no_link(tmp_path):
    (tmp_path / "keep").touch()
    (tmp_path / "nodes").symlink_to(tmp_path / "keep")
    remove(str(tmp_path / "nodes"))
    assert names(tmp_path) == ["keep"]


def test_what_was_signed_with_another_key_is_not_read(tmp_path, entry):
    assert (entry.read_launch("cd" * 32), entry.claimed()) == (None, {"job": 7})


def test_a_launch_that_somebody_changed_in_the_file_is_not_read(tmp_path, entry):
    path = tmp_path / "7.1"
    path.write_bytes(path.read_bytes().replace(b'"job": 7', b'"job": 8'))
    assert entry.read_launch(KEY) is None


def test_the_highest_job_is_remembered_with_its_instance(tmp_path):
    prepare(str(tmp_path))
    first = HighestJob(str(tmp_path), "one")
    for job in (4, 12, 7):
        first.see(job)
    assert (first.before, HighestJob(str(tmp_path), "other").before) == (("", 0), ("one", 12))
