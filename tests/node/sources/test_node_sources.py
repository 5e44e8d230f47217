import http.server
import json
import logging
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.sources.host import machine, network, redfish, sensors
from oarlock.node.sources.host.machine import DiskSource, LocalMount, MachineSource, local_mounts, sizes
from oarlock.node.sources.host.network import InfinibandSource, LustreSource, NetworkSource
from oarlock.node.sources.host.sensors import RaplSource, TemperatureSource
from oarlock.node.sources.probe import BackgroundSource
from tests.monitoring import cases, recorded
from tests.waiting import wait_until


def read(source):
    values = {}
    source.read(values)
    return values


def read_once(source):
    values = read(source)
    source.close()
    return values


@pytest.mark.parametrize("case", cases("rapl_powercap"))
def test_energy_counters_read_as_peers_read_them(case, tmp_path):
    given_, expected = case["input"], case["expected"]
    if "tree" in given_:
        names = {path.split("/")[-2]: name for path, name in given_["tree"].items()}
        assert [zone._asdict() for zone in sensors.zones(names)] == expected["zones"]
        return
    readings = given_["energy_uj"] if isinstance(given_["energy_uj"], list) else [given_["energy_uj"]]
    counter = sensors.WrappingCounter(given_.get("max_energy_range_uj", 2**64 - 1))
    totals = [counter.total(reading) for reading in readings]
    if "joules_total" in expected:
        assert totals[0] / 1e6 == expected["joules_total"]
    else:
        assert (totals[1] - totals[0]) / 1e6 == expected["joules"]


@given(st.lists(st.integers(0, 99), min_size=1))
def test_a_counter_that_turns_over_grows_for_ever(steps):
    counter, position, true = sensors.WrappingCounter(last_value=99), 0, 0
    counter.total(0)
    for step in steps:
        true += step
        position = (position + step) % 100
        assert counter.total(position) == true


def test_every_zone_is_read_and_named(tmp_path):
    root = "class/powercap"
    recorded(
        tmp_path,
        {
            f"{root}/intel-rapl:0/name": "package-0\n", f"{root}/intel-rapl:0/energy_uj": "5000000\n",
            f"{root}/intel-rapl:0/max_energy_range_uj": "9999999\n",
            f"{root}/intel-rapl:0:0/name": "dram\n", f"{root}/intel-rapl:0:0/energy_uj": "1000000\n",
            f"{root}/intel-rapl-mmio:0/name": "package-0\n", f"{root}/intel-rapl-mmio:0/energy_uj": "5000000\n",
        },
    )  # fmt: skip
    source = RaplSource(sys=str(tmp_path))
    package = 'rapl_energy_joules_total{zone="intel-rapl:0",domain="package",socket="0"}'
    dram = 'rapl_energy_joules_total{zone="intel-rapl:0:0",domain="dram",socket="0"}'
    assert read(source) == {package: 5.0, dram: 1.0}
    recorded(tmp_path, {f"{root}/intel-rapl:0/energy_uj": "1000000\n"})
    assert read_once(source) == {package: 11.0, dram: 1.0}


def test_perf_is_preferred_where_it_can_be_opened(tmp_path):
    """The recorded PMU is the kernel's own cpu clock, in nanoseconds: a counter that really runs."""
    root = "bus/event_source/devices/power"
    recorded(
        tmp_path,
        {
            f"{root}/type": "1\n", f"{root}/cpumask": "0\n", f"{root}/events/energy-pkg": "event=0x00\n",
            f"{root}/events/energy-pkg.scale": "1e-9\n", "class/powercap/intel-rapl:0/name": "package-0\n",
            "class/powercap/intel-rapl:0/energy_uj": "5000000\n",
            "devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
        },
    )  # fmt: skip
    source = RaplSource(sys=str(tmp_path))
    [(key, first)] = read(source).items()
    if 'zone="intel-rapl:0"' in key:
        pytest.skip("this user may not count events (perf_event_paranoid)")
    assert key == 'rapl_energy_joules_total{zone="energy-pkg",domain="package",socket="0"}'
    assert read_once(source)[key] > first


def test_a_machine_without_energy_counters_says_so_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    source = RaplSource(sys=str(tmp_path))
    assert read(source) == read(source) == {}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("case", cases("hwmon"))
