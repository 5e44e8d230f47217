"""A plan that is kept between passes is the plan that the snapshot alone would give."""

from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import structs

from oarlock.model.job import FINAL, HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.plan import Plan
from oarlock.model.snapshot import Dependency, PlacedJob, Queue, Snapshot, Usage, WaitingJob
from oarlock.plan.incremental.plan_cache import PlanCache, is_cacheable
from oarlock.plan.planner import make_plan
from oarlock.plan.settings import PlanSettings
from tests.plan.drawing import FAIR, NOW, asks, cluster, places, reserves, runs, snapshot
from tests.plan.random_snapshots import MEDIUM, medium, small

QUIET = PlanSettings(security_time=0)


class Site:
    """A database of jobs to which anything may happen between two passes."""

    def __init__(self, drawn: Snapshot, how: PlanSettings, r: Random) -> None:
        queues = [structs.replace(one, policy=self._policy(one)) for one in drawn.queues]
        waiting = [structs.replace(job, deadline=None, not_before=0) for job in drawn.waiting]
        self.seen = structs.replace(
            drawn, queues=tuple(queues), quotas=(), quota_spans=(), windows=(),
            waiting=tuple(job for job in waiting if not _is_bound(job)),
            placed=tuple(job for job in drawn.placed if not _is_bound(job)),
        )  # fmt: skip
        self.how, self.r, self.now = structs.replace(how, pack=False), r, NOW
        self.away: list[WaitingJob] = []
        self.kept = PlanCache(self.how)
        assert is_cacheable(self.seen, self.how)

    @staticmethod
    def _policy(queue: Queue) -> str:
        return "depth-2" if queue.keeps_dates else queue.policy.split("+")[0].replace("multifactor", "easy")

    def agree(self) -> Plan:
        """Plan twice: with what is kept, and from scratch."""
        whole = make_plan(self.seen, now=self.now, settings=self.how)
        if self.r.random() < 0.5:
            plan = self.kept.whole(self.seen, now=self.now)
            assert plan.placements == whole.placements
        else:
            plan = self.kept.starts(self.seen, now=self.now)
            assert all(place == whole.placements[number] for number, place in plan.placements.items())
        told = [(one.accept, one.refuse, sorted(one.start), sorted(one.kill), one.wake) for one in (plan, whole)]
        assert told[0] == told[1]
        assert not plan.unfinished
        return whole

    def happen(self) -> None:
        plan, r = self.agree(), self.r
        self.now += r.choice([0, 0, 1, 5, 30, 100])
        for number in (*plan.start, *plan.accept):
            if r.random() < 0.8:  # others are refused when they are checked again
                self._place(plan, number)
        for number in plan.refuse:
            self._end(number)
        changes = [self._end_one, self._hold_one, self._come_back, self._alter, self._alter_dependency,
                   self._stop_queue, self._use, self._lose_node, self._delay, self._switch_besteffort]  # fmt: skip
        for change in r.sample(changes, r.randint(0, 4)):
            change()

    def _place(self, plan: Plan, number: int) -> None:
        job = next((one for one in self.seen.waiting if one.job_id == number), None)
        place = plan.placements[number]
        start = place.start if number in plan.accept else self.now
        accepted = number in plan.accept
        if job is not None:
            has = PlacedJob(job_id=number, moldable_id=place.moldable_id, user=job.user, queue=job.queue,
                         state=JobState.WAITING if accepted else JobState.LAUNCHING, start=start,
                         stop=start + place.stop - place.start, resources=plan.resources(number), project=job.project,
                         name=job.name, types=job.types,
                         reservation=Reservation.SCHEDULED if accepted else Reservation.NONE)  # fmt: skip
            self._set(waiting=self._but(self.seen.waiting, number), placed=(*self.seen.placed, has))
        else:
            has = next(one for one in self.seen.placed if one.job_id == number)
            has = structs.replace(has, state=JobState.RUNNING, start=self.now, resources=plan.resources(number))
            self._set(placed=(*self._but(self.seen.placed, number), has))

    def _end_one(self) -> None:
        everybody = [job.job_id for job in (*self.seen.placed, *self.seen.waiting)]
        if everybody:
            self._end(self.r.choice(everybody))

    def _end(self, number: int) -> None:
        over = Dependency(number, self.r.choice(sorted(FINAL)), self.r.choice([0, 0, 1]))
        self._set(waiting=self._but(self.seen.waiting, number), placed=self._but(self.seen.placed, number))
        self._depend(over)

    def _depend(self, over: Dependency) -> None:
        self._set(
            waiting=tuple(
                structs.replace(job, after=tuple(over if one.job_id == over.job_id else one for one in job.after))
                for job in self.seen.waiting
            )
        )

    def _alter_dependency(self) -> None:
        needed = [one for job in self.seen.waiting for one in job.after]
        if needed:
            one = self.r.choice(needed)
            self._depend(structs.replace(one, state=self.r.choice([JobState.HOLD, JobState.RUNNING, JobState.ERROR])))

    def _hold_one(self) -> None:
        if self.seen.waiting:
            job = self.r.choice(self.seen.waiting)
            self.away.append(job)
            self._set(waiting=self._but(self.seen.waiting, job.job_id))

    def _come_back(self) -> None:
        """Let a held job come back, or one whose launch failed."""
        if self.away:
            self._set(waiting=(*self.seen.waiting, self.away.pop()))

    def _alter(self) -> None:
        """Let a job that has its place be in another state, or take longer; let one that waits ask for less time."""
        if self.seen.placed and self.r.random() < 0.6:
            job = self.r.choice(self.seen.placed)
            if job.state in HOLDS_RESOURCES:
                states = [JobState.RUNNING, JobState.SUSPENDED, JobState.FINISHING]
                job = structs.replace(job, state=self.r.choice(states), stop=job.stop + self.r.choice([0, 7]))
                self._set(placed=(*self._but(self.seen.placed, job.job_id), job))
        elif self.seen.waiting:
            job = self.r.choice(self.seen.waiting)
            choices = tuple(structs.replace(one, walltime=max(1, one.walltime - 3)) for one in job.choices)
            self._set(waiting=(*self._but(self.seen.waiting, job.job_id), structs.replace(job, choices=choices)))

    def _switch_besteffort(self) -> None:
        """Let an administrator make a running job a best-effort one, or an ordinary one again."""
        running = [job for job in self.seen.placed if job.state == JobState.RUNNING]
        if running:
            job = self.r.choice(running)
            types = tuple(word for word in job.types if word != "besteffort")
            types = types if types != job.types else (*types, "besteffort")
            self._set(placed=(*self._but(self.seen.placed, job.job_id), structs.replace(job, types=types)))

    def _stop_queue(self) -> None:
        queues = list(self.seen.queues)
        at = self.r.randrange(len(queues))
        queues[at] = structs.replace(queues[at], active=not queues[at].active)
        self._set(queues=tuple(queues))

    def _use(self) -> None:
        users = {job.user: self.r.randint(0, 1000) for job in self.seen.waiting}
        used = Usage(used=sum(users.values()) or 1, used_by_user=users)
        self._set(usage={queue.name: used for queue in self.seen.queues})

    def _lose_node(self) -> None:
        states = list(self.seen.resources.columns["state"])
        if states and self.r.random() < 0.3:
            states[self.r.randrange(len(states))] = self.r.choice(["Alive", "Suspected"])
            columns = {**self.seen.resources.columns, "state": tuple(states)}
            self._set(resources=structs.replace(self.seen.resources, columns=columns))

    def _delay(self) -> None:
        self.now += 1

    def _set(self, **changes: object) -> None:
        self.seen = structs.replace(self.seen, **changes)
        in_order = tuple(sorted(self.seen.waiting, key=lambda job: job.job_id))
        self.seen = structs.replace(
            self.seen, waiting=in_order, placed=tuple(sorted(self.seen.placed, key=lambda job: job.job_id))
        )

    @staticmethod
    def _but(jobs: tuple, number: int) -> tuple:
        return tuple(job for job in jobs if job.job_id != number)


