"""Resources and the history of their properties. A site's own properties are columns that are added at run time."""

from sqlalchemy import Index, Table

from oarlock.model.resource import DEFAULT_TYPE, NextState, ResourceState
from oarlock.store.tables.columns import (
    enum_text,
    flag,
    key,
    metadata,
    number,
    optional_number,
    optional_text,
    partial_index,
    text,
)

resources = Table(
    "resources",
    metadata,
    key("resource_id"),
    text("type", DEFAULT_TYPE),
    text("network_address"),
    enum_text("state", ResourceState, ResourceState.ALIVE),
    enum_text("next_state", NextState, NextState.UNCHANGED),
    flag("finaud_decision"),
    flag("next_finaud_decision"),
    number("state_num", 1),
    flag("suspended_jobs"),
    number("scheduler_priority"),
    optional_text("switch"),
    optional_number("cpu"),
    # CPU numbers of the node: `3`, `0,32` or `0-3` (`model.resource.parse_cpus`).
    text("cpuset", "0"),
    flag("besteffort", "YES"),
    flag("deploy"),
    number("expiry_date"),
    flag("desktop_computing"),
    number("last_job_date"),
    number("cm_availability"),
    # As OAR 2.5 has it: no new job is put on a resource that is being drained.
    flag("drain"),
    Index(None, "state"),
    Index(None, "network_address"),
    Index(None, "type"),
    partial_index("ix_resources_expiry_date", "expiry_date", "expiry_date > 0"),
    partial_index("ix_resources_next_state", "next_state", "next_state <> 'UnChanged'"),
    partial_index("ix_resources_suspended_jobs", "suspended_jobs", "suspended_jobs = 'YES'"),
)

resource_logs = Table(
    "resource_logs",
    metadata,
    key("resource_log_id"),
    number("resource_id"),
    text("attribute"),
    optional_text("value"),
    number("date_start"),
    number("date_stop"),
    flag("finaud_decision"),
    Index(None, "resource_id"),
    Index(None, "attribute"),
    partial_index("ix_resource_logs_open", "resource_id", "date_stop = 0"),
    partial_index("ix_resource_logs_states", "date_stop", "attribute = 'state'"),
)
