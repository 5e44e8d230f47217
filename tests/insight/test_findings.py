"""Each finding: facts that raise it, facts just beside that do not, and facts that are not known."""

from typing import Any

import pytest

from oarlock.insight.facts import FACTS, JobContext, facts_of
from oarlock.insight.findings import find, judge
from oarlock.insight.rules import Severity, own_rules
from oarlock.lang import where
from oarlock.model.summary import GpuMeasured, NodeMeasured, SummaryDetail

BAD, WARN = Severity.BAD, Severity.WARN
GB, HOUR = 1_000_000_000, 3600

RULES = {rule.id: rule for rule in own_rules().findings}


def job(
    node: dict[str, Any] | None = None,
    gpus: list[dict[str, Any]] | None = None,
    *,
    nodes: int = 1,
    counters: dict[str, float] | None = None,
    **context: Any,
) -> dict[str, Any]:
    """Return the facts of a job that ran an hour of two on 4 of 8 cores of each node, all four of them busy."""
    ran = context.get("run_seconds", HOUR)
    usual = {"samples": 360, "seconds": ran, "cores": 4.0, "node_cores": 8, "cpu_seconds": 4.0 * ran, "until": ran}
    measured = NodeMeasured(
        **usual | (node or {}),
        gpus={f"gpu{place}": GpuMeasured(**{"seconds": ran} | gpu) for place, gpu in enumerate(gpus or [])},
    )
    row = {"seconds": ran, "cpus": measured.cores or 0} | (counters or {})
    names = [f"n{place}" for place in range(nodes)]
    detail = SummaryDetail(attempts={"1": dict.fromkeys(names, row)}, measured={"1": dict.fromkeys(names, measured)})
    usual_context = {"walltime": 2 * HOUR, "run_seconds": HOUR, "nodes": nodes, "cores": 4 * nodes}
    return facts_of(JobContext(**usual_context | context), detail)


def busy(share: float, **more: Any) -> dict[str, Any]:
    return job({"cpu_seconds": 4 * HOUR * share}, **more)


def gpus(*shares: tuple[float, float], **more: Any) -> dict[str, Any]:
    """Return a job with GPUs of these mean and highest uses."""
    return job({}, [{"busy_mean_ratio": mean, "busy_most_ratio": most} for mean, most in shares], **more)


def memory(used: float, asked: float, **more: Any) -> dict[str, Any]:
    """Return a job that used so many of the bytes it asked for, on a node with 80 GB for 8 cores."""
    node = {"memory_own_most_bytes": used, "memory_asked_bytes": asked} | more
    return job(node, node_memory_bytes={"n0": 80 * GB})


