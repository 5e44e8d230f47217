"""The same message is logged once, and then how often it came again."""

import logging
from collections.abc import Iterator

import pytest

from oarlock.server.process.logs import WINDOW_SECONDS, RepeatFilter


class Kept(logging.Handler):
    """Keeps what a log would be written to, and has a clock that a test turns."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.now = 100.0
        self.filter_ = RepeatFilter(self, lambda: self.now)
        self.addFilter(self.filter_)

    def emit(self, record: logging.LogRecord) -> None:
        about = "".join(
            f" {name}={vars(record)[name]}" for name in ("node", "number", "repeated") if name in vars(record)
        )
        self.lines.append(record.getMessage() + about + (" with traceback" if record.exc_info else ""))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, log = Kept(), logging.getLogger("tests.repeated")
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)


LOG = logging.getLogger("tests.repeated")


def test_a_message_that_comes_again_is_counted(kept: Kept):
    for _ in range(1000):
        LOG.warning("node away", extra={"node": "n1"})
    LOG.warning("node away", extra={"node": "n2"})
    assert kept.lines == ["node away node=n1", "node away node=n2"]
    kept.now += WINDOW_SECONDS
    LOG.info("something else")
    assert kept.lines[2:] == ["node away (again) node=n1 repeated=999", "something else"]
    LOG.warning("node away", extra={"node": "n1"})
    assert kept.lines[4:] == ["node away node=n1"]


def test_what_is_no_warning_is_always_logged(kept: Kept):
    for _ in range(3):
        LOG.info("job held")
    assert kept.lines == ["job held"] * 3


def open_nothing() -> None:
    raise OSError("no descriptors")


def test_a_fault_that_comes_again_has_one_traceback_and_few_lines(kept: Kept):
    for number in range(100):
        try:
            open_nothing()
        except OSError:
            LOG.exception("step failed", extra={"number": number})
    lines = [f"step failed number={number}" for number in range(6)]
    assert kept.lines == [f"{lines[0]} with traceback", *lines[1:]]
    kept.filter_.flush(final=True)
    assert kept.lines[6:] == ["step failed (again) number=0 repeated=94"]
