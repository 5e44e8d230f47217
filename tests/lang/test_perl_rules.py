"""Perl rules of the manual are recognised, with a site's own names and times; nothing else is."""

import re
from pathlib import Path

import pytest

from oarlock.lang import rules
from oarlock.lang.rules import perl

SEEDS = sorted((Path(__file__).parents[3] / "shared" / "seeds").glob("001_*.txt"))

DEFAULT_QUEUE = 'if (!defined($queue_name)) { $queue_name = "night"; }'
RESERVED = """
  # nobody but us
  if (($queue_name eq "vip") and ($user ne "boss")) {
      die("[ADMISSION RULE] Not for you\\n");
  }
"""
CUT = """my $most = OAR::IO::sql_to_duration("4:30:00");
if ($jobType eq "INTERACTIVE") { foreach my $m (@{$ref_resource_list}) {
  if ((defined($m->[1])) and ($most < $m->[1])) { print("too long, now $most\\n"); $m->[1] = $most; } } }"""
USUAL = """my $usual = iolib::sql_to_duration("1:00:00");
foreach my $m (@{$ref_resource_list}) { if (!defined($m->[1])) { print("now $usual\\n"); $m->[1] = $usual; } }"""
LISTED = r"""open(FILE, "/etc/people"); while (($queue_name ne "fast") and ($_ = <FILE>)) {
  if ($_ =~ m/^\s*$user\s*$/m) { print("to fast\n"); $queue_name = "fast"; } } close(FILE);"""


@pytest.mark.manual(119, 120)
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (DEFAULT_QUEUE, ['default = { queue = "night" }']),
        (RESERVED, ["""when = "queue = 'vip' AND user != 'boss'\"""", 'reject = "Not for you"']),
        (CUT, ['clamp_max = { walltime = "4:30:00" }', 'print = "too long, now 16200"']),
        (USUAL, ['default = { walltime = "1:00:00" }', 'print = "now 3600"']),
        (LISTED, ["""when = "user IN FILE '/etc/people' AND queue != 'fast'\"""", 'route = "fast"']),
    ],
)
def test_the_five_shapes_of_the_manual_become_toml(text: str, lines: list[str]):
    toml = perl.translated(text)
    assert toml is not None
    assert set(lines) <= set(toml.splitlines())
    assert len(rules.read(toml, file="row").rules) == 1


@pytest.mark.manual(119)
@pytest.mark.skipif(not SEEDS, reason="../shared/seeds is not there")
def test_the_examples_are_recognised_as_the_manual_prints_them():
    [manual] = [path.read_text() for path in SEEDS]
    texts = re.findall(r"INTO admission_rules \(rule\) VALUES ?\('(.*?)'\);", manual, re.DOTALL)
    assert len(texts) == 5
    assert all(perl.is_perl(text) and perl.translated(text) for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        DEFAULT_QUEUE + ' system("reboot");',
        RESERVED.replace("boss", "$boss"),
        RESERVED.replace("Not for you", "Not for {user}"),
        'die("always");',
        "my @rest = grep { $_ ne 'x' } @$type_list;",
    ],
)
def test_any_other_perl_is_not_guessed_at(text: str):
    assert perl.is_perl(text)
    assert perl.translated(text) is None


def test_toml_is_not_taken_for_perl():
    assert not perl.is_perl('[[rule]]\nname = "a $user of %d my ($x)"\nreject = "die("\n')
    assert not perl.is_perl("nonsense")
