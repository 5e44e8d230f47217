"""A real Prometheus that holds what exporters would have said of jobs of the past."""

import subprocess
from pathlib import Path

from tests.measure.real_prometheus import Prometheus

PERIOD = 30


class Exporter:
    """Writes samples of series, every 30 s, in the text that promtool makes blocks of."""

    def __init__(self):
        self.series = {}

    def add(self, name, start, stop, value, **labels):
        """Add a series between two instants; `value` is a number, or what it is so many seconds after the start."""
        written = ",".join(f'{label}="{text}"' for label, text in labels.items())
        amount = value if callable(value) else lambda _: value
        # The first scrape is a little late, as scrapes are.
        instants = range(start + 7, stop, PERIOD)
        self.series.setdefault(name, []).extend((f"{name}{{{written}}}", at, amount(at - start)) for at in instants)

    def text(self):
        lines = []
        for name, samples in self.series.items():
            lines.append(f"# TYPE {name} unknown")
            lines += [f"{series} {value!r} {at}" for series, at, value in samples]
        return "\n".join([*lines, "# EOF", ""])

    def slurm_job(self, job, start, stop, *, node="n1", cores=2, busy=1.0, memory=8e8, limit=1e9, gpus=(), user="ann"):
        """Add a job as slurm-job-exporter tells of it; `busy` cores are all in the first ones."""
        own = {"user": user, "account": "science", "slurmjobid": job, "instance": f"{node}:9798", "cluster": "peer"}
        for core in range(cores):
            share = min(max(busy - core, 0.0), 1.0)
            self.add("slurm_job_core_usage_total", start, stop, lambda age, share=share: 1e9 * share * age,
                     core=core, **own)  # fmt: skip
        for name, value in (("rss", memory), ("cache", 5e8), ("limit", limit), ("max", memory + 5e8)):
            self.add(f"slurm_job_memory_{name}", start, stop, value, **own)
        self.add("slurm_job_process_count", start, stop, 3, **own)
        for state, count in (("running", busy), ("sleeping", 2)):
            self.add("slurm_job_threads_count", start, stop, count, state=state, **own)
        for place, used in enumerate(gpus):
            gpu = {"gpu": place, "gpu_type": "a100"}
            self.add("slurm_job_utilization_gpu", start, stop, used, **own, **gpu)
            self.add("slurm_job_memory_usage_gpu", start, stop, 2e9, **own, **gpu)

    def petricore_job(self, job, start, stop, *, node="n1", cores=2, busy=1.0, files=10, threads=2):
        """Add a job as jobs_exporter tells of it."""
        own = {"slurm_job": job, "instance": f"{node}:9091"}
        self.add("jobs_cpu_time_total", start, stop, lambda age: busy * age, **own)
        for core in range(cores):
            share = min(max(busy - core, 0.0), 1.0)
            self.add("jobs_cpu_time_core", start, stop, lambda age, share=share: share * age, core=core, **own)
        self.add("jobs_rss", start, stop, 954, **own)
        self.add("jobs_opened_files", start, stop, files, **own)
        self.add("jobs_uses_scratch", start, stop, 0, **own)
        self.add("jobs_thread_count", start, stop, threads, proc_name="solver", **own)
        self.add("jobs_read_mb", start, stop, lambda age: age, **own)
        self.add("jobs_write_mb", start, stop, lambda age: 0.5 * age, **own)


def engine(folder: Path, exporter: Exporter, rules: str = "") -> Prometheus:
    """Start a Prometheus that has the samples."""
    text, blocks = folder / "samples.om", folder / "data"
    text.write_text(exporter.text())
    made = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return Prometheus(folder, "  []", "--storage.tsdb.retention.time=100y")
