"""The steps from an older database to the present one, oldest first, and the refusal of forms that none leads from."""

from pathlib import Path

from oarlock.model.errors import DatabaseRefused

SCRIPTS = Path(__file__).parent
"""Where Alembic finds the steps."""

REVISIONS = tuple(str(number) for number in range(1, 18))
"""Every step that this version of the code knows; a database at any other one is from a newer version."""

FORMS_OF_RELEASES = {"0.1.0": "14"}
"""The form of the tables of each release to which there is a way back: those of the last minor version."""

_BEFORE_THE_FIRST_RELEASE = frozenset(f"{number:04}" for number in range(1, 11))


def form_of(release: str) -> str:
    """Return the form of a release's tables; raise `DatabaseRefused` if there is no way back to it."""
    try:
        return FORMS_OF_RELEASES[release]
    except KeyError:
        raise DatabaseRefused(
            f"There is no way back to the version {release}.",
            hint=f"There is one to {', '.join(FORMS_OF_RELEASES)}; else put a backup of that version back.",
        ) from None


def refuse_unknown_form(what: str, revision: str, *, instead: str) -> None:
    """Raise `DatabaseRefused` unless a database or a copy, named by `what`, can be brought up to date.

    `instead` is the way out for one that was made before the first release.
    """
    if revision in _BEFORE_THE_FIRST_RELEASE:
        raise DatabaseRefused(
            f"{what} was made before the first release of Oarlock (its form is `{revision}`); no step leads on.",
            hint=instead,
        )
    if revision not in REVISIONS:
        raise DatabaseRefused(
            f"{what} was written by a newer Oarlock (its form is `{revision}`).",
            hint=f"Install that version again; this one knows forms up to `{REVISIONS[-1]}`.",
        )
