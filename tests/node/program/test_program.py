"""The node program in a child of the test, on two pipes."""

import json
import os
import traceback

import pytest

from oarlock.node.attempt import spool
from oarlock.node.cgroup import processes
from oarlock.node.measure.stream import SamplingThread, make_node_sampler
from oarlock.node.measure.wire import SampleDecoder
from oarlock.node.program import supervisor_pool
from oarlock.node.program.program import NodeProgram
from oarlock.node.wire.channel import ANSWER, EVENT, RAW, REQUEST, SAMPLES, Endpoint, Frame, FrameReader, encode_frame
from oarlock.node.wire.messages import NodeSettings


class Talk:
    """The server's end of the pipes."""

    def __init__(self, write_fd, read_fd):
        self.write_fd, self.read_fd, self.reader, self.frames = write_fd, read_fd, FrameReader(), []

    def say(self, number, body):
        os.write(self.write_fd, encode_frame(REQUEST, number, body))

    def hear(self) -> Frame:
        while not self.frames:
            data = os.read(self.read_fd, 1 << 16)
            assert data, "the program ended"
            self.frames = self.reader.feed(data)
        return self.frames.pop(0)


@pytest.fixture
def talk(request, tmp_path):
    """A program without samples, or with one each so many seconds as the test asks for."""
    period = getattr(request, "param", 0)
    to_program, from_server = os.pipe()
    from_program, to_server = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        os.close(from_server)
        settings = NodeSettings("n1", str(tmp_path / "spool"), str(tmp_path / "run"))
        spool.prepare(settings.spool)
        driver = processes.ProcessTreeDriver("n1")
        program = NodeProgram(
            settings, driver, "boot", supervisor_pool.start_launcher(settings, lambda: driver, "boot")
        )
        program.sampling = SamplingThread(period, lambda: make_node_sampler("n1"), idle_period=period)
        try:
            program.serve(Endpoint(to_program, to_server))
        except SystemExit as left:
            status = left.code
        except BaseException:  # noqa: BLE001
            traceback.print_exc()  # the child ends without a word otherwise
        finally:
            os._exit(status)
    os.close(to_program)
    os.close(to_server)
    talk = Talk(from_server, from_program)
    hello = talk.hear().body()
    assert (hello["event"], hello["boot"], hello["cgroups"]) == ("hello", "boot", "processes")
    yield talk
    os.close(from_server)
    os.close(from_program)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("talk", [0.05], indirect=True)
def test_samples_travel_as_raw_frames(talk):
    frames = [talk.hear() for _ in range(3)]
    assert {(frame.kind, frame.number) for frame in frames} == {(RAW, SAMPLES)}
    decoder = SampleDecoder()
    instants = [decoder.decode(frame.data).at for frame in frames]
    assert instants == sorted(set(instants))


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"verb": "launch"}, "bad"),
        ({"verb": "launch", "job": 1, "attempt": 1, "boot": "other"}, "rebooted"),
        ({"verb": "launch", "job": 1, "attempt": 1, "boot": "boot"}, "bad"),
        ({"verb": "forget"}, "bad"),
        ({"verb": "forget", "attempts": [[1]]}, "bad"),
        ({"verb": "forget", "attempts": [["1", 1]]}, "bad"),
        ({"verb": "kill", "job": 3, "attempt": 1}, "unknown"),
        ({"verb": "dance", "job": 3, "attempt": 1}, "unknown"),
        ({}, "bad"),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_and_the_program_goes_on(talk, asked, word):
    talk.say(7, asked)
    answer = talk.hear()
    assert (answer.kind, answer.number, answer.body()["refused"]) == (ANSWER, 7, word)
    talk.say(8, {"verb": "status"})
    assert talk.hear() == Frame(ANSWER, 8, b'{"attempts":[]}')


def test_a_body_that_is_not_json_is_answered(talk):
    os.write(talk.write_fd, encode_frame(REQUEST, 5, b"{"))
    assert talk.hear().body()["refused"] == "bad"


def test_frames_of_other_kinds_are_not_requests(talk):
    os.write(talk.write_fd, encode_frame(EVENT, 0, {"verb": "status"}))
    talk.say(9, {"verb": "ping"})
    assert (json.loads(talk.hear().data)["boot"]) == "boot"


def held(number, job):
    """Ask for a place that stays until it is given back; no command runs in it."""
    body = {"verb": "launch", "job": job, "attempt": 1, "secret": "00", "boot": "boot", "user": "nobody"}
    return encode_frame(REQUEST, number, {**body, "command": "", "role": "other"})


def test_more_attempts_than_processors_begin_one_after_the_other(talk):
    most = max(2, len(os.sched_getaffinity(0)))
    jobs = range(1, most + 2)
    os.write(talk.write_fd, b"".join(held(job, job) for job in jobs))
    heard = [talk.hear() for _ in range(2 * len(jobs))]
    answers = [frame.number for frame in heard if frame.kind == ANSWER]
    assert (sorted(answers[:most]), answers[most:]) == ([*jobs[:most]], [most + 1])
    assert [frame.kind for frame in heard].index(EVENT) < [frame.number for frame in heard].index(most + 1)
    for job in jobs:
        talk.say(100 + job, {"verb": "end", "job": job, "attempt": 1})
    ended = set()
    while len(ended) < len(jobs):
        heard = talk.hear()
        if heard.kind == EVENT and heard.body()["event"] == "exited":
            ended.add(heard.body()["job"])


@pytest.mark.manual(130)
def test_an_attempt_that_is_to_end_before_it_began_was_never_here(talk):
    end = encode_frame(REQUEST, 2, {"verb": "end", "job": 7, "attempt": 1})
    os.write(talk.write_fd, held(1, 7) + end)
    heard = [talk.hear(), talk.hear()]
    assert {frame.number: frame.body()["refused"] for frame in heard} == {1: "not-now", 2: "unknown"}
    talk.say(3, {"verb": "status"})
    assert talk.hear().body() == {"attempts": []}
