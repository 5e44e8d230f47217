"""The ledger over days, controllers and killed processes: what is booked is the meter, exactly, and once."""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock.measure.collect.collector import Collector
from oarlock.measure.energy.division import CORES, CPU, DAY, BookingKey, EnergyBooking, EnergyRules, read_state
from oarlock.measure.energy.ledger import EnergyLedger, KnownHolding, PowerReading, book_known
from oarlock.measure.energy.meter import CONTROLLER, RAPL, ConfiguredWatts
from oarlock.node.measure.wire import SampleEncoder

MIDNIGHT = 1_789_000_000 // DAY * DAY
NOON = MIDNIGHT + DAY // 2
ZONE = 'rapl_energy_joules_total{zone="intel-rapl:0",domain="package",socket="0"}'
CORES_OF_NODE = {f'core_cpu_seconds_total{{core="{core}",mode="user"}}': 0.0 for core in range(4)}


def state(at, *, joules=0.0, jobs=()):
    return read_state(at, {ZONE: joules, **CORES_OF_NODE}, dict(jobs))


def only(ledger: EnergyLedger) -> dict[str, EnergyBooking]:
    return {key.method: booking for key, booking in ledger.hand_over().items()}


def test_a_controllers_watts_are_divided_by_the_samples_in_between():
    ledger, job = EnergyLedger(EnergyRules()), {7: {"cpus": 2.0}}.items()
    ledger.take("n1", state(NOON - 1))
    ledger.take_reading("n1", PowerReading(NOON, 100.0))
    for second in range(9, 60, 10):
        ledger.take("n1", state(NOON + second, joules=float(second), jobs=job if 9 < second < 59 else ()))
    ledger.take_reading("n1", PowerReading(NOON + 60, 200.0))
    [(method, day)] = only(ledger).items()
    # The job is in the samples at 19, 29, 39 and 49 s, and counts half from 9 s and up to 59 s.
    watts = lambda at: 100 + at * 100 / 60  # noqa: E731
    half = sum(10 * watts(at) / 4 for at in (14, 54))
    whole = sum(10 * watts(at) / 2 for at in (24, 34, 44))
    assert (method, day.meter, day.seconds) == (CONTROLLER, 9_000_000, 60.0)
    assert day.jobs[7] == pytest.approx((half + whole) * 1000, abs=10)
    assert day.idle == day.meter - day.jobs[7]


def test_a_node_that_sends_no_samples_is_idle_for_its_controller():
    """It sleeps, or is left alone; nobody ever reported a job there."""
    ledger = EnergyLedger(EnergyRules())
    for minute in range(4):
        ledger.take_reading("n1", PowerReading(NOON + 60 * minute, 50.0))
    assert only(ledger) == {CONTROLLER: EnergyBooking(9_000_000, 9_000_000, 0, 180.0, until=(NOON + 180) * 1000)}


def test_a_node_whose_samples_ceased_with_jobs_is_not_assigned():
    ledger = EnergyLedger(EnergyRules())
    ledger.take("n1", state(NOON, jobs={7: {"cpus": 4.0}}.items()))
    for minute in range(1, 4):
        ledger.take_reading("n1", PowerReading(NOON + 60 * minute, 50.0))
    assert only(ledger)[CONTROLLER].not_assigned == 6_000_000


def test_when_the_controller_is_away_the_next_best_meter_counts():
    ledger = EnergyLedger(EnergyRules())
    ledger.take_reading("n1", PowerReading(NOON, 100.0))
    ledger.take_reading("n1", PowerReading(NOON + 60, 100.0))
    for second in range(60, 400, 10):
        ledger.take("n1", state(NOON + second, joules=second * 10.0))
    booked = only(ledger)
    assert (booked[CONTROLLER].meter, booked[CONTROLLER].seconds) == (6_000_000, 60.0)
    assert (booked[RAPL].meter, booked[RAPL].seconds) == (3_300_000, 330.0)
    ledger.take_reading("n1", PowerReading(NOON + 391, 100.0))
    ledger.take_reading("n1", PowerReading(NOON + 451, 100.0))
    assert only(ledger)[CONTROLLER].meter == 6_000_000


def test_an_idle_node_is_sampled_less_often_and_still_measured():
    ledger = EnergyLedger(EnergyRules())
    for minute in range(3):
        ledger.take("n1", state(NOON + 60 * minute, joules=6000.0 * minute))
    ledger.take("n1", state(NOON + 180, joules=18_000.0, jobs={7: {"cpus": 4.0}}.items()))
    ledger.take("n1", state(NOON + 240, joules=24_000.0, jobs={7: {"cpus": 4.0}}.items()))  # a hole, with a job there
    [day] = only(ledger).values()
    # It began at most a period of 10 s before the sample that it is in, so half of that is its own.
    assert (day.seconds, day.jobs, day.idle) == (180.0, {7: 500_000}, 17_500_000)


