"""What `oarsub -I` prints while its job waits."""

import re

from oarlock.cli.output import CommandOutput
from oarlock.cli.sessions.interactive import ShellReport

NOON = 1_800_000_000


def test_a_start_that_slips_by_seconds_is_printed_once(capfd):
    report = ShellReport(7, CommandOutput("oarsub"))
    for start in [NOON, NOON + 1, NOON + 2, NOON + 60, NOON + 30, 0]:
        report.take({"event": "waiting", "start": start, "message": "R=1"})
    lines = re.findall(r"Start prediction: \S+ (\S+) \(R=1\)", capfd.readouterr().out)
    assert [int(line[-5:-3]) * 60 + int(line[-2:]) for line in lines] == [
        (NOON + later) % 3600 for later in (0, 60, 30)
    ]
