"""The program that asks PAM: reads service, user and password from its standard input, exits 0 if they fit, else 1.

It authenticates, and asks whether the account may be used now; it opens no session. Exit 2: PAM could not be asked.
"""

import json
import sys


def main() -> int:
    """Ask PAM; return the exit code."""
    question = json.load(sys.stdin)
    try:
        import pamela
    except ImportError:
        print("pamela is missing: pip install 'oarlock[pam]'")  # noqa: T201  (the server reads it)
        return 2
    try:
        pamela.authenticate(question["user"], question["password"], service=question["service"], resetcred=0)
    except pamela.PAMError as refused:
        print(refused)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