def _is_bound(job: WaitingJob | PlacedJob) -> bool:
    return any(one.startswith(("container", "inner")) for one in job.types)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_the_kept_plan_of_a_small_cluster_is_the_snapshots(r: Random):
    site = Site(*small(r), r)
    for _ in range(8):
        site.happen()
    site.agree()
    event(f"{len(site.seen.placed)} placed")


@pytest.mark.parametrize("policy", ["easy", "fcfs", "depth-4-sjbf", FAIR])
@pytest.mark.parametrize("build", list(MEDIUM)[::2])
def test_the_kept_plan_of_a_larger_cluster_is_the_snapshots(build, policy):
    r = Random(11)
    drawn, how = medium(r, build)
    site = Site(structs.replace(drawn, queues=(structs.replace(drawn.queues[0], policy=policy),)), how, r)
    for _ in range(12):
        site.happen()
    site.agree()


def test_a_pass_that_ran_out_of_time_goes_on_at_the_next_one():
    jobs = [runs(1, [1], NOW + 100), *(asks(number, "nodes=1", walltime=10) for number in (2, 3, 4))]
    looks = iter([False, False, True])
    kept = PlanCache(QUIET)
    seen = snapshot(cluster(1, 1), *jobs)
    first = kept.whole(seen, now=NOW, out_of_time=lambda: next(looks))
    assert (first.unfinished, sorted(first.placements)) == (True, [2, 3])
    second = kept.whole(seen, now=NOW)
    assert (second.unfinished, places(second)) == (False, places(make_plan(seen, now=NOW, settings=QUIET)))