CASES = [
    ("cpu.zero", BAD, job({"cpu_idle_seconds": 600}), job({"cpu_idle_seconds": 599}), busy(1.0) | {"gpus": None}),
    ("cpu.low", BAD, busy(0.64), busy(0.65), job({"cpu_seconds": None})),
    ("cpu.low", WARN, busy(0.79), busy(0.80), job({"cpu_seconds": None})),
    ("cpu.serial", BAD, busy(0.25), busy(0.28), job({"cpu_seconds": None})),
    ("cpu.uneven", WARN, job({"cpu_most_cores": 5.4}), job({"cpu_most_cores": 5.3}), job()),
    (
        "cpu.imbalance",
        WARN,
        job({"core_least_seconds": 3200, "core_mean_seconds": 3600, "core_most_seconds": 3600}),
        job({"core_least_seconds": 3250, "core_mean_seconds": 3600, "core_most_seconds": 3600}),
        job(),
    ),
    ("cpu.oversubscribed", WARN, job({"runnable_mean_threads": 5.1}), job({"runnable_mean_threads": 5.0}), job()),
    ("threads.many", WARN, job({"threads_most": {"gmx": 9}}), job({"threads_most": {"gmx": 8}}), job()),
    ("mem.low", BAD, memory(4.7 * GB, 48 * GB), memory(4.9 * GB, 48 * GB), memory(4.9 * GB, 0)),
    ("mem.low", WARN, memory(23 * GB, 48 * GB), memory(23 * GB, 44 * GB), job({"memory_own_most_bytes": GB})),
    ("mem.oom", BAD, job({"oom_kills": 1}), job({"oom_kills": 0}), job()),
    (
        "mem.near",
        WARN,
        memory(9.6 * GB, 10 * GB, oom_kills=0),
        memory(9.5 * GB, 10 * GB, oom_kills=0),
        memory(9.6 * GB, 10 * GB),
    ),
    (
        "time.short",
        BAD,
        job(run_seconds=700, is_over=True, succeeded=True),
        job(run_seconds=4400, is_over=True, succeeded=True),
        job(run_seconds=700, is_over=True, succeeded=True) | {"walltime_share": None},
    ),
    (
        "time.short",
        WARN,
        job(run_seconds=4300, is_over=True, succeeded=True),
        job(run_seconds=4300, is_over=True, succeeded=False),
        job(run_seconds=4300),
    ),
    (
        "time.short",
        BAD,
        job(run_seconds=700, is_over=True, succeeded=True),
        job(run_seconds=700, is_over=True, succeeded=True, walltime_chosen=False),
        job(run_seconds=700, is_over=True, succeeded=True) | {"walltime_chosen": None},
    ),
    ("time.exceeded", BAD, job(exceeded_walltime=True), job(), job() | {"walltime_exceeded": None}),
    ("gpu.zero", BAD, gpus((0, 0), (0, 0.009)), gpus((0, 0), (0, 0.02)), job({}, [{"busy_most_ratio": None}])),
    ("gpu.partial", BAD, gpus((0.5, 1), (0, 0)), gpus((0.5, 1), (0.01, 0.02)), job({}, [{}, {}])),
    ("gpu.low", BAD, gpus((0.14, 1)), gpus((0.15, 1)), job({}, [{}])),
    ("gpu.low", WARN, gpus((0.24, 1)), gpus((0.25, 1)), job({}, [{}])),
    (
        "gpu.idle_window",
        BAD,
        job({}, [{"busy_mean_ratio": 0.3, "busy_most_ratio": 1, "idle_after_work_seconds": 3600}]),
        job({}, [{"busy_mean_ratio": 0.3, "busy_most_ratio": 1, "idle_after_work_seconds": 3599}]),
        job(),
    ),
    (
        "frag.nodes",
        WARN,
        job(nodes=2),
        job({"cores": 8.0, "cpu_seconds": 8 * HOUR}, nodes=2, cores=16),
        job({"node_cores": None}, nodes=2),
    ),
    ("frag.gpus", WARN, gpus((0.9, 1), nodes=2), gpus((0.9, 1), (0.9, 1), nodes=2), job(nodes=2, gpus=None)),
    (
        "io.smallfiles",
        WARN,
        job({"open_files_most": 1000, "read_bytes": 4 * GB, "written_bytes": 0}),
        job({"open_files_most": 999, "read_bytes": 4 * GB, "written_bytes": 0}),
        job({"open_files_most": 1000}),
    ),
    (
        "io.noscratch",
        WARN,
        job({"scratch_samples": 0, "read_bytes": GB + 1, "written_bytes": 0}),
        job({"scratch_samples": 1, "read_bytes": GB + 1, "written_bytes": 0}),
        job({"read_bytes": GB + 1, "written_bytes": 0}),
    ),
    (
        "io.metadata",
        WARN,
        job({"calls_most_10min_per_second": 501}),
        job({"calls_most_10min_per_second": 500}),
        job(),
    ),
    (
        "short.jobs",
        WARN,
        job(run_seconds=200, is_over=True, short_jobs_that_day=50),
        job(run_seconds=200, is_over=True, short_jobs_that_day=49),
        job(run_seconds=200, is_over=True),
    ),
    ("node.event", WARN, job(node_events=1), job(), job() | {"node_events": None}),
    (
        "energy.outlier",
        WARN,
        job(energy_joules=3001, usual_energy_joules=1000),
        job(energy_joules=3000, usual_energy_joules=1000),
        job(energy_joules=3001),
    ),
]  # fmt: skip


