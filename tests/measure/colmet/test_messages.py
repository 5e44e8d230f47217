import random
import struct
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.measure.colmet.maps import RUST_TABLE, VERSIONS, whole_milliseconds
from oarlock.measure.colmet.messages import ColmetRecord, UnreadableMessage
from oarlock.measure.colmet.receive import ColmetTranslator, decode
from oarlock.measure.colmet.records import LAYOUTS
from oarlock.measure.metrics import catalogue
from oarlock.node.measure.wire import decode_sample, encode_sample
from oarlock.node.sources.probe import split
from tests.measure.colmet import recorded
from tests.monitoring import cases

NOW = 1_700_000_003.0
FORMS = {"records": recorded.RECORDS, "rust": recorded.RUST, "versioned": recorded.VERSIONED}
pack = msgspec.msgpack.encode


def translated(*messages, events=()):
    translator = ColmetTranslator(events)
    return [sample for message in messages for sample in translator.translate(decode(message, NOW), NOW)]


@pytest.mark.parametrize("case", cases("colmet_record"))
def test_a_record_has_the_size_that_was_measured(case):
    backend, size = case["input"]["backend"].removesuffix("_default"), case["expected"]["bytes"]
    assert 255 + 255 + 8 + 8 + LAYOUTS[backend][0].form.size == size
    assert len(recorded.TASKSTATS) == size


def test_records_of_colmet_in_python_become_a_sample_in_our_units():
    [sample] = translated(recorded.RECORDS, events=("instructions", "task_clock"))
    assert sample.at == 1_700_000_000.0
    assert sample.on_node == {4071, 4080}
    job = sample.jobs.pop(4071)
    assert sample.jobs == {}
    assert job["cpu_seconds_total"] == pytest.approx(1.5)
    assert (job["cpu_user_seconds_total"], job["cpu_system_seconds_total"]) == pytest.approx((2.0, 1.0))
    assert (job["read_bytes_total"], job["written_bytes_total"]) == (16384, 32768)  # taskstats knows more than jobproc
    assert job["resident_bytes"] == 1024 * 1024
    assert job["perf_instructions_total"] == 1000
    assert job["perf_task_clock_seconds_total"] == pytest.approx(2e-6)
    assert job["colmet_coremem_byte_seconds_total"] == pytest.approx(2**20)
    node = sample.node
    assert node["meminfo_mem_total_bytes"] == 1024 * 1024
    assert node['cpu_seconds_total{mode="steal"}'] == pytest.approx(0.1)
    assert node['cpu_seconds_total{mode="guest"}'] == pytest.approx(0.2)
    assert (node["load_1min"], node["threads"]) == (0.5, 100)
    assert node['power_watts{meter="ipmi"}'] == 300
    temperatures = [value for series, value in node.items() if series.startswith("temperature_celsius")]
    assert temperatures == [45, 0]


def test_a_processor_without_a_counter_has_no_series_for_it():
    [sample] = translated(recorded.RAPL)
    energy = {series: value for series, value in sample.node.items() if series.startswith("rapl")}
    assert list(energy.values()) == pytest.approx([1.0, 0.5])
    assert [split(series)[1].split('domain="')[1].partition('"')[0] for series in energy] == ["package", "dram"]


def test_counters_that_colmet_starts_again_grow_here():
    first, second, third = translated(recorded.RUST, recorded.RUST, recorded.RUST)
    assert [sample.jobs[4071]["perf_instructions_total"] for sample in (first, second, third)] == [1000, 2000, 3000]
    assert [sample.jobs[4071]["cpu_periods_total"] for sample in (first, second, third)] == [10, 10, 10]


def test_the_map_of_colmet_rust_is_understood():
    assert len(RUST_TABLE) == 64
    assert decode(recorded.RUST, NOW).records == [
        ColmetRecord("memory", 4071, 1_700_000_000.0, {
            "total_cache": 1 << 20, "total_rss": 1 << 21, "hierarchical_memory_limit": 9223372036854771712,
        }),
        ColmetRecord("cpu", 4071, 1_700_000_000.0, {
            "nr_periods": 10, "nr_throttled": 2, "throttled_time": 1_000_000_000,
        }),
        ColmetRecord("perfhw", 4071, 1_700_000_000.0, {"instructions": 1000, "cpu_clock": 500_000_000}),
    ]  # fmt: skip
    [sample] = translated(recorded.RUST)
    assert sample.jobs == {4071: {
        "memory_cache_bytes": 1 << 20, "memory_anonymous_bytes": 1 << 21, "cpu_periods_total": 10,
        "cpu_throttled_periods_total": 2, "cpu_throttled_seconds_total": 1.0, "perf_instructions_total": 1000,
        "perf_cpu_clock_seconds_total": 0.5,
    }}  # fmt: skip


