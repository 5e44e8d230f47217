"""Run commands of Oarlock as any account of this machine, one after the other, without starting Python each time.

Reads a request a line from standard input (JSON: uid, command, words, directory, environment, input) and writes a
response a line: exit code, standard output, standard error. Every command runs in a process of its own, forked from
here, over the real socket: the kernel tells the server whose it is.
"""

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from oarlock.cli.commands import load


def main() -> None:
    """Serve requests until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        # Imported once: a forked child has them already.
        load(request["command"])
        print(json.dumps(run(request)), flush=True)


def run(request: dict) -> dict:
    """Run one command and wait for its end."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(request["input"].encode())
        given.seek(0)
        pid = os.fork()
        if pid == 0:
            os._exit(_child(request, given.fileno(), out.fileno(), err.fileno()))
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return {"code": os.waitstatus_to_exitcode(status), "out": texts[0], "err": texts[1]}


def _child(request: dict, given: int, out: int, err: int) -> int:
    for number, file in enumerate((given, out, err)):
        os.dup2(file, number)
    try:
        os.environ.clear()
        os.environ.update(request["environment"])
        os.setgroups([])
        os.setresgid(*[request["gid"]] * 3)
        os.setresuid(*[request["uid"]] * 3)
        os.chdir(Path(request["directory"]))
        sys.argv = [request["command"], *request["words"]]
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the child ends with it
        code = load(request["command"]).main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:  # noqa: BLE001 - whatever it is, the test must see it
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    main()
