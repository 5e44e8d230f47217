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


def _sum(name: str) -> Column[float]:
    """Build a column that is added to."""
    return Column(name, Double(), nullable=False, server_default="0")


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
    Index(None, "window_stop"),
    Index(None, "accounting_user"),
    Index(None, "accounting_project"),
    Index(None, "queue_name"),
    Index(None, "consumption_type"),
    sqlite_with_rowid=False,
)

EVENTS_BESIDE_USUAL_ENDS = "type <> 'SWITCH_INTO_TERMINATE_STATE'"

event_logs = Table(
    "event_logs",
    metadata,
    key("event_id"),
    text("type"),
    number("job_id"),
    number("date"),
    text("description"),
    flag("to_check"),
    partial_index("ix_event_logs_type", "type", EVENTS_BESIDE_USUAL_ENDS),
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
    text("sha256"),
    text("user_name"),
    optional_number("uid"),
    number("used"),
    Index(None, "md5sum"),
    Index(None, "sha256"),
)
"""Archives of stage-in. Whose it is, the sum by which it is kept, and when it was last used are ours."""

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
    text("scope"),
    Index(None, "user_name"),
)
"""Hashes of tokens. `scope` is empty where a token is as good as its user, else the one thing that it is good for.

That is a node (`desk1`), a node of another cluster (`n7@alpha`), or the scripts of a cluster (`/scripts@alpha`).
"""

agent_jobs = Table(
    "agent_jobs",
    metadata,
    key("number"),
    text("cluster"),
    text("job"),
    text("manager"),
    text("user_name"),
    optional_number("uid"),
    text("account"),
    text("name"),
    text("nodes"),
    number("first_seen"),
    number("last_seen"),
    number("ended"),
    Index(None, "cluster", "job"),
    Index(None, "user_name"),
    partial_index("ix_agent_jobs_ended", "ended", "ended = 0"),
)
"""Jobs of other resource managers, as agents report them. `job` is what the manager calls it, `number` what we do.

A number is above all that jobs of our own can have. `ended` is 0 while it runs, `nodes` has spaces between.
"""

job_scripts = Table(
    "job_scripts",
    metadata,
    text_key("cluster"),
    key("job"),
    text("script"),
    number("date"),
)
"""Scripts of jobs of other resource managers, as they were submitted there."""

browser_sessions = Table(
    "browser_sessions",
    metadata,
    text_key("session_hash"),
    text("user_name"),
    optional_number("uid"),
    enum_text("purpose", ("link", "session"), "session"),
    number("created"),
    number("expires"),
    text("agent"),
    Index(None, "user_name"),
)
"""Hashes of what signs a browser in: a link that is good once, and the sessions that came of such links."""

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
    Column("run_seconds", Double()),
    optional_number("walltime"),
    Column("core_seconds", Double()),
    optional_number("memory_asked_bytes"),
    optional_number("memory_own_mean_bytes"),
    optional_number("memory_own_peak_bytes"),
    Column("gpu_busy_seconds", Double()),
    number("samples"),
    Column("coverage", Double()),
    number("booked"),
    partial_index("ix_job_summaries_booked", "job_id", "booked = 0"),
)
"""What each job really used, one of another resource manager (`agent_jobs`) as well.

`booked` is 0 until `usage_days` has what its nodes reported.
"""

usage_days = Table(
    "usage_days",
    metadata,
    key("day"),
    text_key("user_name"),
    text_key("project"),
    text_key("queue_name"),
    number("jobs"),
    _sum("core_seconds"),
    _sum("core_busy_seconds"),
    _sum("memory_asked_byte_seconds"),
    _sum("memory_used_byte_seconds"),
    _sum("gpu_seconds"),
    _sum("gpu_busy_seconds"),
    _sum("energy_joules"),
)
"""What jobs held and used on a day. A job counts once, on the day on which it began."""

software_days = Table(
    "software_days",
    metadata,
    key("day"),
    text_key("user_name"),
    text_key("project"),
    text_key("kind"),
    text_key("name"),
    number("jobs"),
    _sum("core_seconds"),
    _sum("cpu_seconds"),
)
"""What software jobs ran that ended on a day: executables, and modules that their scripts load."""

energy_days = Table(
    "energy_days",
    metadata,
    text_key("network_address"),
    key("day"),
    text_key("method"),
    number("meter_mj"),
    number("idle_mj"),
    number("not_assigned_mj"),
    _sum("seconds"),
    number("until_ms"),
    Index(None, "day"),
)
"""What a node's meter counted on a day (UTC) by one method, in millijoules, and the seconds in which it did.

`until_ms` is the end of the last stretch in it: what is told again is known by it.
"""

energy_shares = Table(
    "energy_shares",
    metadata,
    text_key("network_address"),
    key("day"),
    key("job_id"),
    number("energy_mj"),
    _sum("seconds"),
    Index(None, "job_id"),
    Index(None, "day"),
)
"""The jobs' shares. For a node and day they are, with idle and not assigned, what its meters counted, exactly."""

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

archive_pins = Table(
    "archive_pins",
    metadata,
    key("job_id"),
    text("user_name"),
    number("date"),
    Index(None, "user_name"),
)
"""Jobs, of our own and of agents, whose file is neither thinned nor deleted, who wants that, and since when."""

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