def test_what_was_booked_before_is_not_booked_again():
    ledger = EnergyLedger(EnergyRules(), {"n1": (NOON + 20) * 1000})
    for second in range(0, 50, 10):
        ledger.take("n1", state(NOON + second, joules=float(second)))
    assert {key: (booking.meter, booking.until) for key, booking in ledger.hand_over().items()} == {
        BookingKey("n1", MIDNIGHT, RAPL): (20_000, (NOON + 40) * 1000)
    }


values = {
    "cpus": st.sampled_from([0.0, 1.0, 3.0, 64.0, -1.0, float("nan"), 1e300]),
    "cpu_seconds_total": st.floats(0, 1e6) | st.sampled_from([float("inf"), -1e308, 1e308]),
    'gpu_power_watts{gpu="0",gpu_type="a",uuid="G1"}': st.floats(0, 700),
}
meters = {
    'power_watts{meter="ipmi"}': st.floats(0, 5000) | st.sampled_from([-1.0, float("inf"), float("nan"), 1e300]),
    ZONE: st.floats(0, 1e6) | st.just(1e308),
    'cpu_seconds_total{mode="user"}': st.floats(0, 1e6),
    'cpu_seconds_total{mode="idle"}': st.floats(0, 1e6),
    'gpu_power_watts{gpu="0",gpu_type="a",uuid="G1"}': st.floats(0, 700),
}
sample = st.tuples(
    st.just("sample"),
    st.sampled_from(["n1", "n2"]),
    st.floats(0.5, 70),
    st.fixed_dictionaries({"load1": st.just(1.0)}, optional=meters),
    st.dictionaries(st.integers(1, 5), st.fixed_dictionaries({}, optional=values), max_size=3),
)
reading = st.tuples(st.just("reading"), st.sampled_from(["n1", "n2"]), st.floats(5, 200), st.floats(0, 3000))
other = st.sampled_from([("kill",), ("hand over",)])


class Served:
    """What the server has: all that was handed over, and up to where."""

    def __init__(self) -> None:
        self.days: dict[BookingKey, EnergyBooking] = {}
        self.booked: Counter[str] = Counter()

    def take(self, ledger: EnergyLedger) -> None:
        for key, booking in ledger.hand_over().items():
            self.days.setdefault(key, EnergyBooking()).add(booking)
            self.booked[key.node] = max(self.booked[key.node], booking.until)


def _played(root: Path, story, rules: EnergyRules, *, kills: bool) -> dict[BookingKey, EnergyBooking]:
    """Play samples and readings of two nodes around a midnight to a collector; a kill forgets all that it has."""
    clock = {"n1": MIDNIGHT - 300.0, "n2": MIDNIGHT - 200.0}
    encoders = {node: SampleEncoder(f"{number:032x}") for number, node in enumerate(clock, 1)}
    served, collector = Served(), Collector(root, rules)

    def begin() -> None:
        collector.start()
        collector.begin_energy(served.booked, now=max(clock.values()))

    begin()
    for event in story:
        match event:
            case "sample", node, seconds, of_node, jobs:
                clock[node] += seconds
                if kills:
                    encoders[node].forget_tables()
                collector.take(node, encoders[node].encode(clock[node], of_node, jobs), set(jobs), at=clock[node])
            case "reading", node, seconds, watts:
                clock[node] += seconds
                collector.take_power(node, watts, at=clock[node])
            case ("hand over",):
                served.take(collector.energy)
            case ("kill",) if kills:
                collector.close()
                collector = Collector(root, rules)
                begin()
    served.take(collector.energy)
    collector.close()
    return served.days


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.lists(sample | sample | sample | reading | other, min_size=5, max_size=40),
    st.sampled_from([CORES, CPU]),
    st.sampled_from([None, ConfiguredWatts(80, 400)]),
)
def test_any_jobs_on_any_nodes_with_any_meter_add_up_exactly(story, split, configured):
    """Whatever is killed in between: for each node and day it is what a collector books that nobody kills."""
    rules = EnergyRules(split=split, idle_watts=50, configured=configured)
    with tempfile.TemporaryDirectory() as folder:
        days = _played(Path(folder) / "one", story, rules, kills=False)
        for booking in days.values():
            assert sum(booking.jobs.values()) + booking.idle + booking.not_assigned == booking.meter
            assert min([booking.idle, booking.not_assigned, *booking.jobs.values()]) >= 0
        again = _played(Path(folder) / "two", story, rules, kills=True)
        assert {key: _amounts(booking) for key, booking in again.items()} == {
            key: _amounts(booking) for key, booking in days.items()
        }


def _amounts(booking: EnergyBooking) -> tuple[object, ...]:
    """All of a booking; sums of seconds differ in their last digits by the order in which they were added."""
    amounts = booking.meter, booking.idle, booking.not_assigned, booking.jobs, booking.until
    seconds = {job: pytest.approx(seconds) for job, seconds in booking.job_seconds.items()}
    return *amounts, pytest.approx(booking.seconds), seconds


