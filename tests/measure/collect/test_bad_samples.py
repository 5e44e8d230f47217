"""What a node may send that is wrong, huge or not its own: refused or cut, counted, and no other node is harmed."""

import math
import random
import struct
import time

import pytest

from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files.rowlog import RowLog, read_end, read_log
from oarlock.measure.live import LiveUsage
from oarlock.node.measure.wire import (
    MAGIC,
    MOST_SERIES,
    SampleDecoder,
    SampleEncoder,
    UnreadableSample,
    encode_sample,
)
from tests.old_samples import encode_version_1

BOOT = "0d5a6a4e7a434d6d9d536f9a2a3a9a11"
GOOD = {"cpus": 1.0, "memory_anonymous_bytes": 5.0}


@pytest.fixture
def collector(tmp_path) -> Collector:
    made = Collector(tmp_path / "samples")
    made.start()
    made.begin_energy({}, now=1000.0)
    yield made
    made.close()


def frame(at: float = 1000.0, *, node: dict | None = None, job: dict | None = None) -> bytes:
    return encode_sample(at, node or {}, {7: GOOD if job is None else job})


def doubled() -> list[bytes]:
    sent = SampleEncoder(BOOT).encode(1000.0, {}, {7: GOOD})
    return [sent, sent]


def reordered() -> list[bytes]:
    encoder = SampleEncoder(BOOT)
    first, second = (encoder.encode(1000.0 + n, {}, {7: GOOD}) for n in range(2))
    third = encoder.encode(1002.0, {}, {7: GOOD})
    return [first, third, second]


def headed(tables: int, subjects: int, at: float = 1000.0) -> bytes:
    return struct.pack("<4s16sQdII", MAGIC, bytes(16), 1, at, tables, subjects)


