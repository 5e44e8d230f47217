"""The file by which logind knows that a user has not gone."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from oarlock.node.attempt.user import logind


@pytest.fixture
def file(tmp_path):
    return tmp_path / "ada"


def test_it_is_there_from_the_first_attempt_of_a_user_to_the_last(file):
    logind.add_line(str(file), "n1 7.1")
    logind.add_line(str(file), "n1 8.1")
    logind.remove_line(str(file), "n1 7.1")
    assert file.read_text() == "n1 8.1\n"
    logind.remove_line(str(file), "n1 8.1")
    assert not file.exists()


def test_what_was_there_before_stays_as_it_was(file):
    file.touch()
    before = file.stat().st_mtime_ns
    logind.add_line(str(file), "n1 7.1")
    logind.remove_line(str(file), "n1 7.1")
    assert (file.read_text(), file.stat().st_mtime_ns) == ("", before)


def test_a_user_who_is_made_to_linger_meanwhile_lingers_on(file):
    logind.add_line(str(file), "n1 7.1")
    os.utime(file)  # what `loginctl enable-linger` does to a file that is there
    logind.add_line(str(file), "n1 8.1")
    logind.remove_line(str(file), "n1 7.1")
    logind.remove_line(str(file), "n1 8.1")
    assert file.read_text() == ""


def test_giving_back_what_was_not_held_changes_nothing(file):
    logind.add_line(str(file), "n1 7.1")
    logind.remove_line(str(file), "n2 7.1")
    assert file.read_text() == "n1 7.1\n"
    logind.remove_line(f"{file}-of-nobody", "n1 7.1")
    assert [path.name for path in file.parent.iterdir()] == ["ada"]


def test_a_nodes_spool_is_found_again_after_a_power_cut(file, tmp_path):
    logind.add_line(str(file), "oarlock n1 7.1")
    logind.add_line(str(file), "oarlock n1-b 8.1")
    (tmp_path / "bob").touch()
    (tmp_path / "eve").touch()
    os.utime(tmp_path / "eve", ns=(0, 0))
    assert logind.kept_users("n1", str(tmp_path)) == [("ada", (7, 1)), ("eve", (0, 0))]
    logind.remove_line(str(tmp_path / "eve"), "oarlock n1 0.0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ada", "bob"]
    assert logind.kept_users("n1", str(tmp_path / "absent")) == []


def test_many_at_once_leave_neither_a_file_nor_a_gap(file):
    def attempt(number):
        for _ in range(20):
            logind.add_line(str(file), f"n1 {number}.1")
            assert f"n1 {number}.1" in file.read_text().splitlines()
            logind.remove_line(str(file), f"n1 {number}.1")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(attempt, range(4)))
    assert not file.exists()
