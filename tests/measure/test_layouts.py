from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.measure.options import all_layouts, select_layouts
from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.layout import CgroupIdentity, match
from tests.monitoring import cases

KNOWN = all_layouts()
DETAILS = {"session": "session", "pod_uid": "pod"}


def told(place, expected):
    """Say what a place says, in the words of a recorded case."""
    if place is None:
        return {"rm": None}
    number = place.job if isinstance(expected.get("job_id"), str) else int(place.job) if place.job.isdigit() else None
    everything = {
        "rm": place.layout, "job_id": number, "user": place.user, "user_id": place.uid, "level": place.level,
        "step": place.step, "task": place.task, "virtual_host": place.host,
        **{word: dict(place.details).get(field) for word, field in DETAILS.items()},
    }  # fmt: skip
    return {word: everything[word] for word in expected}


@pytest.mark.parametrize("case", cases("cgroup_path"))
def test_a_path_says_whose_cgroup_it_is(case):
    assert told(match(KNOWN.values(), case["input"]["path"]), case["expected"]) == case["expected"]


@pytest.mark.parametrize("case", cases("slurm_subpath"))
def test_what_is_below_a_slurm_job_is_its_step_and_its_task(case):
    found = KNOWN["slurm"].inside(case["input"]["remainder"])
    said = found and {"step": found.get("step"), "sub_step": found.get("part"), "task": found.get("task")}
    assert said == case["expected"]


def test_a_user_with_underscores_is_cut_off_at_the_last_one():
    assert match(KNOWN.values(), "/oar/ada_b_lovelace_77") == CgroupIdentity("oar2", "77", user="ada_b_lovelace")


def test_our_own_jobs_say_their_node():
    assert match(KNOWN.values(), "oarlock/node3/ada_9") == CgroupIdentity("oarlock", "9", user="ada", host="node3")


def test_a_slurm_job_without_a_number_is_called_by_its_sluid():
    place = match(KNOWN.values(), "/system.slice/slurmstepd.scope/s0123456789ABC/step_0/user/task_1")
    assert (place.job, place.level, place.step, place.part, place.task) == ("s0123456789ABC", "task", "0", "user", "1")


def test_two_jobs_of_one_number_on_two_nodes_of_one_machine_are_two():
    paths = ["slurm_n1/uid_5/job_9", "slurm_n2/uid_5/job_9"]
    assert [match(KNOWN.values(), path).key for path in paths] == [("slurm", "n1", "9"), ("slurm", "n2", "9")]


def test_names_that_systemd_escaped_are_read_as_they_were():
    place = match(KNOWN.values(), r"machine.slice/machine-qemu\x2d4\x2dweb\x2d1.scope/libvirt/vcpu0")
    assert (place.layout, place.details) == ("libvirt", (("name", "web-1"), ("number", "4")))
    pod = "kubepods.slice/kubepods-pod6d06282c_0377_4527_9a0f_9968bc9c4102.slice"
    assert dict(match(KNOWN.values(), pod).details) == {"pod": "6d06282c-0377-4527-9a0f-9968bc9c4102"}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("oar", ["oar2"]),
        ("oardocker/node1/oar", ["oar2"]),
        ("oar.slice/oar-u1000.slice", ["oar3"]),
        ("system.slice", ["slurm"]),
        ("slurm_n1/uid_1000", ["slurm"]),
        ("oarlock/node1", ["oarlock"]),
        ("user.slice/user-7.slice", []),
        ("oar/ada_7", []),
    ],
)
def test_directories_in_which_jobs_may_appear_are_known(path, names):
    assert [name for name, layout in KNOWN.items() if layout.is_job and layout.on_the_way(path)] == names


@given(user=st.from_regex(r"[a-z_][a-z0-9_-]{0,20}", fullmatch=True), job=st.integers(1, 10**9))
def test_every_user_and_number_come_back_out_of_the_path_they_made(user, job):
    assert match(KNOWN.values(), f"/oar/{user}_{job}") == CgroupIdentity("oar2", str(job), user=user)


def test_a_site_adds_its_own_and_replaces_ours(tmp_path):
    (tmp_path / "site.toml").write_text('[lab]\njob = ["lab/{job}"]\n[oar2]\njob = ["batch/{user}_{job}"]\n')
    site = all_layouts(tmp_path / "site.toml")
    assert match(site.values(), "lab/12") == CgroupIdentity("lab", "12")
    assert match(site.values(), "batch/ada_3") == CgroupIdentity("oar2", "3", user="ada")
    assert match(site.values(), "oar/ada_3") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[lab", "not TOML"),
        ("[lab]\nabout = 'x'", "does not say where its jobs are"),
        ("[lab]\njob = ['{job}']\njbo = 1", "unknown key `jbo`"),
        ("[lab]\njob = ['lab/{Job}']", "from position 4"),
        ("[lab]\njob = ['lab/{job}']\ninside = ['step']", "cannot be used"),
    ],
)
def test_a_file_of_layouts_that_makes_no_sense_is_refused_with_a_reason(tmp_path, text, sentence):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(ConfigRefused, match=sentence):
        all_layouts(tmp_path / "site.toml")


def test_a_layout_is_chosen_by_its_name_or_all_are():
    assert [layout.name for layout in select_layouts("slurm")] == ["slurm"]
    assert [layout.name for layout in select_layouts("auto")] == list(KNOWN)
    with pytest.raises(ConfigRefused, match="no layout `pbs`"):
        select_layouts("pbs")
    with pytest.raises(ConfigRefused, match="cannot be read"):
        select_layouts("auto", Path("/nonexistent/layouts.toml"))
