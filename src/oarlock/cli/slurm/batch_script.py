"""A batch script of Slurm as a job of ours: its `#SBATCH` lines, its output files, and the shell text that begins it.

The script travels with the environment of the job, as Slurm's is copied at submission: whoever edits the file later
changes nothing. What begins the job sets the SLURM_* variables from ours, and runs the script from a file of its own.
"""

from __future__ import annotations

import shlex

from oarlock.cli.slurm.options import at_least_one, not_translated
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import CommandOptions, ParsedOptions
    from oarlock.cli.slurm.request import TaskShape

LONGEST_SCRIPT = 64 * 1024
MOST_TASKS = 100_000
COMMAND = 'sh -c "$OARLOCK_SLURM_BEGIN"'
_DIRECTIVE = "#SBATCH"


def directives(options: CommandOptions, text: str, path: str) -> ParsedOptions:
    """Parse the `#SBATCH` lines of a script; they end at its first command."""
    words: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_DIRECTIVE):
            try:
                words += shlex.split(line[len(_DIRECTIVE) :], comments=True)
            except ValueError as error:
                raise RequestRefused(f"Line {number} of {path}: {error}.", kind="BadScript", hint=line) from None
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    parsed = options.parse(words)
    if parsed.words:
        sentence = f"The #SBATCH lines of {path} have the word `{parsed.words[0]}`, which is no option."
        raise RequestRefused(sentence, kind="BadScript", hint="Options begin with - or --.")
    return parsed


def check_script(text: str, path: str) -> None:
    """Refuse what is no script, or too long to travel."""
    if not text.startswith("#!"):
        hint = 'Its first line names an interpreter: #!/bin/sh. A single command: sbatch --wrap "COMMAND".'
        raise RequestRefused(f"{path} does not look like a batch script.", kind="BadScript", hint=hint)
    if text.partition("\n")[0].endswith("\r"):
        hint = f"sed -i 's/\\r$//' {path}"
        raise RequestRefused(f"The lines of {path} end as on Windows (CR LF).", kind="BadScript", hint=hint)
    if len(text.encode()) > LONGEST_SCRIPT:
        hint = f"At most {LONGEST_SCRIPT} bytes travel with a job: put the rest into a file and call it."
        raise RequestRefused(f"{path} has {len(text.encode())} bytes.", kind="BadScript", hint=hint)


def array_limit(text: str) -> int:
    """Return how many tasks of an array may run at the same time; 0 where nothing bounds them."""
    _, percent, limit = text.partition("%")
    return at_least_one(limit, "--array=TASKS%COUNT") if percent else 0


def array_tasks(text: str) -> list[int]:
    """Return the numbers of an array: `0-15`, `1,3,5`, `0-30:10`, and with `%4` behind them only these."""
    tasks: set[int] = set()
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        low, dash, high = span.partition("-")
        numbers = [low, high if dash else low, step or "1"]
        if not all(n.isascii() and n.isdecimal() and len(n) < 8 for n in numbers) or int(numbers[2]) == 0:
            raise RequestRefused(f"--array: `{text}` is not a list of numbers.", kind="BadArray", hint="--array=0-15:2")
        tasks.update(range(int(low), int(numbers[1]) + 1, int(numbers[2])))
        if len(tasks) > MOST_TASKS:
            raise RequestRefused(f"--array={text} has too many tasks.", kind="BadArray", hint=f"At most {MOST_TASKS}.")
    if not tasks:
        raise RequestRefused(f"--array={text} has no task.", kind="BadArray", hint="--array=0-15")
    return sorted(tasks)


class OutputName:
    """The name of an output file: one that the server fills in, or, where that cannot, one of the shell."""

    def __init__(self, pattern: str, option: str, user: str, tasks: list[int]) -> None:
        server = {"j": "%jobid%", "J": "%jobid%", "A": "%arrayid%", "x": "%jobname%", "u": user, "%": "%"}
        shell = {"j": "${OAR_JOB_ID}", "J": "${OAR_JOB_ID}", "A": "${OAR_ARRAY_ID}", "x": "${OAR_JOB_NAME}", "u": user,
                 "N": "$(hostname -s)", "a": "${SLURM_ARRAY_TASK_ID-4294967294}", "%": "%"}  # fmt: skip
        if tasks in ([], list(range(1, len(tasks) + 1))):
            server["a"] = "%arrayindex%" if tasks else "4294967294"  # as Slurm writes it outside of arrays
        pieces = _pieces(pattern, option, shell)
        self.file = "".join(server.get(letter, "") if letter else text for letter, text in pieces)
        self.shell = ""
        if any(letter and (letter not in server or width) for letter, width in pieces):
            self.file = "/dev/null"
            self.shell = "".join(_padded(shell[letter], text) if letter else _plain(text) for letter, text in pieces)