def test_sensors_of_a_chip_read_in_base_units(case, tmp_path):
    recorded(tmp_path, {f"class/hwmon/hwmon0/{name}": value for name, value in case["input"].items()})
    recorded(tmp_path, {"class/hwmon/hwmon0/name": "coretemp\n", "class/hwmon/hwmon0/temp1_label": "Core 0\n"})
    chip = 'chip="coretemp/hwmon0"'
    expected = case["expected"]
    assert read_once(TemperatureSource(sys=str(tmp_path))) == {
        f'temperature_celsius{{{chip},sensor="Core 0"}}': expected["celsius"],
        f'sensor_power_watts{{{chip},sensor="power1"}}': expected["power_watts"],
        f'sensor_power_average_watts{{{chip},sensor="power1"}}': expected["power_avg_watts"],
        f'sensor_energy_joules_total{{{chip},sensor="energy1"}}': expected["energy_joules"],
    }


def test_a_thermal_zone_has_its_name_and_a_sleeping_one_is_absent(tmp_path):
    recorded(
        tmp_path,
        {
            "class/thermal/thermal_zone0/type": "x86_pkg_temp\n", "class/thermal/thermal_zone0/temp": "41500\n",
            "class/thermal/thermal_zone1/type": "acpitz\n", "class/thermal/thermal_zone1/temp": "\n",
            "class/thermal/cooling_device0/type": "Fan\n",
        },
    )  # fmt: skip
    assert read_once(TemperatureSource(sys=str(tmp_path))) == {
        'temperature_celsius{chip="x86_pkg_temp",sensor="thermal_zone0"}': 41.5
    }
    assert sensors.hwmon_metric("temp1_crit") is None


@pytest.mark.parametrize("case", cases("proc_stat"))
def test_cpu_time_of_the_node_is_told_by_mode(case):
    found = machine.stat(case["input"]["text"], case["input"]["user_hz"])
    assert {key.split('"')[1]: value for key, value in found.items()} == case["expected"]


def test_the_node_is_read_from_five_files(tmp_path):
    recorded(
        tmp_path,
        {
            "stat": "cpu  100 0 0 900 0 0 0 0 0 0\ncpu0 1 2 3\nintr 5 1 1\nctxt 6\nbtime 7\nprocesses 8\n"
            "procs_running 2\nprocs_blocked 1\nsoftirq 1 2\n",
            "meminfo": "MemTotal:       1024 kB\nActive(file):      3 kB\nHugePages_Total:       7\n",
            "vmstat": "nr_free_pages 9\npgpgin 2\npgfault 4\n",
            "loadavg": "0.50 0.25 0.10 3/77 4242\n",
            "uptime": "100.5 180.25\n",
        },
    )
    values = read_once(MachineSource(proc=str(tmp_path)))
    assert {key: value for key, value in values.items() if not key.startswith("cpu_")} == {
        "interrupts_total": 5, "context_switches_total": 6, "forks_total": 8, "processes_running": 2,
        "processes_blocked": 1, "meminfo_mem_total_bytes": 1048576, "meminfo_active_file_bytes": 3072,
        "page_in_bytes_total": 2048, "page_faults_total": 4, "load_1min": 0.5, "load_5min": 0.25, "load_15min": 0.1,
        "threads_runnable": 3, "threads": 77, "uptime_seconds": 100.5, "idle_seconds_total": 180.25,
    }  # fmt: skip


def test_this_machine_can_be_read():
    values = read_once(MachineSource()) | read_once(NetworkSource())
    assert values["meminfo_mem_total_bytes"] > 1 << 20
    assert values['cpu_seconds_total{mode="user"}'] > 0
    assert 'network_received_bytes_total{interface="lo"}' in values


def test_interfaces_are_told_by_direction():
    text = (
        "Inter-|   Receive                         |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier\n"
        "  eth0:1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n"
    )
    assert {key.split("{")[0]: value for key, value in network.interfaces(text).items()} == {
        "network_received_bytes_total": 1000, "network_received_packets_total": 10, "network_received_errors_total": 1,
        "network_received_dropped_total": 2, "network_transmitted_bytes_total": 2000,
        "network_transmitted_packets_total": 20, "network_transmitted_errors_total": 3,
        "network_transmitted_dropped_total": 4,
    }  # fmt: skip


@pytest.mark.parametrize("case", cases("infiniband"))
def test_infiniband_counts_words_of_four_bytes(case, tmp_path):
    given_, expected = case["input"], case["expected"]
    counters = f"class/infiniband/{given_['device']}/ports/1/counters"
    recorded(tmp_path, {f"{counters}/{name}": f"{given_[name]}\n" for name in ("port_rcv_data", "port_xmit_data")})
    labels = f'{{device="{given_["device"]}",port="1"}}'
    assert read_once(InfinibandSource(sys=str(tmp_path))) == {
        f"infiniband_received_bytes_total{labels}": expected["received_bytes"],
        f"infiniband_transmitted_bytes_total{labels}": expected["transmitted_bytes"],
    }


