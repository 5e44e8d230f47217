"""Jobs, what they ask for, where they run, their attempts, and what the last pass decided."""

from sqlalchemy import ForeignKeyConstraint, Index, Table

from oarlock.model.job import FragState, JobKind, JobState, Reservation
from oarlock.store.tables.columns import (
    current,
    enum_text,
    flag,
    key,
    metadata,
    number,
    optional_number,
    optional_text,
    partial_index,
    text,
    text_key,
)

jobs = Table(
    "jobs",
    metadata,
    key("job_id"),
    optional_text("job_name"),
    text("cpuset_name"),
    enum_text("job_type", JobKind, JobKind.PASSIVE),
    text("info_type"),
    enum_text("state", JobState, JobState.WAITING),
    enum_text("reservation", Reservation, Reservation.NONE),
    text("message"),
    text("job_user"),
    optional_text("command"),
    text("queue_name"),
    text("properties"),
    text("launching_directory"),
    number("submission_time"),
    number("start_time"),
    number("stop_time"),
    optional_number("file_id"),
    flag("accounted"),
    text("notify"),
    number("assigned_moldable_job"),
    number("checkpoint"),
    number("checkpoint_signal", 12),
    text("stdout_file"),
    text("stderr_file"),
    number("resubmit_job_id"),
    text("project", "default"),
    flag("suspended"),
    text("job_env"),
    optional_number("exit_code"),
    text("job_group"),
    # Beside the manual's columns, as OAR 2.5 has them.
    number("array_id"),
    number("array_index", 1),
    text("initial_request"),
    # Ours: of an array's members, where command, job_env and initial_request stand (else 0); the owner's number; the
    # login host where it was submitted, if that was proven.
    number("texts_id"),
    optional_number("job_uid"),
    text("login_host"),
    Index(None, "state", "job_id"),
    Index(None, "queue_name"),
    Index(None, "job_user"),
    Index(None, "array_id"),
    Index(None, "stop_time"),
    Index(None, "project", "stop_time"),
    partial_index("ix_jobs_reservation", "reservation", "reservation <> 'None'"),
    partial_index("ix_jobs_accounted", "accounted", "accounted = 'NO'"),
    partial_index("ix_jobs_suspended", "suspended", "suspended = 'YES'"),
)

HIDDEN_JOB_COLUMNS = frozenset({"command", "job_env", "initial_request", "message", "notify"})
"""What others must not read, not even by asking whether a condition holds. The initial request quotes the command."""


array_texts = Table(
    "array_texts",
    metadata,
    key("array_id"),
    number("last_job_id"),
    optional_text("command"),
    text("job_env"),
    text("initial_request"),
    flag("stored"),
    partial_index("ix_array_texts_stored", "array_id", "stored = 'NO'"),
)
"""What the members of an array have in common and is long. Not `stored`: its members are still being written."""

array_members = Table(
    "array_members",
    metadata,
    key("job_id"),
    number("array_id"),
    number("array_index"),
    optional_text("command"),
    Index(None, "array_id"),
)
"""Members of arrays that are still being written; they become rows of `jobs` all at once."""

moldable_job_descriptions = Table(
    "moldable_job_descriptions",
    metadata,
    key("moldable_id"),
    number("moldable_job_id"),
    number("moldable_walltime"),
    current("moldable_index"),
    Index(None, "moldable_job_id"),
)

job_resource_groups = Table(
    "job_resource_groups",
    metadata,
    key("res_group_id"),
    number("res_group_moldable_id"),
    text("res_group_property"),
    current("res_group_index"),
    Index(None, "res_group_moldable_id"),
)

job_resource_descriptions = Table(
    "job_resource_descriptions",
    metadata,
    key("res_job_group_id"),
    text_key("res_job_resource_type"),
    number("res_job_value"),
    key("res_job_order"),
    current("res_job_index"),
    sqlite_with_rowid=False,
)

job_types = Table(
    "job_types",
    metadata,
    key("job_type_id"),
    number("job_id"),
    text("type"),
    current("type_index"),
    Index(None, "job_id"),
    partial_index("ix_job_types_type", "type", "type_index = 'CURRENT'"),
)

job_dependencies = Table(
    "job_dependencies",
    metadata,
    key("job_id"),
    key("job_id_required"),
    current("job_dependency_index"),
    Index(None, "job_id_required"),
    sqlite_with_rowid=False,
)