def _pieces(pattern: str, option: str, letters: dict[str, str]) -> list[tuple[str, str]]:
    """Split a pattern into plain texts, and letters with the width of their numbers (`%4a`)."""
    pieces, rest = [], pattern
    while rest:
        text, percent, rest = rest.partition("%")
        if text:
            pieces.append(("", text))
        if percent:
            letter = rest.lstrip("0123456789")[:1]
            width = rest.partition(letter)[0] if letter else rest
            if not letter or letter not in letters or (width and (letter not in "jJAa" or len(width) > 1)):
                raise not_translated(option, pattern, f"Known are {' '.join(f'%{letter}' for letter in letters)}.")
            pieces.append((letter, width))
            rest = rest[len(width) + 1 :]
    return pieces


def _padded(text: str, width: str) -> str:
    """Write a number with at least so many digits, by the shell."""
    return f'$(printf %0{width}d "{text}")' if width else text


def _plain(text: str) -> str:
    """Write a text so that a shell takes it as it is between double quotes."""
    return "".join(f"\\{character}" if character in '"$`\\' else character for character in text)


def begin_text(output: OutputName, error: OutputName | None, *, truncate: bool) -> str:
    """Return the shell text that begins a job; its arguments are those of the script, behind them an array's task."""
    lines = [_BEGIN]
    more = ">" if truncate else ">>"
    if output.shell:
        lines.append(f'exec {more}"{output.shell}"')
    elif truncate:
        lines.append(': >"$OAR_STDOUT"')
    if error is None:
        lines.append("exec 2>&1")
    elif error.shell:
        lines.append(f'exec 2{more}"{error.shell}"')
    elif truncate:
        lines.append('[ "$OAR_STDERR" = "$OAR_STDOUT" ] || : >"$OAR_STDERR"')
    return "\n".join([*lines, _RUN])


# POSIX shell. The lines of a node stand together in the node file. Tasks: see `task_variables`.
_BEGIN = """\
if [ -n "$OARLOCK_SLURM_TASKS" ]; then
  i=$#; while [ "$i" -gt 1 ]; do a=$1; shift; set -- "$@" "$a"; i=$((i - 1)); done
  export SLURM_ARRAY_TASK_ID="$1" SLURM_ARRAY_JOB_ID="$OAR_ARRAY_ID"; shift
  set -f; i=0
  for a in $OARLOCK_SLURM_TASKS; do i=$((i + 1)); case $i in
    1) export SLURM_ARRAY_TASK_COUNT="$a";; 2) export SLURM_ARRAY_TASK_MIN="$a";;
    3) export SLURM_ARRAY_TASK_MAX="$a";; 4) export SLURM_ARRAY_TASK_STEP="$a";;
  esac; done; set +f
fi
nodes= cpus= last= first= k=0 run=0 same= count=0
cpu_run() { [ "$run" -le 1 ] && cpus="$cpus,$same" || cpus="$cpus,$same(x$run)"; }
node_end() {
  [ -n "$first" ] || first=$k
  if [ "$k" = "$same" ]; then run=$((run + 1)); else [ -z "$same" ] || cpu_run; same=$k run=1; fi
}
while read -r a; do
  if [ "$a" = "$last" ]; then k=$((k + 1)); else
    [ -z "$last" ] || node_end
    nodes="$nodes,$a" last=$a k=1 count=$((count + 1))
  fi
done <"$OAR_NODEFILE"
node_end; cpu_run
fold_nodes() {  # n1, n2, n3, m7 are written n[1-3],m7, in their order
  [ "$count" -gt 1 ] || { printf %s "${nodes#,}"; return; }
  printf '%s' "$nodes" | tr , '\\012' | awk '
    function item() { return lo == hi ? lo : lo "-" hi }
    function add(text) { out = out (out == "" ? "" : ",") text }
    function flush() { if (n) add(n > 1 ? p "[" list item() "]" : p lo); n = 0; list = "" }
    $0 == "" { next }
    !match($0, /[0-9]+$/) { flush(); add($0); next }
    { d = substr($0, RSTART); q = substr($0, 1, RSTART - 1)
      same = n && q == p && (length(d) == w || (hi !~ /^0/ && d !~ /^0/)); w = length(d)
      if (same && d + 0 == hi + 1) { hi = d; n++; next }
      if (same) { list = list item() ","; lo = hi = d; n++; next }
      flush(); p = q; lo = hi = d; n = 1 }
    END { flush(); printf "%s", out }'
}
export SLURM_JOB_ID="$OAR_JOB_ID" SLURM_JOBID="$OAR_JOB_ID" SLURM_JOB_NAME="$OAR_JOB_NAME"
export SLURM_JOB_NODELIST="$(fold_nodes)" SLURM_JOB_NUM_NODES="$count" SLURM_NNODES="$count"
export SLURM_NODELIST="$SLURM_JOB_NODELIST"
nodes="${nodes#,}"; export SLURMD_NODENAME="${nodes%%,*}"
export SLURM_JOB_CPUS_PER_NODE="${cpus#,}" SLURM_CPUS_ON_NODE="$first"
export SLURM_JOB_USER="$OAR_USER" SLURM_JOB_UID="$(id -u)" SLURM_JOB_GID="$(id -g)"
case $OAR_PROJECT_NAME in default|'') ;; *) export SLURM_JOB_ACCOUNT="$OAR_PROJECT_NAME";; esac
export SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_GTIDS=0 SLURM_TASK_PID=$$
[ -z "$SLURM_JOB_GPUS" ] || export SLURM_JOB_GPUS="$OAR_JOB_GPUS"
nodes_with() { [ "$2" -le 1 ] && printf '%s' "$1" || printf '%s(x%s)' "$1" "$2"; }
k=$((SLURM_NTASKS / count)) i=$((SLURM_NTASKS % count))
a= ; [ "$i" -eq 0 ] || a="$(nodes_with $((k + 1)) "$i"),"
export SLURM_TASKS_PER_NODE="$a$(nodes_with "$k" $((count - i)))"
[ -z "$OARLOCK_SLURM_COUNTED" ] || unset SLURM_NTASKS SLURM_NPROCS OARLOCK_SLURM_COUNTED
a=$(command -v oarsh) && [ -d "${a%/*}/slurm" ] && PATH="${a%/*}/slurm:$PATH"
unset nodes cpus last first k run same count i
unset -f fold_nodes nodes_with"""