@pytest.mark.parametrize("case", cases("lustre_llite_stats"))
def test_lustre_mounts_of_one_file_system_are_added_up(case, tmp_path):
    text, expected = case["input"]["text"], case["expected"]
    recorded(tmp_path, {f"proc/fs/lustre/llite/scratch-{mount}/stats": text for mount in ("ffff1", "ffff2")})
    assert read_once(LustreSource(root=str(tmp_path))) == {
        'lustre_reads_total{fs="scratch"}': 2 * expected["lustre_nb_read"],
        'lustre_read_bytes_total{fs="scratch"}': 2 * expected["lustre_bytes_read"],
        'lustre_writes_total{fs="scratch"}': 2 * expected["lustre_nb_write"],
        'lustre_written_bytes_total{fs="scratch"}': 2 * expected["lustre_bytes_write"],
    }


NAMES = {"current": "power_watts", "min": "power_minimum_watts", "max": "power_maximum_watts",
         "avg": "power_average_watts"}  # fmt: skip


@pytest.mark.parametrize("case", cases("ipmi_dcmi"))
def test_what_ipmi_programs_print_is_read(case):
    expected = {NAMES[word]: value for word, value in case["expected"].items() if word in NAMES}
    assert sensors.ipmi_readings(case["input"]["text"]) == expected


def test_ipmitool_prints_otherwise():
    text = (
        "\n    Instantaneous power reading:                   220 Watts\n"
        "    Minimum during sampling period:                 10 Watts\n"
        "    Maximum during sampling period:                500 Watts\n"
        "    Average power reading over sample period:      210 Watts\n"
        "    Power reading state is:                   activated\n\n"
    )
    assert sensors.ipmi_readings(text) == {
        "power_watts": 220, "power_minimum_watts": 10, "power_maximum_watts": 500, "power_average_watts": 210,
    }  # fmt: skip
    assert sensors.ipmi_readings(text.replace("activated", "deactivated")) == {}


def test_a_command_runs_in_the_background_and_zero_repeats_it(tmp_path):
    answers, asked = tmp_path / "answers", tmp_path / "asked"
    answers.write_text("Current Power : 300 Watts\nPower Measurement : Active\n")
    source = sensors.ipmi_source(["sh", "-c", f"cat {answers}; echo >> {asked}"], period=0.02)
    key = 'power_watts{meter="ipmi"}'
    try:
        wait_until(lambda: read(source) == {key: 300}, "the first answer")
        answers.write_text("Current Power : 0 Watts\nPower Measurement : Active\n")
        before = len(asked.read_text())
        wait_until(lambda: len(asked.read_text()) > before + 2, "it to be asked again")
        wait_until(lambda: read(source) == {key: 300}, "the last good answer")  # a slow one is left out in between
        answers.write_text("Current Power : 310 Watts\nPower Measurement : Active\n")
        wait_until(lambda: read(source) == {key: 310}, "the next answer")
    finally:
        source.close()


def test_a_question_that_fails_is_told_once_and_asked_again():
    asked = []

    def ask():
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("the controller is asleep")
        return {"power_watts": 5.0}

    source = BackgroundSource("test", ask, period=0.01)
    try:
        wait_until(lambda: len(asked) > 1, "a second question")
        with pytest.raises(RuntimeError, match="asleep"):
            read(source)
        wait_until(lambda: read(source) == {"power_watts": 5.0}, "an answer")
    finally:
        source.close()


def test_an_old_answer_is_no_answer():
    hang, asked = threading.Event(), []

    def ask():
        asked.append(1)
        if len(asked) > 1:
            hang.wait(30)
        return {"power_watts": 5.0}

    source = BackgroundSource("test", ask, period=0.05)
    try:
        wait_until(lambda: read(source) == {"power_watts": 5.0}, "the first answer")
        wait_until(lambda: read(source) == {}, "the answer to grow old")
    finally:
        hang.set()
        source.close()


@pytest.mark.parametrize("case", cases("redfish_power"))
def test_the_members_of_a_chassis_are_added_up(case):
    controls = [
        {"PowerConsumedWatts": control["PowerConsumedWatts"],
         "PowerMetrics": {f"{word}ConsumedWatts": control[word] for word in ("Min", "Max", "Average")}}
        for control in case["input"]["PowerControl"]
    ]  # fmt: skip
    expected = {NAMES[word.split("_")[0]]: value for word, value in case["expected"].items()}
    assert redfish.power({"PowerControl": controls}) == expected


