import os
import pwd

from oarlock.measure.batch import PATIENCE_SECONDS, BatchAssembler, JobFacts, JobOwner, JobOwners
from oarlock.node.measure.layout import CgroupIdentity
from oarlock.node.measure.sampler import Reading, Sample

ME = pwd.getpwuid(os.getuid())
PLACE = CgroupIdentity("slurm", "7", uid=ME.pw_uid)


class Known:
    """A look-up whose answers a test decides."""

    def __init__(self, **facts):
        self.known = facts

    def facts(self, job):
        return self.known.get(f"job{job}")

    def keep(self, jobs):
        kept = {f"job{job}" for job in jobs}
        self.known = {job: facts for job, facts in self.known.items() if job in kept}


def test_the_path_says_the_user_and_the_system_his_name():
    assert JobOwners().owner(PLACE.key, PLACE) == JobOwner("7", user=ME.pw_name, uid=str(ME.pw_uid), manager="slurm")
    place = CgroupIdentity("oar2", "7", user=ME.pw_name)
    assert JobOwners().owner(place.key, place).uid == str(ME.pw_uid)


def test_an_unknown_uid_stands_for_the_user():
    owners = JobOwners()
    assert owners.owner(("slurm", "", "1"), CgroupIdentity("slurm", "1", uid=4_000_000)).user == "4000000"
    unknown = owners.owner(("oar2", "", "1"), CgroupIdentity("oar2", "1", user="no-such-user"))
    assert (unknown.user, unknown.uid) == ("no-such-user", "")


def test_a_look_up_adds_account_and_name():
    owners = JobOwners(Known(job7=JobFacts("ada", "physics", "wave")))
    assert owners.owner(PLACE.key, PLACE)[:2] == ("7", "ada")
    assert owners.owner(PLACE.key, PLACE)[3:6] == ("physics", "", "wave")
    assert owners.owner(PLACE.key, PLACE) is owners.owner(PLACE.key, PLACE)


def test_a_new_job_waits_for_the_look_up_but_not_for_ever():
    now, site = [0.0], Known()
    owners = JobOwners(site, clock=lambda: now[0])
    assert owners.owner(PLACE.key, PLACE) is None
    now[0] = PATIENCE_SECONDS
    assert owners.owner(PLACE.key, PLACE).account == ""
    site.known["job7"] = JobFacts("ada", "physics", "wave")
    assert owners.owner(PLACE.key, PLACE).account == "physics", "better late than never"


def sample(*places):
    return Sample(100.0, {place.key: Reading(place, {"cpus": 1}) for place in places}, {"jobs": len(places)})


def test_cgroups_that_are_no_jobs_are_told_apart_and_not_counted():
    batch = BatchAssembler(JobOwners(), {"slurm"}, "node7").batch(
        sample(PLACE, CgroupIdentity("cgroup", "system.slice")), {}
    )
    assert [(subject.scope, subject.owner.job) for subject in batch.subjects] == [
        ("job", "7"),
        ("cgroup", "system.slice"),
    ]
    assert batch.node == {"jobs": 1}
    assert batch.involved_jobs == [7]


def test_two_managers_that_number_alike_are_told_once_and_never_mixed(caplog):
    assembler = BatchAssembler(JobOwners(), {"slurm", "oar2"}, "node7")
    for _ in range(2):
        batch = assembler.batch(sample(PLACE, CgroupIdentity("oar2", "7", user="ada")), {})
    assert [subject.owner.manager for subject in batch.subjects] == ["slurm"]
    assert len(caplog.records) == 1


def test_what_is_over_is_forgotten():
    site = Known(job7=JobFacts("ada"), job8=JobFacts("bob"))
    owners = JobOwners(site)
    other = CgroupIdentity("slurm", "8", uid=1)
    for place in (PLACE, other):
        owners.owner(place.key, place)
    owners.keep([other.key])
    assert list(site.known) == ["job8"]


def test_the_resource_managers_word_on_the_account_wins():
    owners = JobOwners(Known(job7=JobFacts("ada", "physics")))
    assert owners.owner(PLACE.key, PLACE._replace(account="what the user wrote")).account == "physics"
