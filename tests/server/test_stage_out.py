"""Archives that desktops send: kept for the job's user if they are what was announced, and harmless."""

import hashlib
import os
from types import SimpleNamespace

import pytest

from oarlock.config import Config
from oarlock.job.run.effects import RunEpilogue, StageOut
from oarlock.model.errors import NodeUnreachable
from oarlock.server.staging.stage_out import StageOutStore
from tests.bed import run_async
from tests.node.archives import archive, changed

GOOD = archive({"result": b"42\n"})


class Sender:
    """A desktop that sends these bytes, and whose connection breaks so many times before."""

    def __init__(self, content: bytes, breaks: int = 0) -> None:
        self.content, self.breaks = content, breaks

    async def fetch_file(self, job, attempt, size, write):
        await write(self.content[:10])
        if self.breaks:
            self.breaks -= 1
            raise NodeUnreachable("desk", "the connection ended", sent=True)
        await write(self.content[10:])


class Server:
    """A server whose database knows one job."""

    async def read(self, _question):
        return SimpleNamespace(id=7, uid=os.getuid())


def epilogue(content: bytes, size: int | None = None) -> RunEpilogue:
    return RunEpilogue(7, 1, StageOut("desk", hashlib.sha256(content).hexdigest(), size or len(content)))


async def fetched(tmp_path, sender: Sender, wanted: RunEpilogue, **settings: object) -> str:
    store = StageOutStore(Config(stageout_dir=tmp_path / "out", **settings), tmp_path, Server())
    return await store.fetch(wanted, lambda _name: sender)


@run_async
async def test_an_archive_arrives_whole_after_a_broken_connection(tmp_path):
    assert await fetched(tmp_path, Sender(GOOD, breaks=1), epilogue(GOOD)) == ""
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "out").iterdir()] == [("7.tgz", GOOD)]


EVIL = {
    "a link": (archive({"l": changed(type=b"2", linkname="/etc/passwd")}), "l is a link"),
    "upwards": (archive({"../x": b"x"}), "../x leads out of the directory"),
    "absolute": (archive({"/etc/x": b"x"}), "/etc/x is an absolute path"),
    "setuid": (archive({"x": changed(mode=0o4755)}), "x has the mode 4755"),
    "no archive": (b"garbage" * 10, "it is not a tar archive"),
    "a bomb": (archive({"zeros": bytes(140 << 20)}), "it unpacks to more than"),
}


@pytest.mark.parametrize("what", EVIL)
@run_async
async def test_what_could_do_harm_is_not_kept(tmp_path, what):
    content, says = EVIL[what]
    lost = await fetched(tmp_path, Sender(content), epilogue(content), stageout_max_size=1)
    assert f"what the job wrote on desk ({len(content)} bytes) is lost: the archive is not kept: {says}" in lost
    assert list((tmp_path / "out").iterdir()) == []


@run_async
async def test_another_content_or_too_much_of_it_is_refused(tmp_path):
    assert "it arrived with another sum" in await fetched(tmp_path, Sender(b"x" * 40), epilogue(GOOD))
    large = epilogue(GOOD, size=(1 << 20) + 1)
    assert "more than the 1 MiB" in await fetched(tmp_path, Sender(GOOD), large, stageout_max_size=1)
    assert list((tmp_path / "out").iterdir()) == []


@run_async
async def test_a_desktop_that_stays_away_costs_the_files_not_the_job(tmp_path):
    lost = await fetched(tmp_path, Sender(GOOD, breaks=99), epilogue(GOOD), stageout_timeout=1)
    assert lost.endswith("is lost: it did not come within 1 s")


def test_what_was_brought_back_is_removed_in_time(tmp_path):
    store = StageOutStore(Config(stageout_expiry=2), tmp_path, Server())
    store.remove_old()  # without a folder there is nothing to do
    folder = tmp_path / "stageouts"
    folder.mkdir()
    for name, hours in (("1.tgz", 3), ("2.tgz", 1), ("new.3.1", 3), ("readme", 3)):
        (folder / name).touch()
        os.utime(folder / name, (then := folder.stat().st_mtime - 3600 * hours, then))
    store.remove_old()
    assert sorted(path.name for path in folder.iterdir()) == ["2.tgz", "readme"]
