# ruff: noqa: E501
"""A small cluster in a database with the tables of OAR 2.5, on PostgreSQL or MariaDB."""

from pathlib import Path

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table, Text, insert

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = next(
    (
        path
        for folder in ROOT.parents[:2]
        if (path := folder / "shared/data/oar2-golden/schema_pg_structure.sql").exists()
    ),
    None,
)
"""The tables as OAR 2.5 itself makes them, where they were recorded."""

metadata = MetaData()


def _table(name, keys, numbers="", texts="", longs=""):
    columns = [Column(key, Integer, primary_key=True, autoincrement=False) for key in keys.split()]
    columns += [Column(number, Integer) for number in numbers.split()]
    columns += [Column(text, String(255)) for text in texts.split()]
    return Table(name, metadata, *columns, *(Column(long, Text) for long in longs.split()))


jobs = _table(
    "jobs", "job_id",
    "array_id array_index exit_code submission_time start_time stop_time assigned_moldable_job checkpoint_signal",
    "job_name job_type state reservation message scheduler_info job_user project queue_name suspended",
    "initial_request command properties launching_directory",
)  # fmt: skip
_table("moldable_job_descriptions", "moldable_id", "moldable_job_id moldable_walltime")
_table("job_resource_groups", "res_group_id", "res_group_moldable_id", "", "res_group_property")
_table("job_resource_descriptions", "res_job_group_id res_job_order", "res_job_value", "res_job_resource_type")
_table("job_types", "job_type_id", "job_id", "type types_index")
_table("job_dependencies", "job_id job_id_required")
_table("job_state_logs", "job_state_log_id", "job_id date_start date_stop", "job_state")
_table("assigned_resources", "moldable_job_id resource_id", "", "assigned_resource_index")
_table("gantt_jobs_predictions_visu", "moldable_job_id", "start_time")
_table("gantt_jobs_resources_visu", "moldable_job_id resource_id")
Table(
    "queues", metadata, Column("queue_name", String(100), primary_key=True), Column("priority", Integer),
    Column("scheduler_policy", String(100)), Column("state", String(9)),
)  # fmt: skip
_table("resource_logs", "resource_log_id", "resource_id date_start date_stop", "attribute value")
_table("event_logs", "event_id", "job_id date", "type description")
Table(
    "event_log_hostnames", metadata, Column("event_id", Integer, primary_key=True, autoincrement=False),
    Column("hostname", String(255), primary_key=True),
)  # fmt: skip
resources = _table(
    "resources", "resource_id", "expiry_date last_job_date available_upto state_num scheduler_priority core cpu",
    "type network_address state next_state cpuset besteffort deploy drain suspended_jobs finaud_decision "
    "next_finaud_decision desktop_computing",
)  # fmt: skip
resources.append_column(Column("wattage", BigInteger))

NOW = 1_790_000_000


def fill(engine: Engine, now: int = NOW) -> None:
    """Two nodes with two cores each; a job runs, one waits with a date, one is over, one never ran."""
    rows = {
        "queues": [{"queue_name": "default", "priority": 2, "scheduler_policy": "x", "state": "Active"},
                   {"queue_name": "night", "priority": 1, "scheduler_policy": "x", "state": "notActive"}],
        "resources": [
            {"resource_id": n, "type": "default", "network_address": f"node{1 + n // 3}", "state": "Suspected" if n == 4 else "Alive",
             "cpuset": str(n % 2), "core": n, "cpu": 1 + n // 3, "wattage": 150, "available_upto": 0} for n in range(1, 5)
        ],
        "jobs": [
            _job(1, "Terminated", now - 5000, now - 4000, now - 3000, 11, user="ann", exit_code=256, name="first"),
            _job(2, "Running", now - 900, now - 600, 0, 12, user="bob", project="physics", command="./run --password x"),
            _job(3, "Waiting", now - 300, 0, 0, 0, user="ann", message="R=4,W=1:0:0,J=B"),
            _job(4, "Error", now - 200, 0, now - 100, 0, user="<script>alert(1)</script>", name="o'neil \"x\" %s"),
        ],
        "moldable_job_descriptions": [
            {"moldable_id": 10 + n, "moldable_job_id": n, "moldable_walltime": 3600} for n in range(1, 5)
        ],
        "job_resource_groups": [
            {"res_group_id": 100 + n, "res_group_moldable_id": 10 + n, "res_group_property": "core > 0"} for n in range(1, 5)
        ],
        "job_resource_descriptions": [
            {"res_job_group_id": 100 + n, "res_job_order": 0, "res_job_value": 2, "res_job_resource_type": "core"} for n in range(1, 5)
        ],
        "job_types": [{"job_type_id": 1, "job_id": 2, "type": "besteffort", "types_index": "CURRENT"}],
        "job_dependencies": [{"job_id": 3, "job_id_required": 2}],
        "job_state_logs": [
            {"job_state_log_id": 1, "job_id": 2, "job_state": "Waiting", "date_start": now - 900, "date_stop": now - 600},
            {"job_state_log_id": 2, "job_id": 2, "job_state": "Running", "date_start": now - 600, "date_stop": 0},
        ],
        "assigned_resources": [
            {"moldable_job_id": 11, "resource_id": 1, "assigned_resource_index": "LOG"},
            {"moldable_job_id": 12, "resource_id": 1, "assigned_resource_index": "CURRENT"},
            {"moldable_job_id": 12, "resource_id": 2, "assigned_resource_index": "CURRENT"},
        ],
        "gantt_jobs_predictions_visu": [{"moldable_job_id": 0, "start_time": now}, {"moldable_job_id": 13, "start_time": now + 3000}],
        "gantt_jobs_resources_visu": [{"moldable_job_id": 13, "resource_id": 1}, {"moldable_job_id": 13, "resource_id": 3}],
        "resource_logs": [
            {"resource_log_id": 7, "resource_id": 4, "attribute": "state", "value": "Suspected", "date_start": now - 1000, "date_stop": 0},
            {"resource_log_id": 6, "resource_id": 4, "attribute": "state", "value": "Alive", "date_start": now - 9000, "date_stop": now - 1000},
        ],
        "event_logs": [
            {"event_id": 5, "job_id": 4, "date": now - 100, "type": "FRAG_JOB_REQUEST", "description": "deleted"},
            {"event_id": 6, "job_id": 0, "date": now - 90, "type": "OF_A_PLUGIN", "description": "ours not"},
        ],
        "event_log_hostnames": [{"event_id": 5, "hostname": "node1"}],
    }  # fmt: skip
    with engine.begin() as tx:
        for name, values in rows.items():
            tx.execute(insert(metadata.tables[name]), values)


def _job(number, state, submitted, start, stop, assigned, *, user, project="default", **more):
    return {
        "job_id": number, "array_id": number, "array_index": 1, "exit_code": more.get("exit_code"),
        "submission_time": submitted, "start_time": start, "stop_time": stop, "assigned_moldable_job": assigned,
        "job_name": more.get("name"), "job_type": "PASSIVE", "state": state, "reservation": "None",
        "message": more.get("message", ""), "scheduler_info": more.get("info", ""), "job_user": user, "project": project, "queue_name": "default",
        "suspended": "NO", "initial_request": "", "command": more.get("command", "sleep 1"), "properties": "",
        "launching_directory": "/home", "checkpoint_signal": 12,
    }  # fmt: skip
