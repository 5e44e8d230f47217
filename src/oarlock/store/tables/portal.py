"""Tables of the portal: shared jobs, saved lists, notices to all; mails, and what was done about findings."""

from sqlalchemy import Index, Table

from oarlock.store.tables.columns import key, metadata, number, optional_number, partial_index, text, text_key

mails = Table(
    "mails",
    metadata,
    key("mail_id"),
    number("date"),
    number("due"),
    text("user_name"),
    text("rule"),
    text("address"),
    text("subject"),
    text("body"),
    text("html"),
    number("job_id"),
    number("tries"),
    number("sent"),
    text("problem"),
    Index(None, "user_name"),
    partial_index("ix_mails_due", "due", "sent = 0"),
)
"""Mails that wait, or did. `sent` is the instant at which one was sent or, with a `problem`, given up; 0: it waits."""

mail_choices = Table("mail_choices", metadata, text_key("user_name"), text_key("kind"), number("date"))
"""Kinds of mails that a user does not want, and since when. Who has no row wants them."""

finding_snoozes = Table(
    "finding_snoozes",
    metadata,
    key("snooze_id"),
    number("date"),
    number("until"),
    text("rule"),
    text("user_name"),
    text("reason"),
    text("author"),
)
"""Findings about jobs of a user that staff do not want to see until then, and why."""

finding_warnings = Table(
    "finding_warnings", metadata, key("job_id"), text_key("rule"), key("idle_minutes"), number("date")
)
"""Warnings before a job is ended because of a finding: after how many idle minutes each was sent, and when."""


job_shares = Table(
    "job_shares",
    metadata,
    text_key("share_hash"),
    number("job_id"),
    text("user_name"),
    optional_number("uid"),
    number("created"),
    number("expires"),
    number("uses"),
    number("last_used"),
    Index(None, "user_name"),
)
"""Hashes of the links by which a job is shown to whoever has one; whose link it is, and how often it was opened."""

saved_views = Table("saved_views", metadata, text_key("user_name"), text_key("name"), text("query"), number("date"))
"""Filters and orders of the list of jobs that a user keeps under a name."""

site_notices = Table(
    "site_notices",
    metadata,
    key("notice_id"),
    number("date"),
    number("until"),
    text("says"),
    text("author"),
)
"""What administrators tell everybody on every page, until when."""