def _id(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{case[1]}"


@pytest.mark.parametrize(("name", "severity", "facts", "beside", "unknown"), CASES, ids=map(_id, CASES))
def test_a_finding_is_raised_by_its_facts_and_by_no_others(name, severity, facts, beside, unknown):
    rule = RULES[name]
    assert judge(rule, facts) is severity
    assert judge(rule, beside) is not severity
    assert judge(rule, unknown) is None


def test_every_finding_and_each_of_its_severities_has_a_case():
    wanted = {
        (rule.id, severity)
        for rule in RULES.values()
        for severity, condition in ((BAD, rule.bad), (WARN, rule.warn))
        if condition is not None
    }
    assert {(case[0], case[1]) for case in CASES} == wanted


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_finds_nothing_where_any_of_its_facts_is_unknown(name: str):
    rule = RULES[name]
    for _, severity, facts, _, _ in (case for case in CASES if case[0] == name):
        for column in where.columns(rule.bad if severity is BAD else rule.warn):
            assert judge(rule, facts | {column: None}) is not severity, column


def test_nothing_is_found_about_a_job_that_did_what_it_asked_for():
    assert find(own_rules(), job(walltime=HOUR + 600)) == []


@pytest.mark.parametrize("measured", [{"samples": 9}, {}])
def test_nothing_is_found_before_ten_samples_and_five_minutes(measured: dict[str, int]):
    facts = job({"cpu_seconds": 1.0} | measured, run_seconds=HOUR if measured else 299)
    assert find(own_rules(), facts) == []


def test_a_serial_job_is_told_so_and_not_that_its_use_is_low():
    assert [finding.id for finding in find(own_rules(), busy(0.25))] == ["cpu.serial"]


def test_the_bad_comes_first_with_its_numbers_and_a_line_to_paste():
    facts = busy(0.5, node_events=2)
    first, second = find(own_rules(), facts)
    assert (first.id, first.severity, first.plot) == ("cpu.low", BAD, "cpu")
    assert first.text == "2 of 4 cores were busy on average (50 %)."
    assert first.line == "oarsub -l /core=3,walltime=2:00:00 …"
    assert (second.id, second.severity) == ("node.event", WARN)


def test_a_finding_is_written_in_french_as_well():
    [finding] = find(own_rules(), job({"cpu_idle_seconds": 660}), language="fr")
    assert finding.text == "Un nœud du job a utilisé moins de 1 % de ses cœurs pendant 0:11:00."


LONG = {"walltime": HOUR + 600}
SCRIPTS = [
    ("script.sleep", "#!/bin/sh\nsleep 600\n", {}, "#!/bin/sh\nsleep 5\n./run\n", {}, None),
    ("script.conda", "conda activate science\npython x.py", {}, "# conda activate science", {}, None),
    ("script.launcher", "gmx_mpi mdrun", {}, "mpirun gmx_mpi mdrun", {}, None),
    ("script.threads", "gmx mdrun -nt 8", {}, "gmx mdrun -nt 4", {}, "cores_per_node"),
    ("script.one_node", "module load x\ngmx mdrun", {"nodes": 2}, "gmx mdrun", {"nodes": 1}, "nodes"),
    ("script.amber_cpu", "pmemd.MPI -O", {"gpus": 1}, "pmemd.cuda -O", {"gpus": 1}, "gpus"),
    ("script.amber_gpu", "pmemd.cuda -O", {"gpus": 0}, "pmemd.cuda -O", {"gpus": 1}, "gpus"),
    ("script.prepares", "gmx grompp -f x", {"cores": 8}, "gmx grompp -f x", {"cores": 7}, "cores"),
]


def _in_script(script, facts):
    found = find(own_rules(), job(**LONG) | facts, script=script)
    return {finding.id for finding in found if finding.id.startswith("script.")}


@pytest.mark.parametrize(
    ("name", "script", "facts", "other", "beside", "asks"), SCRIPTS, ids=[row[0] for row in SCRIPTS]
)
def test_scripts_are_searched_for_what_wastes(name, script, facts, other, beside, asks):
    assert _in_script(script, facts) == {name}
    assert name not in _in_script(other, beside)
    assert name not in _in_script(None, facts)
    if asks:
        assert name not in _in_script(script, facts | {asks: None})


def test_every_rule_on_scripts_has_a_case():
    assert [row[0] for row in SCRIPTS] == [rule.id for rule in own_rules().scripts]


def test_every_fact_is_computed_from_a_summary():
    facts = job()
    assert facts.keys() == FACTS.keys()
