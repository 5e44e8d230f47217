"""Small traces for tests of replays, a line a job."""

from oarlock.simulate.trace import Trace, TraceJob, by_submission, flat


def trace(*jobs: tuple[int, int, int, int]) -> Trace:
    """Make a trace of (submitted, processors, run, walltime); jobs are numbered from 1 on."""
    made = [
        TraceJob(number, submitted, run, walltime, flat(processors), processors, user="ab"[number % 2])
        for number, (submitted, processors, run, walltime) in enumerate(jobs, 1)
    ]
    return Trace("drawn", by_submission(made))
