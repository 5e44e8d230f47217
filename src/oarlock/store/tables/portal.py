"""Tables of the portal: links by which jobs are shared, lists of jobs that users keep, notices to all."""

from sqlalchemy import Index, Table

from oarlock.store.tables.columns import key, metadata, number, optional_number, text, text_key

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
