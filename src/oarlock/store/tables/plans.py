"""What the last pass decided, and the copies that visualisation reads. Prediction 0 is the date of that pass."""

from sqlalchemy import Table

from oarlock.store.tables.columns import key, metadata, number


def _predictions(name: str) -> Table:
    return Table(name, metadata, key("moldable_job_id"), number("start_time"))


def _resources(name: str) -> Table:
    return Table(name, metadata, key("moldable_job_id"), key("resource_id"), sqlite_with_rowid=False)


gantt_jobs_predictions = _predictions("gantt_jobs_predictions")
gantt_jobs_predictions_visu = _predictions("gantt_jobs_predictions_visu")
gantt_jobs_resources = _resources("gantt_jobs_resources")
gantt_jobs_resources_visu = _resources("gantt_jobs_resources_visu")
