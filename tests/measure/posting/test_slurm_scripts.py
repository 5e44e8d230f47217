"""The pusher of scripts: what appears in a spool arrives at a server, once, whatever is restarted."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.cli import oarlock
from oarlock.measure.posting.https import ServerConnection
from oarlock.measure.posting.slurm_scripts import ScriptPusher, SentScripts
from tests.waiting import wait_until
from tests.web.nodeless_server import Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def api(sqlite_path: Path) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1) as running:
        yield running


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "spool" / "hash.7").mkdir(parents=True)
    return tmp_path / "spool"


@pytest.fixture
def token(api: Running, tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(api.client.post("/tokens", {"name": "s", "scripts": True, "cluster": "alpha"}).body["token"])
    return file


def submit(spool: Path, job: int, script: str, *, age: float = 10) -> Path:
    """Do as slurmctld does: a directory, then the script, which ends with NUL."""
    folder = spool / f"hash.{job % 10}" / f"job.{job}"
    folder.mkdir(parents=True)
    path = folder / "script"
    path.write_bytes(script.encode() + b"\0")
    now = path.stat().st_mtime
    os.utime(path, (now, now - age))
    return path


def stored(api: Running, job: int) -> str | None:
    reply = api.client.get(f"/jobs/{job}/script?cluster=alpha")
    return reply.body["script"] if reply.status == 200 else None


def command(api: Running, spool: Path, token: Path, *more: str) -> int:
    return oarlock.main([
        "sources", "slurm-scripts", "--send", f"http://127.0.0.1:{api.port}", "--token-file", str(token),
        "--spool", str(spool), "--sent", str(spool.parent / "sent"), *more,
    ])  # fmt: skip


def test_scripts_are_sent_once_also_after_a_restart(api, spool, token):
    submit(spool, 17, "#!/bin/sh\necho 17\n")
    assert command(api, spool, token, "--once") == 0
    assert stored(api, 17) == "#!/bin/sh\necho 17\n"
    (spool / "hash.7" / "job.17" / "script").write_text("changed")
    submit(spool, 28, "echo 28")
    assert command(api, spool, token, "--once") == 0
    assert (stored(api, 17), stored(api, 28)) == ("#!/bin/sh\necho 17\n", "echo 28")


def test_a_script_of_more_than_a_mebibyte_is_cut(api, spool, token):
    submit(spool, 17, "x" * (1 << 20) + "é" * 10)
    assert command(api, spool, token, "--once") == 0
    assert stored(api, 17) == "x" * (1 << 20)


def test_new_jobs_are_noticed_and_a_server_that_stops_is_waited_for(api, spool, token):
    connection = ServerConnection(f"http://127.0.0.1:{api.port}", token)
    pusher = ScriptPusher(spool, connection, SentScripts(spool.parent / "sent"))
    thread = threading.Thread(target=pusher.run)
    thread.start()
    try:
        submit(spool, 17, "in a folder that was there")
        submit(spool, 28, "in a new folder")
        wait_until(lambda: (stored(api, 17), stored(api, 28)) == ("in a folder that was there", "in a new folder"))
        api.core.stopping.set()
        submit(spool, 37, "while the server stops")
        wait_until(lambda: pusher._complaint.startswith("503"), "a refusal")
        api.core.stopping.clear()
        wait_until(lambda: stored(api, 37) == "while the server stops")
    finally:
        pusher.stop()
        thread.join(10)
        pusher.close()
    assert pusher.pushed == 3


def test_a_wrong_token_and_a_spool_that_is_not_there_are_refused(api, spool, token, capsys):
    submit(spool, 17, "x")
    assert command(api, spool / "no", token, "--once") == 2
    assert "There is no directory" in capsys.readouterr().err
    token.write_text("wrong")
    assert command(api, spool, token, "--once") == 2
    assert "did not take all scripts" in capsys.readouterr().err
