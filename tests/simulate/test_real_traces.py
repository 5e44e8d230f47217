"""Real traces, replayed by the reference simulator's rules: job by job what it did."""

import gzip
from pathlib import Path

import pytest

from oarlock.simulate.platform import uniform
from oarlock.simulate.replay import EventOrder, Replay
from oarlock.simulate.trace import Trace, read_trace

TRACES = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
FEW = 2500

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not beside the project")


def waits(name: str) -> dict[int, int]:
    lines = gzip.decompress((TRACES / "starts" / name).read_bytes()).decode().splitlines()
    return {int(job): int(float(wait)) for job, _, wait, *_ in map(str.split, lines) if job.isdigit()}


@pytest.mark.parametrize(
    ("trace", "processors", "policy", "starts"),
    [
        ("HPC2N-2002-2.first3k.swf.gz", 240, "easy", "hpc2n_easy_backfill.txt.gz"),
        ("HPC2N-2002-2.first3k.swf.gz", 240, "conservative", "hpc2n_conservative.txt.gz"),
        ("KTH-SP2-1996-2.filtered.swf.gz", 100, "easy", "kth_easy_backfill.txt.gz"),
        ("KTH-SP2-1996-2.filtered.swf.gz", 100, "fcfs", "kth_fcfs.txt.gz"),
    ],
)
def test_every_job_waits_as_long_as_in_the_reference(trace, processors, policy, starts):
    whole = read_trace(str(TRACES / trace))
    first = Trace(whole.name, whole.jobs[:FEW])
    ran = Replay(first, uniform(processors), policy, ties=EventOrder.REFERENCE).run()
    expected = waits(starts)
    # Who comes after the cut could have passed those who still waited then: only those before are sure.
    cut = whole.jobs[FEW].submitted if len(whole.jobs) > FEW else 1 << 60
    sure = [one for one in ran if one.start < cut]
    assert len(sure) > len(ran) * 0.9
    assert {one.job.number: one.wait for one in sure} == {one.job.number: expected[one.job.number] for one in sure}


def test_all_forms_of_real_traces_are_read():
    found = {path.name: read_trace(str(path)) for path in TRACES.glob("*.gz") if "realschedule" not in path.name}
    assert {name.split("-")[0]: len(trace.jobs) for name, trace in found.items()} == {
        "CEA": 29_998,
        "HPC2N": 3145,
        "KTH": 28_481,
        "LLNL": len(found["LLNL-Atlas-2006-2.1-cln.swf.gz"].jobs),
        "MetaCentrum": 17_898,
        "batsim": 800,
    }
