"""What a node remembers: the gate lets an attempt through once."""

import os

import pytest

from oarlock.node import spool
from oarlock.node.messages import Refused
from oarlock.node.spool import EXIT, LAUNCH, enter, forget, listed, open_place, prepare


def names(path):
    return [entry.name for entry in path.iterdir()]


@pytest.fixture
def place(tmp_path):
    prepare(str(tmp_path))
    made = enter(str(tmp_path), (7, 1), b'{"job": 7}')
    yield made
    made.close()


def test_an_attempt_passes_the_gate_once(tmp_path, place):
    with pytest.raises(Refused, match=r"attempt 7\.1 was here before"):
        enter(str(tmp_path), (7, 1), b"{}")
    assert place.read(LAUNCH) == {"job": 7}
    assert names(tmp_path) == ["7.1"]


def test_of_two_that_come_at_once_one_passes(tmp_path):
    prepare(str(tmp_path))
    children = []
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            try:
                enter(str(tmp_path), (7, 1), b"{}")
            except Refused:
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert sorted(os.waitpid(pid, 0)[1] for pid in children) == [0] + [256] * 19


def test_the_lock_ends_with_its_holder(tmp_path, place):
    other = open_place(str(tmp_path), (7, 1))
    assert other is not None
    assert other.locked_elsewhere()
    os.close(place.fd)
    assert not other.locked_elsewhere()
    place.fd = other.fd


def test_a_forgotten_attempt_is_gone(tmp_path, place):
    place.write(EXIT, b"{}", durable=True)
    assert listed(str(tmp_path)) == [(7, 1)]
    forget(str(tmp_path), (7, 1))
    assert (listed(str(tmp_path)), names(tmp_path)) == ([], [])


def test_what_never_passed_the_gate_is_cleared_away(tmp_path):
    prepare(str(tmp_path))
    (tmp_path / "new.99999").mkdir()
    (tmp_path / "new.99999" / LAUNCH).write_text("{")
    assert (listed(str(tmp_path)), names(tmp_path)) == ([], [])


def test_a_spool_is_closed_to_others(tmp_path):
    (tmp_path / "s").mkdir(mode=0o755)
    prepare(str(tmp_path / "s"))
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


def test_a_file_with_nonsense_is_as_good_as_none(place):
    place.write(EXIT, b"[1,")
    assert place.read(EXIT) is None


def test_cleaning_follows_no_link(tmp_path):
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "keep").touch()
    runtime = tmp_path / "r"
    runtime.mkdir()
    (runtime / "nodes").symlink_to(canary)
    spool.remove_runtime(str(runtime))
    assert (runtime.exists(), (canary / "keep").exists()) == (False, True)
