"""Real senders of pyzmq, as Colmet's nodes are, and what comes of their messages."""

import ipaddress
import threading

import h5py
import pytest
import zmq

from oarlock.measure.collect.collector import LEAST_SAMPLES, Collector
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.series import SeriesRange, read_job
from oarlock.measure.colmet.receive import MOST_BYTES, ColmetReceiver
from oarlock.measure.colmet.senders import CurveKeys, Senders, read_senders
from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.wire import encode_sample
from tests.measure.colmet import recorded
from tests.waiting import wait_until

NOW = 1_700_000_003.0


class Taken:
    """What a receiver delivered."""

    def __init__(self):
        self.samples = []

    def __call__(self, received):
        self.samples.append(received)


@pytest.fixture
def receiving():
    """Make receivers, closed at the end."""
    receivers = []

    def make(senders=None, take=None, **more):
        taken = take or Taken()
        receiver = ColmetReceiver("tcp://127.0.0.1:0", senders or Senders(), taken, **{"clock": lambda: NOW, **more})
        receivers.append(receiver)
        return receiver, taken

    yield make
    for receiver in receivers:
        receiver.close()


@pytest.fixture
def sender():
    """Make sockets that push as a node's does, from an address of this machine's or with keys."""
    context, sockets = zmq.Context(), []

    def make(receiver, address="127.0.0.1", keys=None):
        socket = context.socket(zmq.PUSH)
        sockets.append(socket)
        socket.linger = 0
        if keys:
            socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys
        port = receiver.address.rpartition(":")[2]
        socket.connect(f"tcp://{address}:0;127.0.0.1:{port}")
        return socket

    yield make
    for socket in sockets:
        socket.close()
    context.term()


def test_a_message_of_a_colmet_node_arrives_as_a_sample(receiving, sender):
    receiver, taken = receiving(perf_events=("instructions", "cpu_cycles"))
    sender(receiver).send(recorded.RECORDS)
    wait_until(lambda: taken.samples, "the sample")
    [(sender_address, node, sample, at)] = taken.samples
    assert (sender_address, node, at) == ("127.0.0.1", "dahu-17", NOW)
    assert (sample.at, sample.on_node) == (1_700_000_000.0, {4071, 4080})
    assert sample.jobs[4071]["perf_cpu_cycles_total"] == 2000
    assert sample.node["load_15min"] == 1.5
    assert receiver.received == {"dahu-17": 1}
    assert receiver.refused == {}


def test_refused_messages_are_counted_and_the_next_is_taken(receiving, sender):
    receiver, taken = receiving()
    node = sender(receiver)
    for message in (b"", b"nonsense", recorded.RUST[:-1], bytes(MOST_BYTES + 1)):
        node.send(message)
    node.send_multipart([recorded.RUST, recorded.RUST])
    node.send(recorded.RUST)
    wait_until(lambda: taken.samples, "the sample")
    assert receiver.refused == {"127.0.0.1": 5}
    assert len(taken.samples) == 1


def test_a_message_far_too_large_cuts_its_sender_off_and_no_other(receiving, sender):
    receiver, taken = receiving()
    flood, node = sender(receiver), sender(receiver)
    flood.send(bytes(3 * MOST_BYTES))
    node.send(recorded.RUST)
    wait_until(lambda: taken.samples, "the sample")
    assert receiver.received == {"dahu-17": 1}


def test_an_address_that_is_not_listed_is_not_heard(receiving, sender):
    receiver, taken = receiving(Senders([ipaddress.ip_network("127.0.0.2")]))
    sender(receiver, "127.0.0.3").send(recorded.RUST)
    sender(receiver, "127.0.0.2").send(recorded.RUST)
    wait_until(lambda: taken.samples and receiver.refused, "both")
    assert set(receiver.refused) == {"127.0.0.3"}
    assert len(taken.samples) == 1