@pytest.mark.parametrize("job", [asks(2, "nodes=1", deadline=NOW + 50), asks(2, "nodes=1", types=("container",))])
def test_what_a_look_at_free_resources_does_not_tell_is_not_kept(job):
    assert not is_cacheable(snapshot(cluster(1, 1), job), QUIET)
    assert not is_cacheable(snapshot(cluster(1, 1), queues=(Queue("default", 1, "conservative"),)), QUIET)
    assert is_cacheable(snapshot(cluster(1, 1), asks(1, "nodes=1")), QUIET)


def test_who_used_more_meanwhile_comes_later():
    jobs = [runs(1, [1], NOW + 100), asks(2, "nodes=1", user="ada"), asks(3, "nodes=1", user="bob")]
    seen = snapshot(cluster(1, 1), *jobs, queues=(Queue("default", 1, FAIR),))
    kept = PlanCache(QUIET)
    assert places(kept.whole(seen, now=NOW))[2][0] == 100
    used = structs.replace(seen, usage={"default": Usage(used=10, used_by_user={"ada": 10})})
    assert places(kept.whole(used, now=NOW))[3][0] == 100


def test_a_reservation_whose_answer_was_not_written_down_is_answered_anew():
    kept = PlanCache(QUIET)
    seen = snapshot(cluster(1, 1), reserves(1, "nodes=1", NOW + 30, walltime=10))
    assert (kept.starts(seen, now=NOW).accept, kept.whole(seen, now=NOW + 35).placements[1].start) == ((1,), NOW + 35)
    late = kept.whole(seen, now=NOW + 40)
    assert (late.accept, late.refuse, late.placements) == ((), (1,), {})


def test_what_was_forgotten_is_planned_from_scratch():
    jobs = [runs(1, [1], NOW + 100), asks(2, "nodes=1", walltime=10)]
    kept = PlanCache(QUIET)
    assert kept.empty
    assert places(kept.whole(snapshot(cluster(1, 1), *jobs), now=NOW)) == {2: (100, (1,))}
    assert not kept.empty
    kept.forget()
    assert kept.empty
    assert places(kept.whole(snapshot(cluster(1, 1), *jobs[1:]), now=NOW)) == {2: (0, (1,))}
