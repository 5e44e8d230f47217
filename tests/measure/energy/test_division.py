"""The energy ledger: the best meter of a node, divided among jobs so that everything adds up exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.measure.energy.division import (
    CORES,
    CPU,
    DAY,
    BookingKey,
    EnergyRules,
    apportion,
    divide,
    read_state,
)
from oarlock.measure.energy.ledger import EnergyLedger
from oarlock.measure.energy.meter import (
    CONFIGURED,
    CONTROLLER,
    PLATFORM,
    RAPL,
    ConfiguredWatts,
    MeteredEnergy,
    measure,
    read_node,
)

NOON = 1_789_000_000 // DAY * DAY + DAY // 2
RAPL_ZONES = {
    'rapl_energy_joules_total{zone="intel-rapl:0",domain="package",socket="0"}': 1000.0,
    'rapl_energy_joules_total{zone="intel-rapl:0:0",domain="core",socket="0"}': 900.0,
    'rapl_energy_joules_total{zone="intel-rapl:0:1",domain="dram",socket="0"}': 100.0,
}


def cores(count, seconds=0.0):
    return {f'core_cpu_seconds_total{{core="{core}",mode="user"}}': seconds for core in range(count)}


def grown(values, by):
    return {name: value + by for name, value in values.items()}


def metered(before, after, *, seconds=10.0, **more):
    return measure(read_node(NOON, before), read_node(NOON + seconds, after), longest=30.0, **more)


def test_the_management_controller_is_the_best_meter():
    watts = {'power_watts{meter="redfish",chassis="1"}': 200.0, 'power_watts{meter="ipmi"}': 190.0, **RAPL_ZONES}
    later = {**grown(RAPL_ZONES, 50), 'power_watts{meter="redfish",chassis="1"}': 300.0}
    assert metered(watts, later) == MeteredEnergy(CONTROLLER, 10.0, 2500.0, {})


def test_core_energy_is_inside_its_package_and_not_added():
    assert metered(RAPL_ZONES, grown(RAPL_ZONES, 50)) == MeteredEnergy(RAPL, 10.0, 100.0, {})


def test_gpus_are_added_to_rapl_and_part_of_a_controllers_watts():
    gpu = 'gpu_energy_joules_total{gpu="0",gpu_type="A100",uuid="GPU-1"}'
    rapl = metered({**RAPL_ZONES, gpu: 5000.0}, {**grown(RAPL_ZONES, 50), gpu: 7000.0})
    assert rapl == MeteredEnergy(RAPL, 10.0, 2100.0, {"GPU-1": 2000.0})
    watts = {'power_watts{meter="ipmi"}': 400.0}
    assert metered({**watts, gpu: 0.0}, {**watts, gpu: 2000.0}).total == 4000.0


def test_the_platforms_own_counter_is_better_than_its_packages():
    psys = 'rapl_energy_joules_total{zone="intel-rapl:1",domain="psys"}'
    assert metered({**RAPL_ZONES, psys: 1.0}, {**grown(RAPL_ZONES, 5), psys: 401.0}).method == PLATFORM


def test_written_watts_follow_the_load_and_are_the_last_resort():
    before = {'cpu_seconds_total{mode="user"}': 0.0, 'cpu_seconds_total{mode="idle"}': 0.0}
    after = {'cpu_seconds_total{mode="user"}': 10.0, 'cpu_seconds_total{mode="idle"}': 30.0}
    assert metered(before, after, configured=ConfiguredWatts(100, 300)) == MeteredEnergy(CONFIGURED, 10.0, 1500.0, {})
    assert metered(before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        (RAPL_ZONES, grown(RAPL_ZONES, -1), 10.0),  # the node was started again
        (RAPL_ZONES, grown(RAPL_ZONES, 1), 31.0),  # a hole
        (RAPL_ZONES, {}, 10.0),
        ({'power_watts{meter="ipmi"}': -1.0}, {'power_watts{meter="ipmi"}': 5.0}, 10.0),
    ],
)
def test_what_cannot_be_believed_is_not_measured(before, after, seconds):
    assert metered(before, after, seconds=seconds) is None


def state(at, *, watts=100.0, jobs=(), node_cores=4, busy=0.0):
    node = {'power_watts{meter="ipmi"}': watts, 'cpu_seconds_total{mode="user"}': busy, **cores(node_cores)}
    return read_state(at, node, dict(jobs))


def test_cores_that_nobody_holds_are_idle():
    ledger = EnergyLedger(EnergyRules())
    jobs = {7: {"cpus": 1.0}, 8: {"cpus": 2.0}}
    ledger.take("n1", state(NOON, jobs=jobs.items()))
    ledger.take("n1", state(NOON + 10, jobs=jobs.items()))
    ((where, day),) = ledger.hand_over().items()
    assert where == BookingKey("n1", NOON // DAY * DAY, CONTROLLER)
    assert (day.meter, day.jobs, day.idle, day.not_assigned) == (1_000_000, {7: 250_000, 8: 500_000}, 250_000, 0)
    assert day.seconds == 10.0
    assert ledger.hand_over() == {}


def test_a_job_that_was_there_at_one_end_counts_half():
    before, after = state(NOON, jobs={1: {"cpus": 4.0}}.items()), state(NOON + 10, jobs={2: {"cpus": 4.0}}.items())
    day = divide(MeteredEnergy(CONTROLLER, 10.0, 1000.0, {}), before, after, EnergyRules())
    assert (day.jobs, day.idle) == ({1: 500_000, 2: 500_000}, 0)


def test_a_gpu_goes_to_its_owner_and_one_that_nobody_has_to_idle():
    gpu = 'gpu_power_watts{gpu="0",gpu_type="A100",uuid="GPU-1"}'
    jobs = {5: {"cpus": 4.0, gpu: 300.0}}.items()
    day = divide(
        MeteredEnergy(RAPL, 10.0, 4000.0, {"GPU-1": 3000.0, "GPU-2": 500.0}),
        state(NOON, jobs=jobs), state(NOON + 10, jobs=jobs), EnergyRules(),
    )  # fmt: skip
    assert (day.jobs, day.idle) == ({5: 3_500_000}, 500_000)


def test_above_the_base_energy_goes_by_cpu_time():
    before = state(NOON, jobs={1: {"cpus": 2.0, "cpu_seconds_total": 0.0}, 2: {"cpus": 2.0}}.items())
    after = state(NOON + 10, busy=20.0, jobs={1: {"cpus": 2.0, "cpu_seconds_total": 15.0}, 2: {"cpus": 2.0}}.items())
    day = divide(MeteredEnergy(CONTROLLER, 10.0, 3000.0, {}), before, after, EnergyRules(split=CPU, idle_watts=100))
    assert (day.jobs, day.idle, day.not_assigned) == ({1: 2_000_000, 2: 500_000}, 0, 500_000)


def test_without_a_count_of_cores_nothing_is_assigned():
    node = {'power_watts{meter="ipmi"}': 100.0}
    before, after = (read_state(at, node, {1: {"cpus": 1.0}}) for at in (NOON, NOON + 10))
    day = divide(MeteredEnergy(CONTROLLER, 10.0, 1.0, {}), before, after, EnergyRules())
    assert (day.meter, day.not_assigned, day.jobs, day.idle) == (1000, 1000, {}, 0)


def test_a_sample_that_comes_late_or_twice_books_nothing():
    ledger = EnergyLedger(EnergyRules())
    for at in (NOON, NOON + 10, NOON + 10, NOON + 5, NOON + 20):
        ledger.take("n1", state(at))
    (day,) = ledger.hand_over().values()
    assert (day.meter, day.idle) == (2_000_000, 2_000_000)


@given(st.integers(0, 10**12), st.dictionaries(st.integers(0, 9), st.floats(0, 1e9), max_size=9))
def test_shares_add_up_to_the_whole(total, weights):
    shares = apportion(total, weights)
    assert sum(shares.values()) == (total if sum(weights.values()) > 0 else 0)
    assert all(share >= 0 for share in shares.values())


job_values = st.fixed_dictionaries(
    {},
    optional={
        "cpus": st.integers(0, 64).map(float),
        "cpu_seconds_total": st.floats(0, 1e6),
        'gpu_power_watts{gpu="0",gpu_type="a",uuid="G1"}': st.floats(0, 700),
        'gpu_power_watts{gpu="1",gpu_type="a",uuid="G2"}': st.floats(0, 700),
    },
)
node_values = st.fixed_dictionaries(
    {},
    optional={
        'power_watts{meter="ipmi"}': st.floats(-5, 5000),
        'rapl_energy_joules_total{zone="z",domain="package"}': st.floats(0, 1e6),
        'cpu_seconds_total{mode="user"}': st.floats(0, 1e6),
        'cpu_seconds_total{mode="idle"}': st.floats(0, 1e6),
        'gpu_power_watts{gpu="0",gpu_type="a",uuid="G1"}': st.floats(0, 700),
        'gpu_energy_joules_total{gpu="1",gpu_type="a",uuid="G2"}': st.floats(0, 1e7),
        'core_cpu_seconds_total{core="0",mode="user"}': st.just(0.0),
    },
)


@given(
    st.lists(
        st.tuples(st.floats(0.5, 40), node_values, st.dictionaries(st.integers(1, 5), job_values, max_size=4)),
        min_size=2,
        max_size=12,
    ),
    st.sampled_from([CORES, CPU]),
    st.sampled_from([None, ConfiguredWatts(80, 400)]),
)
def test_jobs_and_idle_and_not_assigned_are_the_meter_exactly(samples, split, configured):
    ledger = EnergyLedger(EnergyRules(split=split, idle_watts=50, configured=configured))
    at = float(NOON)
    for seconds, node, jobs in samples:
        at += seconds
        ledger.take("n1", read_state(at, node, jobs))
    days = ledger.hand_over()
    for day in days.values():
        assert sum(day.jobs.values()) + day.idle + day.not_assigned == day.meter
        assert min([day.idle, day.not_assigned, *day.jobs.values()]) >= 0