def test_one_address_cannot_tell_about_the_node_of_another(receiving, sender, tmp_path):
    file = tmp_path / "senders.toml"
    file.write_text('[senders]\ndahu-17 = "127.0.0.2"\ndahu-18 = ["127.0.0.3", "127.0.0.4"]\n')
    receiver, taken = receiving(read_senders(file=file))
    sender(receiver, "127.0.0.3").send(recorded.RUST)  # it is dahu-18's
    wait_until(lambda: receiver.refused, "the refusal")
    sender(receiver, "127.0.0.2").send(recorded.RUST)
    wait_until(lambda: taken.samples, "the sample")
    assert receiver.refused == {"127.0.0.3": 1}


def test_whoever_sent_for_a_host_first_keeps_it_while_it_sends():
    senders = Senders([ipaddress.ip_network("10.0.0.0/8")])
    assert senders.may_speak_for("10.0.0.1", "n1", 1000.0)
    assert not senders.may_speak_for("10.0.0.2", "n1", 1300.0)
    assert senders.may_speak_for("10.0.0.1", "n1", 1500.0)
    assert not senders.may_speak_for("10.0.0.2", "n1", 2000.0)
    assert senders.may_speak_for("10.0.0.2", "n1", 2101.0)  # a node that came back with another address
    assert not senders.may_speak_for("10.0.0.1", "n1", 2102.0)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("127.3.2.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
     ("::2", False), ("", False), ("fe80::1%eth0", False), ("localhost", False)],
)  # fmt: skip
def test_without_a_list_only_this_machine_may_send(address, expected):
    assert Senders().admit_address(address) is expected


def curve_pair():
    return zmq.curve_keypair()


def test_with_curve_only_those_whose_keys_are_known_are_heard(receiving, sender):
    (our_public, our_secret), known, stranger = curve_pair(), curve_pair(), curve_pair()
    keys = CurveKeys(our_secret.decode(), {known[0].decode(): "dahu-17"})
    receiver, taken = receiving(Senders(curve=keys))
    sender(receiver, keys=(*stranger, our_public)).send(recorded.RUST)
    wait_until(lambda: receiver.refused.get("127.0.0.1"), "the refusal")
    sender(receiver).send(recorded.RUST)  # without CURVE: ZeroMQ itself ends the handshake
    sender(receiver, keys=(*known, curve_pair()[0])).send(recorded.RUST)  # meant for another receiver
    sender(receiver, keys=(*known, our_public)).send(recorded.RUST)
    wait_until(lambda: taken.samples, "the sample")
    assert receiver.received == {"dahu-17": 1}


def test_a_key_speaks_for_its_own_node_alone(receiving, sender):
    (our_public, our_secret), known = curve_pair(), curve_pair()
    receiver, taken = receiving(Senders(curve=CurveKeys(our_secret.decode(), {known[0].decode(): "dahu-18"})))
    sender(receiver, keys=(*known, our_public)).send(recorded.RUST)
    wait_until(lambda: receiver.refused, "the refusal")
    assert receiver.refused == {"dahu-18": 1}
    assert taken.samples == []


def test_a_failure_while_a_sample_is_taken_silences_nobody(receiving, sender):
    taken = Taken()

    def take(received):
        if not failed:
            failed.append(received.node)
            raise OSError("the collector is away")
        taken(received)

    failed = []
    receiver, _ = receiving(take=take)
    node = sender(receiver)
    node.send(recorded.RUST)
    node.send(recorded.RUST)
    wait_until(lambda: taken.samples, "the second sample")
    assert failed == ["dahu-17"]
    assert receiver.refused == {"127.0.0.1": 1}


