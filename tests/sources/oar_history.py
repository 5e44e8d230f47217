"""A thousand jobs in the tables of a real OAR 2.5, on PostgreSQL or MariaDB, written as OAR writes them."""

import random

from sqlalchemy import Engine, MetaData, insert, text

BEGIN = 1_790_000_000
JOBS = 1000
NASTY = "o'neil \\ \"x\";\n-- (1,2),('\t%s) é ☃ \\n \\N"


def fill(engine: Engine, rules: list[dict], jobs: int = JOBS) -> MetaData:
    """Eight nodes of four cores with properties of the site, queues, jobs of many kinds, events and accounting."""
    with engine.begin() as tx:
        whole, words = "INTEGER", "VARCHAR(255)"
        for name, kind in (("core", whole), ("cpu", whole), ("host", words), ("gpu_model", words), ("group", words)):
            quoted = engine.dialect.identifier_preparer.quote_identifier(name)
            tx.execute(text(f"ALTER TABLE resources ADD COLUMN {quoted} {kind}"))
    tables = MetaData()
    tables.reflect(engine)
    rows = _rows(random.Random(7), jobs) | {"admission_rules": rules}
    with engine.begin() as tx:
        if engine.dialect.name == "mysql":
            tx.execute(text("SET SESSION sql_mode = ''"))  # OAR leaves columns out that have no default
        for name, values in rows.items():
            if values:
                tx.execute(insert(tables.tables[name]), values)
    return tables


def _rows(chance, count):
    rows = {name: [] for name in (
        "resources", "queues", "jobs", "moldable_job_descriptions", "job_resource_groups", "job_resource_descriptions",
        "assigned_resources", "job_types", "job_dependencies", "job_state_logs", "frag_jobs", "event_logs",
        "event_log_hostnames", "accounting", "resource_logs", "challenges", "walltime_change",
    )}  # fmt: skip
    for n in range(1, 33):
        node = f"node{1 + (n - 1) // 4}"
        rows["resources"].append({
            "resource_id": n, "network_address": node, "host": node, "core": n, "cpu": 1 + (n - 1) // 2,
            "cpuset": str((n - 1) % 4), "state": "Dead" if n > 28 else "Alive", "state_num": 1, "group": "a",
            "gpu_model": None if n % 2 else "A100", "available_upto": 2147483647,
        })  # fmt: skip
        rows["resource_logs"].append({
            "resource_log_id": n, "resource_id": n, "attribute": "available_upto" if n == 3 else "state",
            "value": "Alive", "date_start": BEGIN - 1000, "date_stop": 0 if n < 20 else BEGIN, "finaud_decision": "NO",
        })  # fmt: skip
    rows["queues"].append({"queue_name": "night", "priority": 5, "state": "notActive",
                           "scheduler_policy": "oar_sched_gantt_with_timesharing"})  # fmt: skip
    for number in range(1, count + 1):
        _job(rows, chance, number, count)
    for day in range(20):
        for user in ("ada", "bob"):
            for kind in ("ASKED", "USED"):
                rows["accounting"].append({
                    "window_start": BEGIN + day * 86400, "window_stop": BEGIN + day * 86400 + 86399,
                    "accounting_user": user, "accounting_project": "default", "queue_name": "default",
                    "consumption_type": kind, "consumption": 2**31 + day,
                })  # fmt: skip
    return rows


