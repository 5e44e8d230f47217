"""`oarlock shadow`: recorded looks at a cluster, played back without waiting, and what our planner makes of them."""

import json

import pytest

from oarlock.cli.oarlock import main
from oarlock.model.job import JobState
from oarlock.model.source import (
    EndedJobs,
    SourceAway,
    SourceChoice,
    SourceGroup,
    SourceJob,
    SourceLevel,
    SourceNodes,
    SourceQueue,
    SourceResource,
)
from oarlock.server.sources import shadow

BEGIN = 1_790_000_000
KINDS = {"type": str, "network_address": str, "state": str, "cpuset": str, "core": int}
CORES = [
    SourceResource(n, {"type": "default", "network_address": f"n{(n + 1) // 2}", "state": "Alive",
                       "cpuset": str(n % 2), "core": n})
    for n in range(1, 5)
]  # fmt: skip
NODES = SourceNodes(CORES, KINDS, queues=[SourceQueue("default", 1, active=True)])


def job(number, state, *, submitted, start=0, stop=0, cores=2, walltime=1000, on=()):
    choice = SourceChoice(number, walltime, (SourceGroup("", (SourceLevel("core", cores),)),))
    return SourceJob(
        id=number, state=state, user="ann", queue="default", submitted=BEGIN + submitted, start=start and BEGIN + start,
        stop=stop and BEGIN + stop, array_id=number, choices=(choice,),
        assigned=number if on else 0, resources=tuple(on), exit_code=0 if stop else None,
    )  # fmt: skip


R, W, T = JobState.RUNNING, JobState.WAITING, JobState.TERMINATED
LOOKS = [
    # Job 1 has two of four cores; job 2 wants four and waits; job 3 could run beside 1, and was left waiting.
    (0, [job(1, R, submitted=0, start=1, on=(1, 2)), job(2, W, submitted=10, cores=4),
         job(3, W, submitted=20, walltime=500)], []),
    (1001, [job(2, R, submitted=10, start=1000, cores=4, on=(1, 2, 3, 4)), job(3, W, submitted=20, walltime=500)],
     [job(1, T, submitted=0, start=1, stop=1000, on=(1, 2))]),
    (1500, [job(3, R, submitted=20, start=1400, walltime=500, on=(1, 2))],
     [job(2, T, submitted=10, start=1000, stop=1400, cores=4, on=(1, 2, 3, 4))]),
    (1700, [], [job(3, T, submitted=20, start=1400, stop=1700, walltime=500, on=(1, 2))]),
]  # fmt: skip


class Played:
    """A source that shows one look after the other, and is away once."""

    name = "OAR's database"

    def __init__(self, away=()):
        self.looks, self.away, self.asked = iter(LOOKS), set(away), 0

    def nodes(self, *, since):
        self.asked += 1
        if self.asked in self.away:
            raise SourceAway(self.name, "test")
        self.look = next(self.looks)
        return NODES

    def live(self):
        return self.look[1]

    def ended(self, cursor, most):
        return EndedJobs(self.look[2], (BEGIN + self.look[0], 0), True)


@pytest.fixture
def recording(tmp_path):
    file = tmp_path / "recorded.jsonl"
    source, cursor = Played(), (BEGIN, 0)
    with file.open("wb") as lines:
        for at, _, _ in LOOKS:
            seen = shadow.take_snapshot(source, cursor, at=BEGIN + at, since=BEGIN)
            lines.write(shadow.written(seen))
            cursor = seen.cursor
    return file


def test_a_recording_is_played_and_replayed(recording, capsys, tmp_path):
    page = tmp_path / "page.html"
    assert (
        main(["shadow", "--recorded", str(recording), "--policy", "fcfs,conservative", "--json", "--html", str(page)])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    waits = {policy: told[policy]["mean_wait"] for policy in told}
    # Really 1, 990 and 1380; in order 0, 990 and 1380 at best; with backfilling job 3 runs beside job 1 at once.
    assert waits == {"as it was": pytest.approx((1 + 990 + 1380) / 3), "fcfs": pytest.approx((0 + 989 + 1379) / 3),
                     "conservative": pytest.approx((0 + 989 + 0) / 3)}  # fmt: skip
    assert told["conservative"]["utilisation"] > told["as it was"]["utilisation"]
    assert "as it was" in page.read_text()


def test_a_job_that_still_runs_counts_until_the_last_look(recording, capsys):
    whole = recording.read_bytes().splitlines(keepends=True)
    recording.write_bytes(b"".join(whole[:-1]) + whole[-1][:30])  # the last look was being written
    assert main(["shadow", "--recorded", str(recording), "--policy", "fcfs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as it was"]["jobs"] == 3


def test_bad_recordings_are_refused(recording, capsys, tmp_path):
    recording.write_bytes(b"{}\n" + recording.read_bytes())
    for words, sentence in (
        (["--recorded", str(recording)], "is no snapshot"),
        (["--recorded", str(tmp_path / "none")], "There is no file"),
        ([], "Which cluster?"),
    ):
        assert main(["shadow", *words]) == 2
        assert sentence in capsys.readouterr().err


def test_a_live_source_is_watched_recorded_and_may_be_away(tmp_path):
    said, file = [], tmp_path / "recorded"
    now, slept = [BEGIN], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += int(seconds)

    seen = list(
        shadow.watch(
            Played(away={3}), period=500, until=BEGIN + 2000, record=file, say=said.append,
            clock=lambda: now[0], sleep=sleep,
        )
    )  # fmt: skip
    assert said == ["OAR's database does not answer: test."]
    assert [look.at - BEGIN for look in seen] == [0, 500, 1500, 2000]
    assert slept == [500] * 4
    assert [(look.at, look.live, look.ended) for look in shadow.play(file)] == [
        (look.at, look.live, look.ended) for look in seen
    ]