STATES_OF_LIVE_JOBS = "date_stop = 0 AND job_state NOT IN ('Terminated', 'Error')"

USUAL_REASONS = {
    JobState.WAITING: "submitted",
    JobState.TO_LAUNCH: "its resources are free",
    JobState.LAUNCHING: "attempt 1 begins",
    JobState.FINISHING: "its command ended",
    JobState.TERMINATED: "everything is cleaned",
}
"""Why a job comes to a state as a rule: written as `USUAL`, since the texts would be a tenth of a job's bytes."""

USUAL = "."

job_state_logs = Table(
    "job_state_logs",
    metadata,
    key("job_state_log_id"),
    number("job_id"),
    enum_text("job_state", JobState, JobState.WAITING),
    number("date_start"),
    number("date_stop"),
    text("why"),
    Index(None, "job_id"),
    partial_index("ix_job_state_logs_job_state", "job_state", STATES_OF_LIVE_JOBS),
    partial_index("ix_job_state_logs_open", "job_id", "date_stop = 0"),
)

assigned_resources = Table(
    "assigned_resources",
    metadata,
    key("moldable_job_id"),
    key("resource_id"),
    current("assigned_resource_index"),
    partial_index("ix_assigned_resources_current", "resource_id", "assigned_resource_index = 'CURRENT'"),
    sqlite_with_rowid=False,
)

frag_jobs = Table(
    "frag_jobs",
    metadata,
    key("frag_id_job"),
    number("frag_date"),
    enum_text("frag_state", FragState, FragState.LEON),
    partial_index("ix_frag_jobs_frag_state", "frag_state", "frag_state <> 'FRAGGED'"),
    ForeignKeyConstraint(["frag_id_job"], ["jobs.job_id"]),
)

challenges = Table(
    "challenges",
    metadata,
    key("job_id"),
    text("challenge"),
    optional_text("ssh_private_key"),
    optional_text("ssh_public_key"),
    # Ours: whether the user brought the key, or its first node makes it.
    flag("imported"),
    Index(None, "challenge"),
    ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
)

"""Keys of jobs: the fingerprint stands in `challenge`; `ssh_private_key` is always NULL."""

walltime_change = Table(
    "walltime_change",
    metadata,
    key("job_id"),
    number("pending"),
    flag("force"),
    flag("delay_next_jobs"),
    number("granted"),
    number("granted_with_force"),
    number("granted_with_delay_next_jobs"),
    ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
)

attempts = Table(
    "attempts",
    metadata,
    key("job_id"),
    key("number"),
    text("secret_hash"),
    number("opened_us"),
    optional_number("started_us"),
    optional_number("ended_us"),
    optional_number("closed_us"),
    optional_number("exit_code"),
    text("outcome"),
    text("generation"),
    text("nonce"),
    partial_index("ix_attempts_live", "job_id", "closed_us IS NULL"),
    ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
)

attempt_nodes = Table(
    "attempt_nodes",
    metadata,
    key("job_id"),
    key("number"),
    key("position"),
    text("network_address"),
    text("boot_id"),
    optional_number("memory_limit_bytes"),
    Index(None, "network_address"),
    ForeignKeyConstraint(["job_id", "number"], ["attempts.job_id", "attempts.number"]),
    sqlite_with_rowid=False,
)

request_ids = Table(
    "request_ids",
    metadata,
    text_key("user_name"),
    text_key("request_id"),
    text("verb"),
    text("answer"),
    number("date"),
    Index(None, "date"),
    sqlite_with_rowid=False,
)


def _predictions(name: str) -> Table:
    return Table(name, metadata, key("moldable_job_id"), number("start_time"))


def _resources(name: str) -> Table:
    return Table(name, metadata, key("moldable_job_id"), key("resource_id"), sqlite_with_rowid=False)


start_predictions = Table("start_predictions", metadata, key("job_id"), number("date"), number("start_time"))
"""The first start predicted for a job, and when; jobs that started at once and reservations have none."""

gantt_jobs_predictions = _predictions("gantt_jobs_predictions")
gantt_jobs_predictions_visu = _predictions("gantt_jobs_predictions_visu")
gantt_jobs_resources = _resources("gantt_jobs_resources")
gantt_jobs_resources_visu = _resources("gantt_jobs_resources_visu")
