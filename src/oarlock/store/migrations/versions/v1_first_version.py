"""The first version of the tables: the manual's 22 with what OAR 2.5 added, ours beside them, and OAR's three queues.

It stays as it is, whatever the tables become: every later change is a step of its own.
"""

from alembic import op
from sqlalchemy import CheckConstraint, Column, Double, ForeignKeyConstraint, Index, column, table

from oarlock.store.tables.columns import (
    TEXT_BY_CODE_POINT,
    current,
    enum_text,
    flag,
    key,
    number,
    optional_number,
    optional_text,
    partial_index,
    text,
    text_key,
)

revision = "1"
down_revision = None

JOB_STATES = (
    "Waiting",
    "Hold",
    "toLaunch",
    "toError",
    "toAckReservation",
    "Launching",
    "Running",
    "Suspended",
    "Resuming",
    "Finishing",
    "Terminated",
    "Error",
)


def upgrade() -> None:
    """Make the tables."""
    _resources()
    _jobs()
    _requests()
    _kills_and_changes()
    _attempts()
    _plans()
    _events()
    _site()
    _users()
    _measurements()
    _default_queues()


def _resources() -> None:
    op.create_table(
        "resources",
        key("resource_id"),
        text("type", "default"),
        text("network_address"),
        enum_text("state", ("Alive", "Absent", "Suspected", "Dead"), "Alive"),
        enum_text("next_state", ("UnChanged", "Alive", "Absent", "Suspected", "Dead"), "UnChanged"),
        flag("finaud_decision"),
        flag("next_finaud_decision"),
        number("state_num", 1),
        flag("suspended_jobs"),
        number("scheduler_priority"),
        optional_text("switch"),
        optional_number("cpu"),
        number("cpuset"),
        flag("besteffort", "YES"),
        flag("deploy"),
        number("expiry_date"),
        flag("desktop_computing"),
        number("last_job_date"),
        number("cm_availability"),
        flag("drain"),
        Index(None, "state"),
        Index(None, "network_address"),
        Index(None, "type"),
        partial_index("ix_resources_next_state", "next_state", "next_state <> 'UnChanged'"),
        partial_index("ix_resources_suspended_jobs", "suspended_jobs", "suspended_jobs = 'YES'"),
    )
    op.create_table(
        "resource_logs",
        key("resource_log_id"),
        number("resource_id"),
        text("attribute"),
        optional_text("value"),
        number("date_start"),
        number("date_stop"),
        flag("finaud_decision"),
        Index(None, "resource_id"),
        partial_index("ix_resource_logs_open", "resource_id", "date_stop = 0"),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        key("job_id"),
        optional_text("job_name"),
        text("cpuset_name"),
        enum_text("job_type", ("INTERACTIVE", "PASSIVE"), "PASSIVE"),
        text("info_type"),
        enum_text("state", JOB_STATES, "Waiting"),
        enum_text("reservation", ("None", "toSchedule", "Scheduled"), "None"),
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
        number("array_id"),
        number("array_index", 1),
        text("initial_request"),
        number("texts_id"),
        optional_number("job_uid"),
        Index(None, "state", "job_id"),
        Index(None, "queue_name"),
        Index(None, "job_user"),
        Index(None, "array_id"),
        Index(None, "stop_time"),
        partial_index("ix_jobs_reservation", "reservation", "reservation <> 'None'"),
        partial_index("ix_jobs_accounted", "accounted", "accounted = 'NO'"),
        partial_index("ix_jobs_suspended", "suspended", "suspended = 'YES'"),
    )
    op.create_table(
        "job_state_logs",
        key("job_state_log_id"),
        number("job_id"),
        enum_text("job_state", JOB_STATES, "Waiting"),
        number("date_start"),
        number("date_stop"),
        text("why"),
        Index(None, "job_id"),
        partial_index("ix_job_state_logs_open", "job_id", "date_stop = 0"),
    )
    op.create_table(
        "job_types",
        key("job_type_id"),
        number("job_id"),
        text("type"),
        current("type_index"),
        Index(None, "job_id"),
        partial_index("ix_job_types_type", "type", "type_index = 'CURRENT'"),
    )
    op.create_table(
        "job_dependencies",
        key("job_id"),
        key("job_id_required"),
        current("job_dependency_index"),
        Index(None, "job_id_required"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "array_texts",
        key("array_id"),
        number("last_job_id"),
        optional_text("command"),
        text("job_env"),
        text("initial_request"),
        flag("stored"),
        partial_index("ix_array_texts_stored", "array_id", "stored = 'NO'"),
    )
    op.create_table(
        "array_members",
        key("job_id"),
        number("array_id"),
        number("array_index"),
        optional_text("command"),
        Index(None, "array_id"),
    )


def _requests() -> None:
    op.create_table(
        "moldable_job_descriptions",
        key("moldable_id"),
        number("moldable_job_id"),
        number("moldable_walltime"),
        current("moldable_index"),
        Index(None, "moldable_job_id"),
    )
    op.create_table(
        "job_resource_groups",
        key("res_group_id"),
        number("res_group_moldable_id"),
        text("res_group_property"),
        current("res_group_index"),
        Index(None, "res_group_moldable_id"),
    )
    op.create_table(
        "job_resource_descriptions",
        key("res_job_group_id"),
        text_key("res_job_resource_type"),
        number("res_job_value"),
        key("res_job_order"),
        current("res_job_index"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "assigned_resources",
        key("moldable_job_id"),
        key("resource_id"),
        current("assigned_resource_index"),
        partial_index("ix_assigned_resources_current", "resource_id", "assigned_resource_index = 'CURRENT'"),
        sqlite_with_rowid=False,
    )


def _kills_and_changes() -> None:
    op.create_table(
        "frag_jobs",
        key("frag_id_job"),
        number("frag_date"),
        enum_text("frag_state", ("LEON", "TIMER_ARMED", "LEON_EXTERMINATE", "FRAGGED"), "LEON"),
        partial_index("ix_frag_jobs_frag_state", "frag_state", "frag_state <> 'FRAGGED'"),
        ForeignKeyConstraint(["frag_id_job"], ["jobs.job_id"]),
    )
    op.create_table(
        "challenges",
        key("job_id"),
        text("challenge"),
        optional_text("ssh_private_key"),
        optional_text("ssh_public_key"),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )
    op.create_table(
        "walltime_change",
        key("job_id"),
        number("pending"),
        flag("force"),
        flag("delay_next_jobs"),
        number("granted"),
        number("granted_with_force"),
        number("granted_with_delay_next_jobs"),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )


def _attempts() -> None:
    op.create_table(
        "attempts",
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
    op.create_table(
        "attempt_nodes",
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
    op.create_table(
        "unknown_attempts",
        key("unknown_id"),
        text("network_address"),
        number("job_id"),
        number("number"),
        text("tag"),
        text("generation"),
        text("user_name"),
        number("since"),
        number("walltime"),
        text("resources"),
    )


def _plans() -> None:
    for name in ("gantt_jobs_predictions", "gantt_jobs_predictions_visu"):
        op.create_table(name, key("moldable_job_id"), number("start_time"))
    for name in ("gantt_jobs_resources", "gantt_jobs_resources_visu"):
        op.create_table(name, key("moldable_job_id"), key("resource_id"), sqlite_with_rowid=False)


def _events() -> None:
    op.create_table(
        "event_logs",
        key("event_id"),
        text("type"),
        number("job_id"),
        number("date"),
        text("description"),
        flag("to_check"),
        Index(None, "type"),
        Index(None, "date"),
        partial_index("ix_event_logs_job_id", "job_id", "job_id <> 0"),
        partial_index("ix_event_logs_to_check", "to_check", "to_check = 'YES'"),
    )
    op.create_table(
        "event_log_hostnames",
        key("event_id"),
        text_key("hostname"),
        Index(None, "hostname"),
        ForeignKeyConstraint(["event_id"], ["event_logs.event_id"]),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "notices",
        key("notice_id"),
        number("job_id"),
        text("user_name"),
        text("job_name"),
        text("how"),
        text("tag"),
        text("comment"),
    )


def _site() -> None:
    op.create_table(
        "queues",
        text_key("queue_name"),
        number("priority"),
        text("scheduler_policy"),
        enum_text("state", ("Active", "notActive"), "Active"),
    )
    op.create_table("admission_rules", key("id"), text("rule"), number("priority"), flag("enabled", "YES"))
    op.create_table(
        "accounting",
        key("window_start"),
        key("window_stop"),
        text_key("accounting_user"),
        text_key("accounting_project"),
        text_key("queue_name"),
        Column(
            "consumption_type",
            TEXT_BY_CODE_POINT,
            CheckConstraint("consumption_type IN ('ASKED', 'USED')", name="consumption_type"),
            primary_key=True,
        ),
        number("consumption"),
        Index(None, "accounting_user"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "files",
        key("idFile"),
        optional_text("md5sum"),
        optional_text("location"),
        optional_text("method"),
        optional_text("compression"),
        number("size"),
        Index(None, "md5sum"),
    )
    op.create_table("instance", text_key("name"), text("value"))
    op.create_table(
        "quotas",
        key("position"),
        text("queue_name", "*"),
        text("project", "*"),
        text("job_type", "*"),
        text("user_name", "*"),
        number("resources", -1),
        number("jobs", -1),
        number("resource_seconds", -1),
    )
    op.create_table(
        "maintenance",
        key("maintenance_id"),
        text("name"),
        number("start_time"),
        number("stop_time"),
        text("properties"),
        text("user_name"),
        Index(None, "stop_time"),
    )


def _users() -> None:
    op.create_table(
        "request_ids",
        text_key("user_name"),
        text_key("request_id"),
        text("verb"),
        text("answer"),
        number("date"),
        Index(None, "date"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tokens",
        text_key("token_hash"),
        text("user_name"),
        text("label"),
        number("created"),
        number("expires"),
        optional_number("uid"),
        Index(None, "user_name"),
    )
    op.create_table(
        "account_doubts",
        text_key("user_name"),
        text_key("host"),
        number("missing_since"),
        number("last"),
        number("until"),
        text("reason"),
    )
    op.create_table(
        "audit",
        key("id"),
        number("date"),
        text("user_name"),
        text("behalf"),
        text("verb"),
        text("channel"),
        text("asked"),
        text("chain"),
        text("refused"),
        Index(None, "user_name"),
    )


def _measurements() -> None:
    op.create_table(
        "job_summaries",
        key("job_id"),
        number("date"),
        Column("cpu_seconds", Double()),
        optional_number("memory_peak_bytes"),
        optional_number("read_bytes"),
        optional_number("written_bytes"),
        Column("energy_joules", Double()),
        Column("gpu_seconds", Double()),
        text("detail", "{}"),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )
    op.create_table(
        "monitoring_samples",
        key("job_id"),
        text_key("network_address"),
        key("date"),
        text_key("metric"),
        Column("value", Double(), nullable=False),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )


def _default_queues() -> None:
    policy = "oar_sched_gantt_with_timesharing"
    op.bulk_insert(
        table("queues", column("queue_name"), column("priority"), column("scheduler_policy")),
        [
            {"queue_name": name, "priority": priority, "scheduler_policy": policy}
            for name, priority in (("admin", 10), ("default", 2), ("besteffort", 0))
        ],
    )
