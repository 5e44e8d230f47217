"""The key of a job on a node: made there, or brought before the launch; removed with the attempt."""

import os
import subprocess
import sys

from oarlock.node.attempt.user.job_key import BroughtKeys, make_pair


def test_a_pair_is_made_and_only_its_private_half_is_left(tmp_path):
    public = make_pair(str(tmp_path / "1.1.key"), "ada@job1")
    shown = subprocess.run(["ssh-keygen", "-yf", tmp_path / "1.1.key"], check=True, capture_output=True, text=True)
    assert public.split()[:2] == shown.stdout.split()[:2]
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("1.1.key", 0o400)]


def test_keys_without_a_launch_are_removed_and_others_kept(tmp_path):
    keys = BroughtKeys(str(tmp_path))
    for number in range(1, 5):
        keys.put((number, 1), f"key {number}")
    keys.claim((1, 1))
    keys.drop_waiting((1, 1))
    keys.drop_waiting((2, 1))
    keys.claim((3, 1))
    keys.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.1.key", "3.1.key"]
    assert (tmp_path / "1.1.key").stat().st_mode & 0o777 == 0o400
    (tmp_path / "3.1.nodes").touch()
    keys.remove_orphans({(1, 1)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.1.key", "3.1.nodes"]


def test_a_key_never_follows_a_link(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "1.1.key").symlink_to("target")
    BroughtKeys(str(tmp_path)).put((1, 1), "secret")
    assert ((tmp_path / "target").read_text(), (tmp_path / "1.1.key").read_text()) == ("kept", "secret")


def test_a_process_that_has_seen_a_key_writes_no_core(tmp_path):
    code = (
        "import ctypes, sys; from oarlock.node.attempt.user.job_key import BroughtKeys; "
        "libc = ctypes.CDLL(None); before = libc.prctl(3, 0, 0, 0, 0); "
        "BroughtKeys(sys.argv[1]).put((1, 1), 'secret'); print(before, libc.prctl(3, 0, 0, 0, 0))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.stdout.split() == ["1", "0"]