def test_after_a_midnight_jobs_are_known_from_the_new_days_log_alone(tmp_path):
    """The reading of a controller begins that log: what jobs hold is noted in it all the same."""
    jobs = {2: {"cpus": 0.0, 'gpu_power_watts{gpu="0",gpu_type="a",uuid="G1"}': 0.0}, 1: {"cpus": 3.0}}
    story = [
        *[("sample", "n1", seconds, {"load1": 1.0}, held) for seconds, held in ((1.0, {}), (5.0, {}), (1.0, jobs))],
        *[("reading", "n1", seconds, 0.0) for seconds in (5.0, 144.0, 144.0)],
        ("sample", "n1", 1.0, {"load1": 1.0}, jobs),
        ("reading", "n1", 5.0, 0.0),
        ("kill",),
    ]
    rules = EnergyRules(split=CORES)
    played = [_played(tmp_path / str(kills), story, rules, kills=kills) for kills in (False, True)]
    known, again = [{key: _amounts(booking) for key, booking in days.items()} for days in played]
    assert again == known
    assert {job for booking in played[1].values() for job in booking.job_seconds} == {1, 2}


def known(readings, held, *, cores=4, gpus=None):
    made = [PowerReading(*reading) for reading in readings]
    days = book_known(made, [KnownHolding(*row) for row in held], cores=cores, rules=EnergyRules(), gpus=gpus or {})
    return {day: (booking.meter, booking.idle, booking.jobs, booking.seconds) for day, booking in days.items()}


def test_known_holdings_divide_a_meter_to_the_second():
    held = [(1, 2, -50.0, 90.0), (2, 4, 90.0, 500.0)]
    assert known([(0.0, 100.0), (60.0, 100.0), (120.0, 200.0)], held) == {
        # 100 W for a minute; then a ramp, of which job 1 has the half of 30 s at 125 W, and job 2 all of 30 s at 175 W
        0: (15_000_000, 4_875_000, {1: 4_875_000, 2: 5_250_000}, 120.0)
    }  # fmt: skip


def test_a_known_gpu_is_its_jobs_and_the_rest_goes_by_cores():
    watts = {7: [PowerReading(at, 300.0) for at in (0.0, 60.0)]}
    held = [(7, 1, 0.0, 60.0), (8, 2, 0.0, 60.0)]
    assert known([(0.0, 500.0), (60.0, 500.0)], held, gpus=watts) == {
        0: (30_000_000, 3_000_000, {7: 18_000_000 + 3_000_000, 8: 6_000_000}, 60.0)
    }  # fmt: skip


def test_known_energy_belongs_to_its_day_and_a_hole_is_not_measured():
    readings = [(DAY - 60.0, 10.0), (DAY, 10.0), (DAY + 60.0, 10.0), (DAY + 5000.0, 10.0), (DAY + 5060.0, 10.0)]
    assert known(readings, []) == {0: (600_000, 600_000, {}, 60.0), DAY: (1_200_000, 1_200_000, {}, 120.0)}


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0, 150), st.floats(0, 2e4)), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9), st.floats(-50, 500), st.floats(0, 600)), max_size=6),
    st.dictionaries(st.integers(1, 5), st.floats(0, 3e4), max_size=3),
)
def test_jobs_and_idle_are_the_meter_exactly_where_holdings_are_known(steps, held, gpus):
    at, readings = 0.0, []
    for step, watts in steps:
        readings.append(PowerReading(at, watts))
        at += step + 1
    holdings = {job: KnownHolding(job, cores, start, start + length) for job, cores, start, length in held}
    power = {job: [PowerReading(float(at), watts) for at in range(0, 900, 30)] for job, watts in gpus.items()}
    days = book_known(readings, list(holdings.values()), cores=4, rules=EnergyRules(), gpus=power)
    for booking in days.values():
        assert booking.meter == sum(booking.jobs.values()) + booking.idle + booking.not_assigned
        assert min([booking.idle, booking.not_assigned, *booking.jobs.values()]) >= 0


@pytest.mark.parametrize("before", [1.0, 250.0])  # the day before, and after midnight
def test_who_held_what_is_known_after_a_kill_long_after_the_last_sample(tmp_path, before):
    """Samples ceased, on the day before or on this one, and the controller goes on: what it tells is not idle."""
    story = [
        ("sample", "n2", before, {"load1": 1.0}, {1: {"cpus": 1.0}}),
        *[("reading", "n2", 150.0, 100.0) for _ in range(5)],
        ("hand over",),
        ("kill",),
        *[("reading", "n2", 150.0, 100.0) for _ in range(2)],
    ]
    rules = EnergyRules(split=CORES)
    played = [_played(tmp_path / str(kills), story, rules, kills=kills) for kills in (False, True)]
    known, again = [{key: _amounts(booking) for key, booking in days.items()} for days in played]
    assert again == known
    assert sum(booking.not_assigned for booking in played[1].values()) == 90_000_000