REFUSED = {
    "torn": lambda: [frame()[:-3]],
    "torn in its head": lambda: [frame()[:9]],
    "empty": lambda: [b""],
    "doubled": doubled,
    "late": reordered,
    "longer than it says": lambda: [frame() + b"\0" * 8],
    "a million names": lambda: [frame(job={f"a{n}": 1.0 for n in range(1_000_000)})],
    "more series than a node may have": lambda: [frame(job={f"a{n}": 1.0 for n in range(MOST_SERIES + 1)})],
    "says that it is huge": lambda: [headed(0, 4_000_000_000), headed(4_000_000_000, 0)],
    "an instant that is none": lambda: [headed(0, 0, math.nan), headed(0, 0, math.inf)],
    "a name with a line in it": lambda: [encode_version_1(1000.0, {}, {7: {'a{b="\n"}': 1.0}})],
    "a name with an open quote": lambda: [encode_version_1(1000.0, {}, {7: {'a{b="c}': 1.0}})],
    "a name that is markup": lambda: [encode_version_1(1000.0, {}, {7: {"<script>": 1.0}})],
    "a head that is no JSON": lambda: [struct.pack("<I", 5) + b"{{{{{"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_believed_is_refused_counted_and_harms_nobody(collector, case):
    live, bad = LiveUsage(10.0), REFUSED[case]()
    for taker in (collector, live):
        for data in bad:
            taker.take("bad", data, {7}, at=1000.0)
        taker.take("good", frame(job={"cpus": 2.0}), {7}, at=1000.0)
    refused = len(bad) - {"doubled": 1, "late": 2}.get(case, 0)
    assert (collector.counts["refused"], dict(live.refused)["bad"], live.refused["good"]) == (refused, refused, 0)
    content = read_log(collector.places.log(7).read_bytes())
    assert "good" in content.nodes
    assert live.usage(7).cpus is not None


def test_jobs_that_are_not_there_are_left_out(collector):
    collector.take("n1", encode_sample(1000.0, {}, {7: GOOD, 8: GOOD}), {7}, at=1000.0)
    assert collector.places.logged_jobs() == {7}


def test_numbers_that_are_none_stay_out_of_curves_and_of_the_ledger(collector):
    for second, value in enumerate([math.nan, math.inf, -math.inf, 1e308, 5.0]):
        data = frame(1000.0 + second, node={'power_watts{meter="ipmi"}': value}, job={"cpus": value})
        collector.take("n1", data, {7}, at=1000.0 + second)
    assert collector.counts["rows"] == 10
    assert all(booking.meter < 1e7 for booking in collector.energy.hand_over().values())


def test_a_node_has_200_000_series_a_day_and_not_more(collector):
    """Each sample has other names, as a user could make them by the names of programs."""
    encoder = SampleEncoder(BOOT)
    for turn in range(6):
        names = {f'threads{{executable="/x{turn}/{n}"}}': 1.0 for n in range(40_000)}
        collector.take("n1", encoder.encode(1000.0 + turn, {}, {7: names}), {7}, at=1000.0 + turn)
    content = read_log(collector.places.log(7).read_bytes())
    assert (content.rows, collector.counts["refused"]) == (5, 1)
    assert sum(len(names) for names in content.groups) == MOST_SERIES
    collector.take("n2", frame(), {7}, at=1006.0)
    assert read_log(collector.places.log(7).read_bytes()).rows == 6
    tomorrow = 1000.0 + 86_400
    collector.take("n1", frame(tomorrow), {7}, at=tomorrow)
    assert read_log(collector.places.log(7).read_bytes()).rows == 7


def test_a_counter_that_falls_books_no_energy_and_none_is_negative(collector):
    zone = 'rapl_energy_joules_total{zone="intel-rapl:0",domain="package",socket="0"}'
    for second, joules in enumerate([100.0, 150.0, 3.0, 13.0]):  # the node was started again
        data = frame(1000.0 + second, node={zone: joules, 'core_cpu_seconds_total{core="0"}': 0.0})
        collector.take("n1", data, {7}, at=1000.0 + second)
    [booking] = collector.energy.hand_over().values()
    assert (booking.meter, booking.seconds) == (60_000, 2.0)


def _changed(dice: random.Random, data: bytes) -> bytes:
    """Change some bytes, cut, double or mix pieces."""
    content = bytearray(data)
    for _ in range(dice.randrange(1, 6)):
        place = dice.randrange(len(content))
        match dice.randrange(4):
            case 0:
                content[place] ^= 1 << dice.randrange(8)
            case 1:
                content[place : place + 4] = dice.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x80"])
            case 2:
                del content[place : place + dice.randrange(40)]
            case 3:
                content[place:place] = content[dice.randrange(len(content)) :][: dice.randrange(60)]
        content = content or bytearray(b"x")
    return bytes(content)


def test_changed_frames_are_read_or_refused_and_nothing_else():
    """For half a second; what is read is in bounds."""
    dice, end, count = random.Random("frames"), time.monotonic() + 0.5, 0
    while time.monotonic() < end:
        encoder, decoder = SampleEncoder(BOOT), SampleDecoder()
        whole = [encoder.encode(float(n), GOOD, {7: GOOD, 8: {"a": 1.0}}) for n in range(3)]
        whole.append(encode_version_1(3.0, GOOD, {7: GOOD}))
        for data in whole:
            count += 1
            try:
                sample = decoder.decode(_changed(dice, data))
            except UnreadableSample:
                continue
            assert all(math.isfinite(value) for values in sample.jobs.values() for value in values.values())
    assert count > 100


def test_changed_logs_are_read_to_the_change_from_wherever(tmp_path):
    """For half a second; the end of a log is found by its marks, whatever bytes pretend to be one."""
    path, dice = tmp_path / "log", random.Random("logs")
    log = RowLog(path)
    names = tuple(f"n{n}" for n in range(200))
    for row in range(400):
        log.row(row, "n1", names, struct.pack("<200d", *[float(row)] * 200))
        log.write()
    log.close()
    data, end, count = path.read_bytes(), time.monotonic() + 0.5, 0
    _, tail = read_end(path)
    assert (tail.rows < 400, read_log(data).rows) == (True, 400)
    while time.monotonic() < end or count < 5:
        count += 1
        place = dice.randrange(len(data) - 100_000, len(data))
        path.write_bytes(data[:place] + _changed(dice, data[place : place + 300]) + data[place + 300 :])
        begin, content = read_end(path)
        assert begin + content.length == read_log(path.read_bytes()).length
