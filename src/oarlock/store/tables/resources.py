"""Resources and the history of their properties. A site's own properties are columns that are added at run time."""

from sqlalchemy import Index, Table

from oarlock.model.resource import DEFAULT_TYPE, NextState, ResourceState
from oarlock.store.tables.columns import few, flag, key, metadata, number, perhaps_number, perhaps_text, text, word

resources = Table(
    "resources",
    metadata,
    key("resource_id"),
    text("type", DEFAULT_TYPE),
    text("network_address"),
    word("state", ResourceState, ResourceState.ALIVE),
    word("next_state", NextState, NextState.UNCHANGED),
    flag("finaud_decision"),
    flag("next_finaud_decision"),
    number("state_num", 1),
    flag("suspended_jobs"),
    number("scheduler_priority"),
    perhaps_text("switch"),
    perhaps_number("cpu"),
    number("cpuset"),
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
    few("ix_resources_next_state", "next_state", "next_state <> 'UnChanged'"),
    few("ix_resources_suspended_jobs", "suspended_jobs", "suspended_jobs = 'YES'"),
)

resource_logs = Table(
    "resource_logs",
    metadata,
    key("resource_log_id"),
    number("resource_id"),
    text("attribute"),
    perhaps_text("value"),
    number("date_start"),
    number("date_stop"),
    flag("finaud_decision"),
    Index(None, "resource_id"),
    few("ix_resource_logs_open", "resource_id", "date_stop = 0"),
)
