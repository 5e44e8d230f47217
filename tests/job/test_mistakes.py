"""Mistakes like those that a real OAR was given: each is told in a sentence, with a way out, and leaves nothing."""

from oarlock.model import errors, submission_errors
from oarlock.store.engine.tx import Tx
from tests.job.submitter import Submitter, add_cluster

MISTAKES: dict[type[errors.OarlockError], list[list[str]]] = {
    errors.SyntaxRefused: [
        *(["-l", text] for text in (
            "{mem>16/nodes=1", "{mem>16}}/nodes=1", "{mem>16}", "}nodes=1", "{{mem>16}}/nodes=1", "{mem>}/nodes=1",
            "{}/nodes=1", "/nodes=", "/nodes", "nodes=1//core=1", "nodes=1/", "nodes=1+", "+nodes=1", ",", "", "5",
            "=5", "nodes:1", "nodes=1 core=1", "nodes=1,5", "nodes=1,walltime", "nodes=1,walltime=1,walltime=2",
            "nodes=1/nodes=2", "nodes=1/walltime=2",
        )),
        *(["-p", text] for text in (
            "mem=16; drop table jobs", "mem=16) OR (1=1", "mem=16 --", "mem=16 /* */", "mem=(select 1)", "sleep(5)=1",
            "mem=16 UNION SELECT 1", "mem='16", "mem=16'", "mem=", "=16", "mem LIKE", "mem IN ()", "mem IN (1,", "NOT",
            "mem", "mem=16 AND", "(mem=16", "mem==16", "mem=16 mem=64",
        )),
    ],
    submission_errors.BadCount: [
        ["-l", f"nodes={count}"] for count in ("-1", "1.5", "1e1", "two", "3000000000", "1;core", "\u0661")
    ],
    submission_errors.ZeroResources: [["-l", "nodes=0"], ["-l", "nodes=00"], ["-l", "nodes=1/core=0"]],
    submission_errors.BadDuration: [
        ["-l", f"core=1,walltime={time}"]
        for time in ("0", "0:0:0", "1:2:3:4", "1d", "-1", "1:-1", "", "9999999999", "1.5", ":30", "1:", "x")
    ],
    submission_errors.UnknownProperty: [["-l", "foo=1"], ["-l", "{foo=1}/nodes=1"], ["-p", "foo=1"], ["-p", "mem=foo"]],
    submission_errors.NotEnoughResources: [
        *(["-l", text] for text in (
            "nodes=5", "nodes=1/core=9", "nodes=4/core=9", "core=33", "cpu=9", "nodes=1/cpu=3", "nodes=4+nodes=1",
            "core=32+core=1", "{mem=64}/nodes=3", "{cputype='epyc'}/nodes=2+{mem=64}/nodes=1", "host=ALL/core=9",
            "{mem=999}/nodes=1",
        )),
        *(["-p", text] for text in ("mem=999", "cputype='arm'", "mem=16 AND mem=64", "1=2")),
        ["-l", "nodes=1", "-l", "nodes=5"],
        ["-t", "deploy", "-l", "nodes=1"],
    ],
    submission_errors.RefusedByRule: [
        *(["-l", f"{name}=1"] for name in ("state", "STATE", "next_state", "type", "besteffort", "cpuset", "drain")),
        *(["-l", text] for text in ("nodes=1/state=1", "core=1+state=1")),
        *(["-t", "deploy", "-l", text] for text in ("core=1", "nodes=1/cpu=1", "resource_id=1")),
        *(["-t", kind] for kind in ("nosuch", "BESTEFFORT", "besteffort=1", "idempotent=yes", "inner=7", "no_quotas")),
        *(["-t", "besteffort", "-r", "2030-01-01 00:00:00"], ["-q", "besteffort", "-r", "2030-01-01 00:00:00"]),
        ["-q", "admin"],
    ],
    submission_errors.BadType: [
        ["-t", kind]
        for kind in (
            "timesharing=foo,bar", "timesharing=user", "timesharing=,*", "timesharing=user,*,*", "timesharing=",
            "inner", "inner=", "inner=-3", "container=1", "placeholder", "allow", "postpone=tomorrow",
            "deadline=2001-01-01", "no_quotas=1", "=", "=x", "besteffort,idempotent",
        )
    ],
    submission_errors.ReservationPast: [["-r", "2001-01-01 00:00:00"]],
    submission_errors.BadReservation: [
        ["-r", date]
        for date in (
            "tomorrow", "2030-01-01", "00:00:00", "2030-13-01 00:00:00", "2030-02-30 00:00:00", "2030-01-01 25:00:00",
            "2030-01-01 00:00:00, 2029-01-01 00:00:00",
        )
    ],
    errors.UnknownQueue: [["-q", queue] for queue in ("nosuch", "default'", ";", "a b", "q" * 200)],
    submission_errors.UnknownDependency: [["-a", "0"], ["-a", "99999"]],
    submission_errors.BadArray: [["--array", "0"], ["--array", "100001"]],
    submission_errors.BadSignal: [["--signal", "0"], ["--signal", "65"]],
    submission_errors.BadNotify: [["--notify", how] for how in ("me", "mail:", "exec:relative", "[FOO]mail:a@b", "")],
    submission_errors.BadName: [["-n", name] for name in ("", "a/b", "a\nb", "x" * 300)],
    submission_errors.BadPath: [["-d", "relative"], ["-O", "a\0b"]],
}  # fmt: skip
TABLES = ("jobs", "moldable_job_descriptions", "job_resource_groups", "job_types", "job_dependencies", "frag_jobs")


def test_each_is_refused_with_a_sentence_and_a_way_out_and_nothing_is_left(tx: Tx):
    add_cluster(tx)
    submitter = Submitter(tx)
    for kind, commands in MISTAKES.items():
        for words in commands:
            refusal = refused(submitter, [*words, "true"])
            assert (words, type(refusal)) == (words, kind)
            sentence, *_ = str(refusal).split("\n")
            assert sentence.endswith(".") or kind is submission_errors.RefusedByRule, (
                words
            )  # rules have OAR's own words
            assert refusal.hint or isinstance(refusal, errors.SyntaxRefused), words
    for table in TABLES:
        assert tx.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == 0


def refused(submitter: Submitter, words: list[str]) -> errors.OarlockError | None:
    try:
        submitter.typed(words)
    except errors.OarlockError as refusal:
        return refusal
    return None


def test_a_walltime_without_a_time_is_told_as_such(tx: Tx):
    refusal = refused(Submitter(tx), ["-l", "nodes=1,walltime", "true"])
    assert str(refusal).startswith("The request ends too early: expected `=` and a time, such as `walltime=1:30:00`.")
