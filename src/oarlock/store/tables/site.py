"""What belongs to the site as a whole: queues, rules, accounts, events, tokens, measurements, the instance itself."""

from sqlalchemy import CheckConstraint, Column, Double, ForeignKeyConstraint, Index, Table

from oarlock.store.tables.columns import (
    TEXT_BY_CODE_POINT,
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

queues = Table(
    "queues",
    metadata,
    text_key("queue_name"),
    number("priority"),
    text("scheduler_policy"),
    enum_text("state", ("Active", "notActive"), "Active"),
)

admission_rules = Table(
    "admission_rules", metadata, key("id"), text("rule"), number("priority"), flag("enabled", "YES")
)

accounting = Table(
    "accounting",
    metadata,
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

event_logs = Table(
    "event_logs",
    metadata,
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

event_log_hostnames = Table(
    "event_log_hostnames",
    metadata,
    key("event_id"),
    text_key("hostname"),
    Index(None, "hostname"),
    ForeignKeyConstraint(["event_id"], ["event_logs.event_id"]),
    sqlite_with_rowid=False,
)

files = Table(
    "files",
    metadata,
    key("idFile"),
    optional_text("md5sum"),
    optional_text("location"),
    optional_text("method"),
    optional_text("compression"),
    number("size"),
    Index(None, "md5sum"),
)

quotas = Table(
    "quotas",
    metadata,
    key("position"),
    text("queue_name", "*"),
    text("project", "*"),
    text("job_type", "*"),
    text("user_name", "*"),
    number("resources", -1),
    number("jobs", -1),
    number("resource_seconds", -1),
)

maintenance = Table(
    "maintenance",
    metadata,
    key("maintenance_id"),
    text("name"),
    number("start_time"),
    number("stop_time"),
    text("properties"),
    text("user_name"),
    Index(None, "stop_time"),
)

notices = Table(
    "notices",
    metadata,
    key("notice_id"),
    number("job_id"),
    text("user_name"),
    text("job_name"),
    text("how"),
    text("tag"),
    text("comment"),
)
"""Notices to users about their jobs, from the transaction of their cause until they were sent."""

account_doubts = Table(
    "account_doubts",
    metadata,
    text_key("user_name"),
    text_key("host"),
    number("missing_since"),
    number("last"),
    number("until"),
    text("reason"),
)
"""Users that a look-up did not find, on the server (no host) or on a node: their jobs wait."""

unknown_attempts = Table(
    "unknown_attempts",
    metadata,
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
"""What nodes know of another generation of the database, from when it was found until it is over."""

tokens = Table(
    "tokens",
    metadata,
    text_key("token_hash"),
    text("user_name"),
    text("label"),
    number("created"),
    number("expires"),
    optional_number("uid"),
    Index(None, "user_name"),
)

job_summaries = Table(
    "job_summaries",
    metadata,
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

monitoring_samples = Table(
    "monitoring_samples",
    metadata,
    key("job_id"),
    text_key("network_address"),
    key("date"),
    text_key("metric"),
    Column("value", Double(), nullable=False),
    ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
)

audit = Table(
    "audit",
    metadata,
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
"""Who changed what, and who was refused what. Rows are only added; `chain` depends on the row and on all before it."""

instance = Table("instance", metadata, text_key("name"), text("value"))
"""Facts about this database itself: its identity, when it was made, which server holds it."""
