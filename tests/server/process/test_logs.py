"""Where the log goes, how much of it, and in which form."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.config import Config
from oarlock.node.log_lines import DetailFormatter
from oarlock.server.process import logs
from oarlock.store.engine import journal


@pytest.fixture(autouse=True)
def _root_logger_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(before):
        handler.close()
    root.handlers, root.level = before, level
    journal.JOBS.setLevel(logging.NOTSET)


def _begin(file: Path, level: int) -> None:
    logs.begin(Config(log_file=file, log_level=level))


def _texts(file: Path) -> list[str]:
    return [line.split(" ", 3)[3] for line in file.read_text().splitlines()]


@pytest.mark.manual(163, 180)
@pytest.mark.parametrize("level", [1, 2, 3])
def test_each_log_level_adds_to_the_one_before(tmp_path: Path, level: int):
    _begin(tmp_path / "log", level)
    journal.SITE.warning("queue stopped")
    journal.SITE.info("node state changed")
    journal.JOBS.info("job moved")
    assert _texts(tmp_path / "log") == ["queue stopped", "node state changed", "job moved"][:level]


def test_every_move_of_a_job_is_logged_by_default():
    assert Config().log_level == 3


def test_a_log_file_that_was_moved_away_is_opened_anew(tmp_path: Path):
    file = tmp_path / "log"
    _begin(file, 3)
    journal.SITE.info("before")
    file.rename(tmp_path / "log.1")
    journal.SITE.info("after")
    assert (_texts(tmp_path / "log.1"), _texts(file)) == (["before"], ["after"])


def test_a_log_whose_folder_is_gone_does_not_stop_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "logs"
    folder.mkdir()
    _begin(folder / "log", 3)
    (folder / "log").unlink()
    folder.rmdir()
    journal.SITE.info("lost")
    folder.mkdir()
    journal.SITE.info("found")
    assert _texts(folder / "log") == ["found"]
    assert "No such file" in capsys.readouterr().err


def test_a_text_that_a_user_chose_cannot_forge_a_line():
    record = logging.makeLogRecord({"msg": "job moved", "job": 7, "why": 'end\n2026 job moved "x"', "node": "n1"})
    form = DetailFormatter("%(message)s")
    assert form.format(record) == 'job moved job=7 why="end\\n2026 job moved \\"x\\"" node=n1'


def test_a_full_log_disk_and_a_closed_stderr_do_not_stop_the_server(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # as Python has it where descriptor 2 is closed
    _begin(Path("/dev/full"), 3)
    journal.SITE.info("lost")
    logging.getLogger("oarlock").error("lost as well")
    with pytest.raises(OSError, match="No space"):
        logging.getLogger().handlers[0].close()