_RUN = """\
a=$(mktemp "${TMPDIR:-/tmp}/slurm_script.XXXXXX") || exit 1
printf '%s' "$OARLOCK_SLURM_SCRIPT" >"$a" && chmod 700 "$a" || exit 1
unset OARLOCK_SLURM_SCRIPT OARLOCK_SLURM_BEGIN OARLOCK_SLURM_TASKS
trap : HUP INT QUIT TERM USR1 USR2 ALRM  # they are for the script, which has none of these traps
# The shell's own word about a script that a signal ended is not wanted.
{ sh -c 'exec "$@" 2>&3 3>&-' sh "$a" "$@"; } 3>&2 2>/dev/null
i=$?; rm -f "$a"; rm -rf "${TMPDIR:-/tmp}/slurm_steps.$SLURM_JOB_UID.$SLURM_JOB_ID"; exit $i"""


def array_step(text: str) -> int:
    """Return the step of an array as Slurm shows it: that of a single range, else 1."""
    span = text.partition("%")[0]
    return int(span.partition(":")[2]) if ":" in span and "," not in span else 1


def task_variables(shape: TaskShape, tasks: list[int], step: int) -> dict[str, str]:
    """Return the variables that are known at submission."""
    variables = {"SLURM_NTASKS": str(shape.tasks), "SLURM_NPROCS": str(shape.tasks)}
    if not shape.tasks_are_given:
        variables["OARLOCK_SLURM_COUNTED"] = "1"  # Slurm sets neither, then
    if shape.cores_per_task is not None:
        variables["SLURM_CPUS_PER_TASK"] = str(shape.cores_per_task)
    if shape.tasks_per_node is not None:
        variables["SLURM_NTASKS_PER_NODE"] = str(shape.tasks_per_node)
    if shape.memory is not None:
        variables["SLURM_MEM_PER_CPU" if shape.memory_is_per_core else "SLURM_MEM_PER_NODE"] = str(shape.memory)
    if tasks:
        variables["OARLOCK_SLURM_TASKS"] = f"{len(tasks)} {tasks[0]} {tasks[-1]} {step}"
    if shape.gpus:
        variables["SLURM_JOB_GPUS"] = "wanted"  # their numbers are known in the job
    return variables
