"""The fields of a submission on the wire."""

from collections.abc import Mapping
from typing import Any

import msgspec

from oarlock.lang.limits import closest, short
from oarlock.model.errors import BadField, UnknownField


class SubmissionPayload(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a submission, as every front end sends them. None of them says who sends it.

    `script` is the text of a script whose `#OAR` lines count. `launched_from` is where a relative `directory` begins,
    and the directory of a job that names none, neither here nor in its script; else that is `/`.
    """

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
    directory: str = ""
    launched_from: str = ""
    environment: dict[str, str] = {}
    stdout: str | None = None
    stderr: str | None = None
    array: list[str] | None = None
    resubmit: int | None = None
    use_key: bool = False
    import_key: str | None = None
    initial_request: str = ""


def from_fields(fields: Mapping[str, Any]) -> SubmissionPayload:
    """Convert fields that did not come as JSON: what a Python rule returns, or an example of a rule."""
    names = SubmissionPayload.__struct_fields__
    for name in fields:
        if name not in names:
            raise UnknownField(f"A submission has no field `{short(str(name))}`.", hint=closest(str(name), names))
    try:
        return msgspec.convert(dict(fields), SubmissionPayload)
    except msgspec.ValidationError as problem:
        raise BadField(
            f"The submission cannot be read: {problem}.", hint="`$.name` stands for its field `name`."
        ) from None
