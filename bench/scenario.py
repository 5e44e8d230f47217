"""How many lives of jobs the scenario bed gets through: the real steps, scheduler and SQL, with virtual nodes."""

from bench.harness import cpu_seconds, figure
from oarlock.simulate import scenario
from oarlock.simulate.scenario import LARGE_CLUSTER, ScenarioOutcome


@figure("scenario.lives", unit="lives/s", target=1000, better="higher")
def lives() -> float:
    """Let thousands of jobs live on 512 cores, nodes failing now and then; all must be well in the end."""
    outcomes: list[ScenarioOutcome] = []
    seconds = cpu_seconds(lambda: outcomes.append(scenario.run(1, LARGE_CLUSTER)), times=3)
    if problems := [outcome.summary() for outcome in outcomes if outcome.problems]:
        raise AssertionError(problems[0])
    return outcomes[0].lives / seconds
