from pathlib import Path

import pytest

from oarlock.measure import options
from oarlock.measure.options import AgentOptions, address, make_options, read_file, seconds
from oarlock.model.errors import ConfigRefused
from oarlock.node.sources import assemble

ALUMET = """
[plugins.oar]
oar_version = "oar3"
poll_interval = "1s"
jobs_only = false
[plugins.csv]
output_path = "x.csv"
"""


def test_the_keys_of_alumets_plugin_are_understood(tmp_path):
    (tmp_path / "agent.toml").write_text(ALUMET)
    asked = make_options(read_file(tmp_path / "agent.toml"))
    assert (asked.layout, asked.period, asked.jobs_only) == ("oar3", 1.0, False)


def test_our_own_table_wins_over_alumets(tmp_path):
    (tmp_path / "agent.toml").write_text(
        '[plugins.oar]\npoll_interval = "1s"\n[agent]\nperiod = 0.5\nenable = "rapl"\n'
    )
    asked = make_options(read_file(tmp_path / "agent.toml"))
    assert (asked.period, asked.sources) == (0.5, (*assemble.USUAL, "rapl"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[agent", "not TOML"),
        ("[agents]", "the table `agents`"),
        ("[plugins.oar]\noar_version = 'oar4'", "oar_version = 'oar4'"),
        ("[plugins.oar]\npoll = 1", "unknown key `poll`"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_a_reason(tmp_path, text, sentence):
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(ConfigRefused, match=sentence):
        read_file(tmp_path / "agent.toml")
    with pytest.raises(ConfigRefused, match="cannot be read"):
        read_file(tmp_path / "absent.toml")


@pytest.mark.parametrize(("text", "period"), [("0.1", 0.1), ("500ms", 0.5), (2, 2.0), ("1m 30s", 90.0), ("1.5 s", 1.5)])
def test_a_period_is_seconds_or_says_its_unit(text, period):
    assert seconds(text) == pytest.approx(period)


@pytest.mark.parametrize("text", ["", "fast", "1 fortnight", "0.05", "-1", "2h", "1s x"])
def test_a_period_that_cannot_be_kept_is_refused(text):
    with pytest.raises(ConfigRefused):
        seconds(text)


def test_where_to_listen():
    assert address("127.0.0.1:9798") == ("127.0.0.1", 9798)
    assert address("[::1]:80") == ("::1", 80)
    assert address(":9798") == ("0.0.0.0", 9798)
    assert address("none") is None
    for wrong in ("9798", "host:", "host:70000", "host:http"):
        with pytest.raises(ConfigRefused, match=r"is not HOST:PORT"):
            address(wrong)


@pytest.mark.parametrize(
    ("given", "sentence", "hint"),
    [
        ({"perod": 1}, "no option `perod`", "Close to it is period."),
        ({"perf_events": "cache_l1"}, "no event `cache_l1`", "Close to it is cache_l1d."),
        ({"enable": ["gpus"]}, "no source `gpus`", f"There are {', '.join(assemble.ALL)}."),
        (
            {"names": "alumnet"},
            "no family of names `alumnet`",
            "There are oarlock, alumet, jobs, node, redfish, slurm.",
        ),
        ({"jobs_only": "yes"}, "`yes` is neither true nor false", ""),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(given, sentence, hint):
    with pytest.raises(ConfigRefused, match=sentence) as refused:
        make_options(given)
    assert refused.value.hint == hint


def test_words_may_stand_one_by_one_or_with_commas():
    asked = make_options({"perf_events": ["instructions", "cpu_cycles,cache_misses"], "disable": "gpu lustre"})
    assert asked.perf_events == ("instructions", "cpu_cycles", "cache_misses")
    assert set(assemble.USUAL) - set(asked.sources) == {"gpu", "lustre"}


def test_what_is_not_given_stays_as_it_was():
    base = make_options({"period": "2s", "tls_key": "/k"})
    assert make_options({"layout": "slurm"}, base) == AgentOptions(period=2.0, tls_key=Path("/k"), layout="slurm")
    assert options.make_options({}) == AgentOptions()
