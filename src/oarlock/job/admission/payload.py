"""The fields of a submission on the wire, and how large each may be."""

import msgspec

COMMAND_BYTES = 64 * 1024
SCRIPT_BYTES = 1024 * 1024
ENVIRONMENT_BYTES = 128 * 1024
ARRAY_MEMBERS = 100_000
ARRAY_BYTES = 16 * 1024 * 1024
PARAMETER_BYTES = 4096
KEY_BYTES = 16 * 1024
MOST_TYPES = 64
MOST_DEPENDENCIES = 1000
LATEST = 2**40  # an epoch second far beyond any calendar, and far inside what a column holds


class SubmissionPayload(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a submission, as every front end sends them. None of them says who sends it."""

    resources: list[str] = []
    properties: str | None = None
    queue: str | None = None
    interactive: bool = False
    command: str | None = None
    script: str | None = None
    name: str | None = None
    project: str | None = None
    types: list[str] = []
    after: list[int] = []
    reservation: str | int | None = None
    hold: bool = False
    checkpoint: int | None = None
    signal: int | None = None
    notify: str | None = None
    directory: str = "/"
    environment: dict[str, str] = {}
    stdout: str | None = None
    stderr: str | None = None
    array: list[str] | None = None
    resubmit: int | None = None
    use_key: bool = False
    import_key: str | None = None
    initial_request: str = ""
