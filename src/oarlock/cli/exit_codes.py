"""Which number a command ends with when something is refused: the manual's commands differ, so one table.

Kinds are the server's error classes and the commands' own. A kind that is not listed gives the command's number for
"anything else". The numbers are OAR 2.5's wherever OAR has one for the case.
"""

BAD_COMMAND_LINE = {
    "BadOption": 1, "BadAddress": 1, "NoToken": 1, "NotPrinted": 1, "Interrupted": 130, "NobodyReads": 141,
}  # fmt: skip
NO_SERVER = {"ServerDown": 2, "NoAnswer": 2, "ServerFailed": 2, "InternalError": 2, "Stopping": 2}

EXIT_CODES: dict[str, dict[str, int]] = {
    "oarsub": {
        "NotYet": 1,
        "BadJobKey": 1,
        "JobKeyTaken": 1,
        "BadRequest": 1,
        "BadField": 1,
        "UnknownField": 1,
        "BadCheckpoint": 1,
        "BadSignal": 1,
        "ResubmitRefused": 4,
        "NoCommand": 5,
        "BadArray": 6,
        "BadDate": 7,
        "BadReservation": 7,
        "InteractiveReservation": 7,
        "PropertiesRefused": 8,
        "InteractiveArray": 8,
        "ServerDown": 9,
        "NoAnswer": 9,
        "ServerFailed": 9,
        "InternalError": 9,
        "Stopping": 9,
        "ReservationRefused": 10,
        "ReservationPast": 10,
        "InteractiveParameterFile": 9,
        "InteractiveEnded": 11,
        "BadScript": 12,
        "BadDirective": 12,
        "BadParameterFile": 12,
        "StageInRefused": 12,
        "InteractiveNoop": 17,
        "ConnectNoop": 17,
        "JobNotRunning": 20,
        "NotJobOwner": 20,
        "NodeNotOfJob": 20,
        "SessionRefused": 20,
        "UnknownQueue": 248,
        "BadNotify": 250,
        "RefusedByRule": 254,
        "RuleFailed": 254,
        "BadType": 254,
        "SubmitterRefused": 254,
        "FrontendRefused": 254,
        "Forbidden": 254,
        "SyntaxRefused": 255,
        "BadCount": 255,
        "BadDuration": 255,
        "": 8,
    },
    "oarstat": {"BadJobId": 255, "": 1},
    "oardel": {
        "BadJobId": 4,
        "KillAsked": 6,
        "AlreadyKilled": 6,
        "JobOver": 0,
        "AdminsOnly": 8,
        "JobNotRunning": 9,
        "": 1,
    },
    "oarhold": {"": 1},
    "oarresume": {"": 1},
    "oarnodes": {"": 1},
    "oarwalltime": {"UnknownJob": 2, "WalltimeRefused": 3, "": 1},
    "oarnodesetting": {
        "UnknownResource": 3,
        "UnknownNode": 4,
        "SystemColumn": 8,
        "BadProperty": 10,
        "NothingMatches": 12,
        "": 1,
    },
    "oar_resources_add": {"": 1},
    "oar_resources_init": {"NotConfirmed": 2, "BadScriptFile": 4, "HostsSilent": 5, "": 1},
    "oarprint": {"": 1},
    "oarproperty": {
        "UnknownProperty": 255,
        "BadPropertyName": 255,
        "PropertyExists": 255,
        "SystemColumn": 1,
        "": 1,
    },
    "oarremoveresource": {"ResourceInUse": 2, "UnknownResource": 2, "": 1},
    "oaraccounting": {"": 1},
    "oaradmissionrules": {"": 1},
    "oarnotify": {"": 1},
    "oarmonitor": {"": 1},
    "oarmonitor_graph_gen": {"": 1},
    "oarcp": {"": 1},
    "oarsh": {
        "BadOption": 7,
        "NodeNotOfJob": 6,
        "NoJob": 6,
        "ServerDown": 255,
        "NoAnswer": 255,
        "ServerFailed": 255,
        "InternalError": 255,
        "Stopping": 255,
        "": 255,
    },
}


def exit_codes(command: str) -> dict[str, int]:
    """Return the numbers of a command. Those of Slurm end with 1, whatever was wrong, as Slurm's own do."""
    if command not in EXIT_CODES:
        return {**BAD_COMMAND_LINE, "": 1}
    return {**NO_SERVER, **BAD_COMMAND_LINE, **EXIT_CODES[command]}


def exit_code(command: str, kind: str) -> int:
    """Find the number for a refusal."""
    table = exit_codes(command)
    return table.get(kind, table[""])
