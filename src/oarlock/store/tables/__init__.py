"""The tables: the manual's 22 with its column names, and ours beside them.

All text is ordered by code point on both engines, and all dates and durations are integers. Words that the manual
declares as enumerations are checked by the database, so that no hand-written statement can leave a state nobody knows.
"""

from oarlock.store.tables.columns import metadata
from oarlock.store.tables.jobs import (
    HIDDEN_JOB_COLUMNS,
    assigned_resources,
    attempt_nodes,
    attempts,
    challenges,
    frag_jobs,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
    request_ids,
    walltime_change,
)
from oarlock.store.tables.plans import (
    gantt_jobs_predictions,
    gantt_jobs_predictions_visu,
    gantt_jobs_resources,
    gantt_jobs_resources_visu,
)
from oarlock.store.tables.resources import resource_logs, resources
from oarlock.store.tables.site import (
    account_doubts,
    accounting,
    admission_rules,
    audit,
    event_log_hostnames,
    event_logs,
    files,
    instance,
    job_summaries,
    maintenance,
    monitoring_samples,
    notices,
    queues,
    quotas,
    tokens,
)

__all__ = [
    "HIDDEN_JOB_COLUMNS",
    "account_doubts",
    "accounting",
    "admission_rules",
    "assigned_resources",
    "attempt_nodes",
    "attempts",
    "audit",
    "challenges",
    "event_log_hostnames",
    "event_logs",
    "files",
    "frag_jobs",
    "gantt_jobs_predictions",
    "gantt_jobs_predictions_visu",
    "gantt_jobs_resources",
    "gantt_jobs_resources_visu",
    "instance",
    "job_dependencies",
    "job_resource_descriptions",
    "job_resource_groups",
    "job_state_logs",
    "job_summaries",
    "job_types",
    "jobs",
    "maintenance",
    "metadata",
    "moldable_job_descriptions",
    "monitoring_samples",
    "notices",
    "queues",
    "quotas",
    "request_ids",
    "resource_logs",
    "resources",
    "tokens",
    "walltime_change",
]