DOCUMENTS = {
    "/redfish/v1/Chassis": {
        "Members": [{"@odata.id": "/redfish/v1/Chassis/1"}, {"@odata.id": "/redfish/v1/Chassis/2"}]
    },
    "/redfish/v1/Chassis/1": {"Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"}},
    "/redfish/v1/Chassis/1/Power": {"PowerControl": [{"PowerConsumedWatts": 344}, {"PowerConsumedWatts": None}]},
    "/redfish/v1/Chassis/2": {"EnvironmentMetrics": {"@odata.id": "/redfish/v1/Chassis/2/EnvironmentMetrics"}},
    "/redfish/v1/Chassis/2/EnvironmentMetrics": {"PowerWatts": {"Reading": 12.5}},
}


class Bmc(http.server.BaseHTTPRequestHandler):
    """A management controller whose sessions end when it is told so."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.logins += 1
        self.answer(201 if self.server.has_sessions else 404, {}, {"X-Auth-Token": f"token{self.server.logins}"})

    def do_GET(self):
        good = {f"token{self.server.logins}"} if self.server.has_sessions else set()
        known = (
            self.headers.get("X-Auth-Token") in good or self.headers.get("Authorization") == "Basic cm9vdDpzZWNyZXQ="
        )
        self.answer(200 if known else 401, DOCUMENTS[self.path], {})

    def answer(self, status, document, headers):
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def bmc():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bmc)
    server.logins, server.has_sessions, server.daemon_threads = 0, True, True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


POWER = {
    'power_watts{meter="redfish",chassis="1"}': 344,
    'power_watts{meter="redfish",chassis="2"}': 12.5,
}


def test_redfish_keeps_its_session_and_makes_another_when_it_ran_out(bmc):
    controller = redfish.RedfishController(f"http://127.0.0.1:{bmc.server_port}", "root", "secret")
    assert controller() == controller() == POWER
    assert bmc.logins == 1
    bmc.logins += 1  # the old token is worth nothing any more
    assert controller() == POWER
    assert bmc.logins == 3
    controller._connection.close()


def test_redfish_without_sessions_says_each_time_who_asks(bmc):
    bmc.has_sessions = False
    controller = redfish.RedfishController(f"http://127.0.0.1:{bmc.server_port}", "root", "secret")
    assert controller() == POWER
    controller._connection.close()
    wrong = redfish.RedfishController(f"http://127.0.0.1:{bmc.server_port}", "root", "wrong")
    with pytest.raises(redfish.RedfishError, match="answers 401 to /redfish/v1/Chassis"):
        wrong()
    wrong._connection.close()


def test_an_address_that_is_none_is_refused():
    with pytest.raises(redfish.RedfishError, match=re.escape("'bmc7' is not the http address")):
        redfish.RedfishController("bmc7", "root", "secret")


DISKSTATS = """   8       0 sda 100 5 2000 40 50 6 1000 30 0 60 70
   8       1 sda1 90 5 1900 40 50 6 1000 30 0 60 70
   7       0 loop0 1 0 2 0 0 0 0 0 0 0 0
"""


def test_disks_are_told_without_their_partitions(tmp_path):
    recorded(tmp_path, {"proc/diskstats": DISKSTATS, "sys/class/block/sda1/partition": "1\n"})
    assert read_once(DiskSource(str(tmp_path / "proc"), str(tmp_path / "sys"))) == {
        'disk_reads_total{device="sda"}': 100, 'disk_read_bytes_total{device="sda"}': 2000 * 512,
        'disk_writes_total{device="sda"}': 50, 'disk_written_bytes_total{device="sda"}': 1000 * 512,
    }  # fmt: skip


def test_only_file_systems_of_this_machine_are_measured():
    mounts = (
        "/dev/vda1 / ext4 rw 0 0\n/dev/vda1 /bind ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n"
        "10.0.0.1@tcp:/work /work lustre rw 0 0\ntmpfs /local\\040scratch tmpfs rw 0 0\ntmpfs /run tmpfs rw 0 0\n"
        "tmpfs /run/user/7 tmpfs rw 0 0\nproc /proc proc rw 0 0\ntank/data /data zfs rw 0 0\n"
        "overlay /o overlay rw 0 0\n"
    )
    assert local_mounts(mounts) == [
        LocalMount("/dev/vda1", "/", "ext4"),
        LocalMount("tmpfs", "/local scratch", "tmpfs"),
        LocalMount("tank/data", "/data", "zfs"),
    ]


def test_a_node_without_disks_has_no_series_of_them(tmp_path):
    assert read_once(DiskSource(str(tmp_path), str(tmp_path))) == {}
    assert sizes(str(tmp_path)) == {}