def test_the_versioned_map_of_colmet_rs_is_understood():
    assert len(VERSIONS[1]) == 67
    assert decode(recorded.VERSIONED, NOW).records == [
        ColmetRecord("memory", 4071, 1_700_000_000.0, {"total_rss": 4096, "total_swap": 512}),
        ColmetRecord("perfhw", 4071, 1_700_000_000.0, {"instructions": 7}),
    ]


@given(st.integers(0, 1 << 44), st.integers(-(1 << 30), 1 << 30))
def test_milliseconds_that_were_cut_are_found_again(instant, behind):
    cut = (instant + (1 << 31)) % (1 << 32) - (1 << 31)
    assert whole_milliseconds(cut, (instant + behind) / 1000) in range(instant - 1, instant + 2)


def test_what_every_form_sends_is_a_sample_that_the_collector_reads():
    for message in FORMS.values():
        for sample in translated(message):
            received = decode_sample(encode_sample(sample.at, sample.node, sample.jobs))
            assert (received.at, received.node, received.jobs) == (sample.at, sample.node, sample.jobs)


def test_names_without_the_prefix_are_those_of_our_catalogue():
    for message in FORMS.values():
        for sample in translated(message):
            for scope, values in [("node", sample.node), *(("job", values) for values in sample.jobs.values())]:
                names = {split(series)[0] for series in values}
                assert {name for name in names if (scope, name) not in catalogue() and name[:7] != "colmet_"} == set()


def test_records_of_older_versions_of_colmet_are_understood():
    older = recorded.PROCSTATS[: 526 + 59 * 8 + 5 * 4]
    [sample] = translated(older + recorded.TASKSTATS + older)
    assert sample.node["meminfo_mem_total_bytes"] == 1024 * 1024
    assert sample.on_node == {4071}


def test_a_sensor_below_zero_costs_nothing_else():
    cold = (-40).to_bytes(8, "little", signed=True)
    [sample] = translated(recorded.TEMPERATURE[:534] + cold + recorded.TEMPERATURE[542:])
    assert list(sample.node.values()) == [45, -40]


def refused(message):
    with pytest.raises(UnreadableMessage) as error:
        translated(message)
    return str(error.value)


