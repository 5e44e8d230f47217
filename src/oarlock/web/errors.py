"""Refusals as responses: a status and a body, never a traceback."""

import logging
import secrets
from typing import Any

import msgspec

from oarlock.model.errors import OarlockError, SyntaxRefused

log = logging.getLogger(__name__)


def refusal(error: OarlockError) -> tuple[int, bytes]:
    """Return the status and the body of a refusal: what was refused, why, and what to do."""
    content: dict[str, Any] = {"error": str(error), "hint": error.hint, "kind": type(error).__name__}
    if isinstance(error, SyntaxRefused):
        content |= {"text": error.text, "at": error.at}
    return error.http_status, msgspec.json.encode(content)


def failure(error: BaseException, *, verb: str) -> tuple[int, bytes]:
    """Return the status and the body for an internal error; its number leads to the traceback in the log."""
    number = secrets.token_hex(4)
    log.error("request failed", exc_info=error, extra={"verb": verb, "reference": number})
    content = {
        "error": f"Something went wrong in the server (reference {number}).",
        "hint": "Its log says more under that number.",
        "kind": "InternalError",
    }
    return 500, msgspec.json.encode(content)