def _job(rows, chance, number, count):
    alive = number > count - 5
    state = ("Running", "Waiting", "Hold", "Launching", "Waiting")[count - number] if alive else (
        "Error" if number % 17 == 0 else "Terminated")  # fmt: skip
    ran = not alive and number % 13 != 0
    submitted = BEGIN + number * 60
    start = submitted + chance.randrange(500) if ran else 0
    stop = start + chance.randrange(1, 4000) if ran else (0 if alive else submitted + 5)
    first = 2 * number  # moldable jobs have two
    rows["jobs"].append({
        "job_id": number, "array_id": number if number % 9 else number - 1, "array_index": 1 if number % 9 else 2,
        "initial_request": "oarsub ./x" + NASTY * (number % 100 == 1), "job_name": f"job {number % 5}",
        "job_env": "A='1' B='2'", "job_type": "INTERACTIVE" if number % 10 == 0 else "PASSIVE", "info_type": "h:1",
        "state": state, "reservation": "Scheduled" if number % 50 == 0 else "None",
        "message": "é" if number % 7 else "", "scheduler_info": "", "job_user": ("ada", "bob", "eve")[number % 3],
        "project": "default" if number % 4 else "physics", "job_group": "", "command": NASTY if number % 3 else None,
        "exit_code": (number % 4) * 256 if ran else None, "queue_name": "night" if number % 6 == 0 else "default",
        "properties": "desktop_computing = 'NO'", "launching_directory": "/home/ada", "submission_time": submitted,
        "start_time": start, "stop_time": stop, "file_id": None, "accounted": "YES" if ran else "NO",
        "notify": "mail:ada@x" if number % 8 == 0 else None, "assigned_moldable_job": first if ran else 0,
        "checkpoint": 0, "checkpoint_signal": 12, "stdout_file": "OAR.%jobid%.stdout", "stderr_file": "e",
        "resubmit_job_id": 0, "suspended": "NO",
    })  # fmt: skip
    index = "CURRENT" if alive else "LOG"
    for moldable in (first, first + 1) if number % 5 == 0 else (first,):
        rows["moldable_job_descriptions"].append({
            "moldable_id": moldable, "moldable_job_id": number, "moldable_walltime": 3600 + number,
            "moldable_index": index})  # fmt: skip
        rows["job_resource_groups"].append({
            "res_group_id": moldable, "res_group_moldable_id": moldable, "res_group_property": "type = 'default'",
            "res_group_index": index})  # fmt: skip
        for order, (name, value) in enumerate((("host", 1), ("core", 1 + number % 4))):
            rows["job_resource_descriptions"].append({
                "res_job_group_id": moldable, "res_job_resource_type": name, "res_job_value": value,
                "res_job_order": order, "res_job_index": index})  # fmt: skip
    if ran:
        for place in range(1 + number % 4):
            rows["assigned_resources"].append({
                "moldable_job_id": first, "resource_id": 1 + (4 * number + place) % 32,
                "assigned_resource_index": "LOG"})  # fmt: skip
    if number % 11 == 0:
        rows["job_types"].append({"job_type_id": number, "job_id": number, "type": "besteffort", "types_index": index})
        rows["job_dependencies"].append(
            {"job_id": number, "job_id_required": number - 1, "job_dependency_index": index}
        )
    for place, name in enumerate(("Waiting", "Running", state) if ran else ("Waiting", state)):
        rows["job_state_logs"].append({
            "job_state_log_id": 3 * number + place, "job_id": number, "job_state": name,
            "date_start": submitted + place, "date_stop": submitted + place + 1})  # fmt: skip
    if number % 40 == 0:
        rows["frag_jobs"].append({"frag_id_job": number, "frag_date": stop, "frag_state": "FRAGGED"})
        rows["walltime_change"].append({
            "job_id": number, "pending": 0, "force": "NO", "delay_next_jobs": "NO", "granted": 60,
            "granted_with_force": 0, "granted_with_delay_next_jobs": 0})  # fmt: skip
        kind = "A_PLUGIN_OF_OURS" if number % 80 == 0 else "FRAG_JOB_REQUEST"
        rows["event_logs"].append({"event_id": number, "type": kind, "job_id": number, "date": stop,
                                   "description": "job frag", "to_check": "NO"})  # fmt: skip
        rows["event_log_hostnames"].append({"event_id": number, "hostname": "node1"})
    rows["challenges"].append({"job_id": number, "challenge": "c", "ssh_private_key": "s", "ssh_public_key": "p"})