def test_what_colmet_sends_becomes_curves_and_a_file_of_the_job(receiving, sender, tmp_path):
    """The whole way: a node's messages, the collector's log, a curve while the job runs, HDF5 at its end."""
    collector = Collector(tmp_path / "samples")
    collector.start()
    collector.begin_energy({}, now=1_700_000_000.0)
    times = iter(range(1_700_000_000, 1_700_001_000, 5))
    done = threading.Event()

    def take(received):
        sample = received.sample
        data = encode_sample(sample.at, sample.node, sample.jobs)
        collector.take(received.node, data, sample.on_node, at=received.at)
        if collector.counts["rows"] >= 2 * LEAST_SAMPLES:
            done.set()

    receiver, _ = receiving(take=take, clock=lambda: float(next(times)))
    node = sender(receiver)
    for number in range(LEAST_SAMPLES):
        at = (1_700_000_000 + 5 * number).to_bytes(8, "little")
        cpu = (number * 10_000_000_000).to_bytes(8, "little")
        task = recorded.TASKSTATS[:518] + at + recorded.TASKSTATS[526:582] + cpu + recorded.TASKSTATS[590:]
        rapl = recorded.RAPL[:518] + at + recorded.RAPL[526:]
        node.send(task + rapl)
    assert done.wait(20)
    [curve] = read_job(collector.places, 4071, SeriesRange(["cpu_seconds_total"])).series
    assert (curve.node, curve.kind, curve.unit) == ("dahu-17", "rate", "seconds/s")
    assert {round(mean, 6) for _, _, mean, _ in curve.points} == {2.0}
    bookings = collector.energy.hand_over()
    assert sum(booking.meter for booking in bookings.values()) == 1500 * (LEAST_SAMPLES - 1)  # package and dram, mJ
    for _ in range(2):
        collector.archive_ended(lambda jobs: {job: ArchivedJob(job, owner="ada") for job in jobs})
    with h5py.File(collector.places.archived(4071)) as file:
        assert file["job_4071/cpu"]["cpu_seconds_total"][-1] == 10 * (LEAST_SAMPLES - 1)
        assert "colmet_nvcsw_total" in file["job_4071/other"].dtype.names
    collector.close()


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("senders = 1", 0o600, "it has other tables"),
        ("[other]", 0o600, "it has other tables"),
        ('[senders]\n"../n" = "10.0.0.1"', 0o600, "is not the name of a host"),
        ("[senders]\nn1 = 7", 0o600, "neither a text nor a list"),
        ('[senders]\nn1 = "ten"', 0o600, "`ten` is neither an address nor a network"),
        ('secret = "short"', 0o600, "a key has 40 characters"),
        (f'secret = "{"a" * 40}"\n[senders]\nn1 = "10.0.0.1"', 0o600, "a key has 40 characters"),
        (f'secret = "{"a" * 40}"', 0o640, "others may read it"),
        ("[[[", 0o600, "are not TOML"),
    ],
)
def test_a_file_of_senders_that_cannot_be_used_is_refused(tmp_path, content, mode, why):
    file = tmp_path / "senders.toml"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ConfigRefused, match=why):
        read_senders(file=file)


def test_addresses_beside_keys_and_a_file_that_is_not_there_are_refused(tmp_path):
    file = tmp_path / "senders.toml"
    file.write_text(f'secret = "{"a" * 40}"')
    file.chmod(0o600)
    with pytest.raises(ConfigRefused, match="addresses were given as well"):
        read_senders(["10.0.0.1"], file)
    with pytest.raises(ConfigRefused, match="cannot be read: No such file"):
        read_senders(file=tmp_path / "none")


@pytest.mark.parametrize("address", ["", "5556", "tcp://host", "ipc:///tmp/x:1", "tcp://0.0.0.0:99999", ":5556"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ConfigRefused, match="is not an address for ZeroMQ"):
        ColmetReceiver(address, Senders(), Taken())


def test_an_address_that_is_taken_and_a_key_that_is_none_are_told(receiving):
    receiver, _ = receiving()
    with pytest.raises(ConfigRefused, match=r"Nothing can be received at .*in use"):
        ColmetReceiver(receiver.address, Senders(), Taken())
    with pytest.raises(ConfigRefused, match="not a CURVE key"):
        ColmetReceiver("127.0.0.1:0", Senders(curve=CurveKeys(" " * 40, {})), Taken())
