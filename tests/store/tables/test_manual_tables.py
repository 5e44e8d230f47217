"""Tables, columns, keys and defaults of OAR's manual are those of the database, on both engines."""

import pytest
from sqlalchemy import Integer, inspect
from sqlalchemy.engine import Inspector

from oarlock.store.engine.tx import Tx

TABLES = [
    pytest.param(
        "accounting",
        "*window_start# *window_stop# *accounting_user *accounting_project *queue_name *consumption_type consumption#",
        id="accounting",
        marks=pytest.mark.manual(94),
    ),
    pytest.param(
        "admission_rules",
        "*id# rule",
        id="admission_rules",
        marks=pytest.mark.manual(95),
    ),
    pytest.param(
        "event_logs",
        "*event_id# type job_id# date# description to_check",
        id="event_logs",
        marks=pytest.mark.manual(96),
    ),
    pytest.param(
        "event_log_hostnames",
        "event_id# hostname",
        id="event_log_hostnames",
        marks=pytest.mark.manual(97),
    ),
    pytest.param(
        "files",
        "*idFile# md5sum location method compression size#",
        id="files",
        marks=pytest.mark.manual(98),
    ),
    pytest.param(
        "frag_jobs",
        "*frag_id_job# frag_date# frag_state=LEON",
        id="frag_jobs",
        marks=pytest.mark.manual(99),
    ),
    pytest.param(
        "gantt_jobs_resources",
        "*moldable_job_id# *resource_id#",
        id="gantt_jobs_resources",
        marks=pytest.mark.manual(100),
    ),
    pytest.param(
        "gantt_jobs_predictions",
        "*moldable_job_id# start_time#",
        id="gantt_jobs_predictions",
        marks=pytest.mark.manual(100),
    ),
    pytest.param(
        "gantt_jobs_resources_visu",
        "*moldable_job_id# *resource_id#",
        id="gantt_jobs_resources_visu",
        marks=pytest.mark.manual(101),
    ),
    pytest.param(
        "gantt_jobs_predictions_visu",
        "*moldable_job_id# start_time#",
        id="gantt_jobs_predictions_visu",
        marks=pytest.mark.manual(101),
    ),
    pytest.param(
        "jobs",
        "*job_id# job_name cpuset_name job_type=PASSIVE info_type state reservation=None message job_user "
        "command queue_name properties launching_directory submission_time# start_time# stop_time# "
        "file_id# accounted=NO notify assigned_moldable_job# checkpoint# checkpoint_signal# stdout_file "
        "stderr_file resubmit_job_id# project suspended=NO job_env exit_code# job_group",
        id="jobs",
        marks=pytest.mark.manual(102),
    ),
    pytest.param(
        "job_dependencies",
        "*job_id# *job_id_required#",
        id="job_dependencies",
        marks=pytest.mark.manual(103),
    ),
    pytest.param(
        "moldable_job_descriptions",
        "*moldable_id# moldable_job_id# moldable_walltime#",
        id="moldable_job_descriptions",
        marks=pytest.mark.manual(104),
    ),
    pytest.param(
        "job_resource_groups",
        "*res_group_id# res_group_moldable_id# res_group_property",
        id="job_resource_groups",
        marks=pytest.mark.manual(105),
    ),
    pytest.param(
        "job_resource_descriptions",
        "*res_job_group_id# *res_job_resource_type res_job_value# *res_job_order#",
        id="job_resource_descriptions",
        marks=pytest.mark.manual(106),
    ),
    pytest.param(
        "job_state_logs",
        "*job_state_log_id# job_id# job_state date_start# date_stop#",
        id="job_state_logs",
        marks=pytest.mark.manual(107),
    ),
    pytest.param(
        "job_types",
        "*job_type_id# job_id# type type_index",
        id="job_types",
        marks=pytest.mark.manual(108),
    ),
    pytest.param(
        "resources",
        "*resource_id# type=default network_address state next_state=UnChanged finaud_decision=NO "
        "next_finaud_decision=NO state_num# suspended_jobs scheduler_priority# switch cpu# besteffort "
        "deploy expiry_date# desktop_computing last_job_date# cm_availability# cpuset",
        id="resources",
        marks=pytest.mark.manual(109),
    ),
    pytest.param(
        "resource_logs",
        "resource_log_id# resource_id# attribute value date_start# date_stop# finaud_decision",
        id="resource_logs",
        marks=pytest.mark.manual(110),
    ),
    pytest.param(
        "assigned_resources",
        "*moldable_job_id# *resource_id#",
        id="assigned_resources",
        marks=pytest.mark.manual(111),
    ),
    pytest.param(
        "queues",
        "*queue_name priority# scheduler_policy state=Active",
        id="queues",
        marks=pytest.mark.manual(112),
    ),
    pytest.param(
        "challenges",
        "*job_id# challenge ssh_private_key ssh_public_key",
        id="challenges",
        marks=pytest.mark.manual(113),
    ),
]
"""Tables with their columns: a star is a part of the key, `#` a whole number, `=` a default."""


@pytest.fixture
def inspector(tx: Tx) -> Inspector:
    """What the database says of itself."""
    return inspect(tx)


@pytest.mark.manual(114)
@pytest.mark.parametrize(("table", "listed"), TABLES)
def test_a_table_has_the_columns_and_the_key_of_the_manual(inspector: Inspector, table: str, listed: str):
    declared = {column["name"]: column for column in inspector.get_columns(table)}
    key = {word.strip("*#") for word in listed.split() if word.startswith("*")}
    for word in listed.split():
        name, _, default = word.strip("*#").partition("=")
        assert name in declared, name
        assert default in str(declared[name]["default"]), name
        assert isinstance(declared[name]["type"], Integer) == word.endswith("#"), name
    if key:
        assert set(inspector.get_pk_constraint(table)["constrained_columns"]) == key
