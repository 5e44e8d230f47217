"""Metrics of the site as a whole: jobs by state, processors, each with a twin under the name of slurm-exporter."""

from dataclasses import dataclass

from oarlock.model.job import JobState
from oarlock.node.sources.metrics import series
from oarlock.store import jobs, resources
from oarlock.store.tx import Tx


@dataclass(frozen=True, slots=True)
class SiteNow:
    """What is counted at one instant."""

    jobs: dict[JobState, int]
    resources: resources.Use


def read(tx: Tx) -> SiteNow:
    """Count jobs and resources."""
    return SiteNow(jobs.count(tx), resources.use(tx))


def page(now: SiteNow, cluster: str) -> bytes:
    """Write the lines; states without a job are told as 0, so that their series do not come and go."""
    use = now.resources
    states = {series("", state=str(state), cluster=cluster): now.jobs.get(state, 0) for state in JobState}
    whole = series("", cluster=cluster)
    named = {
        "alloc": use.taken,
        "idle": use.free,
        "other": use.total - use.taken - use.free,
        "total": use.total,
    }
    text = [_column("oarlock_jobs", "Jobs in each state.", states)]
    for name, value in named.items():
        about = f"Resources of the site: {_ABOUT[name]}."
        text += [_column(f"{family}_{name}", about, {whole: value}) for family in ("oarlock_resources", "slurm_cpus")]
    return "".join(text).encode()


_ABOUT = {"alloc": "given to jobs", "idle": "free for jobs", "other": "out of use", "total": "all"}


def _column(name: str, about: str, lines: dict[str, int]) -> str:
    rows = "".join(f"{name}{labels} {value}\n" for labels, value in lines.items())
    return f"# HELP {name} {about}\n# TYPE {name} gauge\n{rows}"
