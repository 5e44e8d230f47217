"""Keys that OAR's own files hold and Oarlock does not use: known, warned of with the reason, otherwise ignored."""

from collections.abc import Mapping

_DETACHED = "every job has a supervisor of its own on its node and never depends on a connection"
_NO_PERL = "what that script did is part of the node program"
_CHANNEL = "nodes are reached and checked through the server's own connections"
_API = "the REST API is part of the server and has no settings of this kind"
_ENERGY = "the server itself puts nodes to sleep and wakes them, by the SCHEDULER_NODE_MANAGER_* settings"
_ALL_PLANNED = "every waiting job is planned, whoever has how many (KARMA_MAX_JOBS and PLAN_DEPTH bound a queue)"
_KARMA = "the fair-sharing settings are the KARMA_* ones"
_QUOTAS = "quotas stand in QUOTAS_CONF_FILE; ALL counts resources that are not Dead, and calendars have no such limit"
_ONE_SCHEDULER = "there is one scheduler, inside the server"
_OARSH = "oarsh uses the server's own connections, so that options of ssh mean nothing"
_LOG = "the log is chosen by LOG_LEVEL and LOG_FILE alone"
_DATABASE = "the connection to the database has no such setting"
_PROXY = "there is no proxy for jobs"
_INTERNAL = "it names a part of OAR that Oarlock does not have"

_REASONS: Mapping[str, str] = {
    _DETACHED: "DETACH_JOB_FROM_SERVER MAX_CONCURRENT_JOBS_STARTING_OR_TERMINATING NOTIFY_TCP_SOCKET_ENABLED",
    _NO_PERL: "SUSPEND_RESUME_FILE_MANAGER "
    "MONITOR_FILE_SENSOR CPUSET_PATH GET_CURRENT_CPUSET_CMD JOB_RESOURCE_MANAGER_JOB_UID_TYPE",
    _CHANNEL: "TIMEOUT_SSH BIPBIP_OAREXEC_HASHTABLE_SEND_TIMEOUT SSH_RENDEZ_VOUS OAR_SSH_AUTHORIZED_KEYS_FILE",
    _API: "API_TRUST_IDENT API_HTML_HEADER API_HTML_FORM API_DEFAULT_DATA_STRUCTURE API_DEFAULT_MAX_ITEMS_NUMBER "
    "API_JOBS_URI_DEFAULT_PARAMS API_RESOURCES_URI_DEFAULT_PARAMS API_ABSOLUTE_URIS API_STRESS_FACTOR_SCRIPT "
    "API_RESOURCES_LIST_GENERATION_CMD API_COLMET_EXTRACT_PATH API_COLMET_HDF5_PATH_PREFIX API_SECRET_KEY "
    "API_SECRET_ALGORITHM API_ACCESS_TOKEN_EXPIRE_MINUTES",
    _ENERGY: "ENERGY_SAVING_MODE ENERGY_MAX_CYCLES_UNTIL_REFRESH HULOT_SERVER HULOT_PORT",
    "one run of the command gets the names of all nodes of a window": "ENERGY_SAVING_WINDOW_FORKER_SIZE "
    "ENERGY_SAVING_WINDOW_FORKER_BYPASS WINDOW_FORKER_SIZE",
    _KARMA: "FAIRSHARING_ENABLED",
    _ALL_PLANNED: "SCHEDULER_FAIRSHARING_MAX_JOB_PER_USER",
    _QUOTAS: "QUOTAS_FILE QUOTAS_PERIOD QUOTAS_ALL_NB_RESOURCES_MODE QUOTAS_WINDOW_TIME_LIMIT SCHEDULER_QUOTA_FILE",
    _ONE_SCHEDULER: "META_SCHED_CMD METASCHEDULER_MODE METASCHEDULER_OAR3_WITH_OAR2 EXTRA_METASCHED "
    "EXTRA_METASCHED_CONFIG SCHEDULER_NB_PROCESSES SCHEDULER_MIN_TIME_BETWEEN_2_CALLS SCHEDULER_LOG_DECISIONS "
    "HIERARCHY_LABELS KAMELOT_GET_RESOURCES_HIERARCHY_MODE JOB_PRIORITY PRIORITY_CONF_FILE "
    "CUSTOM_JOB_SORTING CUSTOM_JOB_SORTING_CONFIG_FILE STORABLE_RECURSION_LIMIT",
    _OARSH: "OARSH_OARSTAT_CMD OARSH_OPENSSH_DEFAULT_OPTIONS OPENSSH_OPTSTR OPENSSH_OPTSTR_FILTERED "
    "OARSH_BYPASS_WHOLE_SECURITY",
    _LOG: "LOG_CATEGORIES LOG_FORMAT DEBUG_REMOTE_COMMANDS",
    _DATABASE: "DB_BASE_FILE SQLALCHEMY_ECHO SQLALCHEMY_POOL_SIZE SQLALCHEMY_POOL_TIMEOUT SQLALCHEMY_POOL_RECYCLE "
    "SQLALCHEMY_MAX_OVERFLOW SQLALCHEMY_CONVERT_UNICODE",
    _PROXY: "PROXY PROXY_TRAEFIK_ENTRYPOINT PROXY_TRAEFIK_RULES_FILE OAR_PROXY_BASE_URL",
    _INTERNAL: "APPENDICE_SERVER_PORT BIPBIP_COMMANDER_SERVER BIPBIP_COMMANDER_PORT OAREXEC_DIRECTORY "
    "OAREXEC_PID_FILE_NAME OARSUB_FILE_NAME_PREFIX",
    "a node that the node check suspected comes back when it answers": "DISABLE_SUSPECTED_NODES_REPAIR",
    "changes of scheduler_priority are not logged": "LOG_SCHEDULER_PRIORITY_CHANGES",
    "PLAN_DEPTH says how many waiting jobs are planned": "MAX_JOB_PER_SCHEDULING_ROUND",
    "admission rules are read from files and from the database alike": "ADMISSION_RULES_IN_FILES",
    "what other servers have left is not asked for": "SCHEDULER_TOKEN_SCRIPTS",
    "oarstat takes its form from its options": "OARSTAT_DEFAULT_OUTPUT_FORMAT",
    "admission rules give jobs what they do not ask for": "QUEUE PROJECT SIGNAL",
}

UNUSED: Mapping[str, str] = {key: reason for reason, keys in _REASONS.items() for key in keys.split()}
"""Key → why it has no effect here, as the end of a sentence."""