TASK = recorded.TASKSTATS
HOSTILE = {
    "nothing": (b"", "in no form of Colmet"),
    "text": (b"GET / HTTP/1.1\r\n\r\n", "in no form of Colmet"),
    "a record that is cut": (TASK[:-1], "another length"),
    "a record and a half": (TASK + TASK[:300], "byte 762 of 1062 does not begin a record"),
    "a head alone": (TASK[:400], "does not begin a record"),
    "a backend that does not exist": (recorded.name("papistats") + TASK[255:], "in no form"),
    "two hosts": (TASK + TASK[:255] + b"other".ljust(255, b"\0") + TASK[510:], "several hosts"),
    "a host with a slash": (TASK[:255] + b"../../etc".ljust(255, b"\0") + TASK[510:], "'../../etc' is not the name"),
    "a host with dots": (TASK[:255] + b"a..b".ljust(255, b"\0") + TASK[510:], "is not the name"),
    "a host of no letters": (TASK[:255] + bytes(255) + TASK[510:], "'' is not the name"),
    "a host with a quote": (TASK[:255] + b'a"b'.ljust(255, b"\0") + TASK[510:], "is not the name"),
    "a host in Greek": (TASK[:255] + "ω1".encode().ljust(255, b"\0") + TASK[510:], "not ASCII"),
    "a huge job": (TASK[:510] + b"\xff" * 8 + TASK[518:], "is not possible"),
    "a huge instant": (TASK[:518] + b"\xff" * 8 + TASK[526:], "is not possible"),
    "a huge number": (TASK[:526] + b"\xfe" * 8 + TASK[534:], "cpu_count is 18"),
    "a negative number": (recorded.PERFHW[:526] + b"\xfe" + b"\xff" * 7 + recorded.PERFHW[534:], "counter_1 is -2"),
    "not a number": (recorded.PROCSTATS.replace(struct.pack("<f", 0.5), struct.pack("<f", float("nan"))), "is nan"),
    "a job of the node's backend": (recorded.RAPL[:510] + recorded.JOB_4071 + recorded.RAPL[518:], "not measure job"),
    "the node of a job's backend": (TASK[:510] + bytes(8) + TASK[518:], "taskstats does not measure job 0"),
    "jobs that are no list": (recorded.IPMI.replace(b"[]", b"{}"), "not numbers of jobs"),
    "jobs that are texts": (recorded.IPMI.replace(b'[]\0\0\0', b'["a"]'), "not numbers of jobs"),
    "jobs that are no JSON": (recorded.IPMI.replace(b"[]", b"[["), "not JSON"),
    "jobs deep inside": (recorded.IPMI[:534] + b"[" * 8192, "not JSON"),
    "an empty map": (pack({}), "0 hosts"),
    "a map of nothing": (pack({1: None}), "not a map of measurements"),
    "a map by text": (pack({"a": ["h", 1, []]}), "not a map of measurements"),
    "a map and more": (recorded.RUST + b"\0", "not a map of measurements"),
    "a map that is cut": (recorded.RUST[:-1], "not a map of measurements"),
    "a map of a million": (b"\xdf\xff\xff\xff\xff", "not a map of measurements"),
    "a list of a million": (b"\x81\x01\x93\xa1a\x01\xdd\xff\xff\xff\xff", "not a map of measurements"),
    "maps in maps": (b"\x81\x01" * 5000, "not a map of measurements"),
    "maps of two hosts": (pack({1: ["a", 1, []], 2: ["b", 1, []]}), "2 hosts"),
    "a host that is none": (pack({1: ["../x", 1, []]}), "is not the name"),
    "a negative job": (pack({-1: ["a", 1, [["cpu", [34], [1]]]]}), "job -1"),
    "an unknown metric": (pack({1: ["a", 1, [["cpu", [99], [1]]]]}), "metric 99 is not one of backend 'cpu'"),
    "a metric elsewhere": (pack({1: ["a", 1, [["cpu", [1], [1]]]]}), "metric 1 is not one of backend 'cpu'"),
    "an unknown backend": (pack({1: ["a", 1, [["gpu", [34], [1]]]]}), "not one of backend 'gpu'"),
    "a name twice": (pack({1: ["a", 1, [["cpu", [34, 34], [1, 2]]]]}), "2 values have 1 different names"),
    "values without names": (pack({1: ["a", 1, [["cpu", [34], [1, 2]]]]}), "2 values have 1"),
    "a number below": (pack({1: ["a", 1, [["cpu", [34], [-2]]]]}), "nr_periods is -2"),
    "a number above": (pack({1: ["a", 1, [["cpu", [34], [1 << 63]]]]}), "nr_periods is 9"),
    "a fraction": (pack({1: ["a", 1, [["cpu", [34], [0.5]]]]}), "not a map of measurements"),
    "an unknown version": (pack({1: ["a", 1, 2, []]}), "version 2 of colmet-rs' table is unknown; there is 1"),
    "another job inside": (pack({1: ["a", 1, 1, [[2, "cpu", ["36"], [1]]]]}), "values of job 2 stand below job 1"),
    "a text for a number": (pack({1: ["a", 1, 1, [[1, "cpu", ["x"], [1]]]]}), "'x' is not the number of a metric"),
    "digits elsewhere": (pack({1: ["a", 1, 1, [[1, "cpu", ["³"], [1]]]]}), "is not the number of a metric"),
    "an instant before time": (pack({1: ["a", -(1 << 60), 1, [[1, "cpu", ["36"], [1]]]]}), "is not possible"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_message_is_refused_with_its_reason(what):
    message, why = HOSTILE[what]
    assert why in refused(message)


def test_a_message_of_very_many_instants_is_refused_at_once():
    instants = [TASK[:518] + number.to_bytes(8, "little") + TASK[526:] for number in range(3000)]
    assert "holds 3000 instants" in refused(b"".join(instants))


def test_damaged_messages_are_understood_or_refused_and_nothing_else():
    """Fuzzing for a bounded time: bytes of real messages changed, cut, doubled and put together."""
    chance = random.Random(17)
    until = time.monotonic() + 2.0
    counts = {"understood": 0, "refused": 0}
    while time.monotonic() < until:
        message = bytearray(chance.choice([*FORMS.values(), TASK, recorded.RAPL]))
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(message) or 1)
            match chance.randrange(4):
                case 0:
                    message[place : place + 1] = bytes([chance.randrange(256)])
                case 1:
                    del message[place : place + chance.randrange(1, 600)]
                case 2:
                    message[place:place] = chance.randbytes(chance.randrange(1, 9))
                case _:
                    message += message[:place][:2000]
        try:
            for sample in ColmetTranslator().translate(decode(bytes(message), NOW), NOW):
                decode_sample(encode_sample(sample.at, sample.node, sample.jobs))
            counts["understood"] += 1
        except UnreadableMessage:
            counts["refused"] += 1
    assert min(counts.values()) > 10, counts


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=9),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.integers(0, 99), inside, max_size=3),
))  # fmt: skip
def test_maps_of_anything_are_refused(content):
    with pytest.raises(UnreadableMessage):
        decode(pack({7: content}), NOW)
