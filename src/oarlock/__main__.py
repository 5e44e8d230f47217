"""`python -m oarlock` is the command `oarlock`."""

import sys

from oarlock.cli.oarlock import main

if __name__ == "__main__":
    sys.exit(main())
