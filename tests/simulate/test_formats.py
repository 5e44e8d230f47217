"""Traces of every form become the same jobs."""

import gzip
import json
import sqlite3

import pytest

from oarlock.model.errors import DatabaseRefused
from oarlock.simulate.trace import TraceJob, TraceRefused, flat, parts, read_batsim, read_swf, read_trace

SWF = """\
; Computer: a small one
; MaxNodes: 4
; MaxProcs: 8
;
  2  30   5  100  4 -1 -1  4  200 -1 1 7 3 -1 -1 1 -1 -1
  1   0   0   50  2 -1 -1 -1  -1 -1 1 7 3 -1 -1 1 -1 -1
  3  40  -1   -1  2 -1 -1  2  60 -1 0 8 3 -1 -1 1 -1 -1
  4  50   0  500  2 -1 -1  2  60 -1 1 8 3 -1 -1 1 -1 -1
  5  60   0
  6  60   0   10  0 -1 -1  0  60 -1 1 8 3 -1 -1 1 -1 -1
  7  60   0  ten  1 -1 -1  1  60 -1 1 8 3 -1 -1 1 -1 -1
"""


def test_a_line_is_a_job_in_the_order_of_submission():
    trace = read_swf(SWF.splitlines(), "small")
    assert trace.jobs == (
        TraceJob(1, 0, 50, 50, flat(2), 2, "7", "3", waited=0),  # asked for nothing: what it used
        TraceJob(2, 30, 100, 200, flat(4), 4, "7", "3", waited=5),
        TraceJob(4, 50, 60, 60, flat(2), 2, "8", "3", waited=0),  # ran over what it asked for
    )
    assert trace.processors == 8


def test_what_is_no_job_is_counted_with_the_reason():
    assert read_swf(SWF.splitlines(), "small").skipped == {
        "never ran": 1,
        "short line": 1,
        "no processors": 1,
        "not a number": 1,
    }


def test_aleas_form_asks_for_processors_on_nodes():
    line = "0 100 0 50 24 1 1024 24 600 68719 1 62 1 1 -1 1 1 1 {7,7,7} q_1d 2:ppn=12:x86_64:cl_x#excl"
    [job] = read_swf([line], "alea").jobs
    assert (job.shape, job.processors, job.user) == (parts(2, 12), 24, "62")


def test_batsims_profiles_say_how_long():
    workload = {
        "nb_res": 4,
        "jobs": [
            {"id": "w0!3", "subtime": 2.4, "walltime": 100, "res": 2, "profile": "short"},
            {"id": 4, "subtime": 0, "walltime": 10, "res": 1, "profile": "long"},
            {"id": 5, "subtime": 0, "walltime": 10, "res": 1, "profile": "computes"},
        ],
        "profiles": {
            "short": {"type": "delay", "delay": 7.2},
            "long": {"type": "delay", "delay": 99},
            "computes": {"type": "msg_par", "cpu": [1]},
        },
    }
    trace = read_batsim(json.dumps(workload), "w")
    assert trace.jobs == (TraceJob(4, 0, 10, 10, flat(1), 1), TraceJob(3, 2, 8, 100, flat(2), 2))
    assert (trace.processors, trace.skipped) == (4, {"profile without a length": 1})


def test_the_form_is_seen_from_the_file_packed_or_not(tmp_path):
    plain, packed = tmp_path / "a.txt", tmp_path / "b.gz"
    plain.write_text(SWF)
    packed.write_bytes(gzip.compress(SWF.encode()))
    assert read_trace(str(plain)).jobs == read_trace(str(packed)).jobs
    workload = tmp_path / "c"
    workload.write_text(
        '{"jobs": [{"id": 1, "subtime": 0, "res": 1, "profile": "p"}], "profiles": {"p": {"delay": 1}}}'
    )
    assert read_trace(str(workload)).jobs == (TraceJob(1, 0, 1, 1, flat(1), 1),)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no job that ran"),
        ("1 2 3\n", "has no job that ran; 1 skipped: short line"),
        ('{"jobs": []}', "is no workload of Batsim: 'profiles'"),
        (b"\x1f\x8bnot packed at all", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, content, says):
    file = tmp_path / "odd"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TraceRefused, match=says):
        read_trace(str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TraceRefused, match="No such file"):
        read_trace(str(tmp_path / "none.swf"))


def test_a_database_of_something_else_is_refused(tmp_path):
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER)")
    connection.close()
    with pytest.raises(DatabaseRefused, match="has no table `assigned_resources`"):
        read_trace(str(file))
