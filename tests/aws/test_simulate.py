"""The fallback's rules on drawn spot lives, minute by minute."""

from __future__ import annotations

import pytest

from holdfast_aws import simulate, simulate_standby
from holdfast_aws.plan import LaunchPlan
from holdfast_aws.simulate import Assumptions, BrokenRuleError, Mersenne64, compare, life_minutes
from holdfast_aws.simulate_standby import STRATEGIES, Life, Relayed, relay, rows


def test_draws_what_cpp_draws() -> None:
    """The C++ standard names the 10000th value of a default-constructed std::mt19937_64."""
    random = Mersenne64(5489)
    for _ in range(9999):
        random()
    assert random() == 9981545732273789042


def test_lives_have_the_quantiles_of_the_bench() -> None:
    assert [round(life_minutes(share), 6) for share in (0, 0.25, 0.5, 1)] == [0, 10, 39, 690]


@pytest.mark.parametrize("fallback", [None, 5, 20, 60, -1])
def test_rules_hold(fallback: int | None) -> None:
    """`simulate` itself looks after each minute: one writer, and no on-demand machine beside a settled spot one."""
    for seed in range(60):
        outcome = simulate.simulate(seed, Assumptions(work_hours=12, fallback_minutes=fallback, drought=0.5))
        assert outcome.trained >= 12 * 60
        if fallback == -1:
            assert outcome.spot_hours == 0
        if fallback is None:
            assert outcome.on_demand_hours == 0


def test_without_the_second_alarm_a_rule_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    original = simulate._alarms

    def never_back(cloud: simulate.Cloud, given: Assumptions) -> None:
        desired = cloud.on_demand_desired
        original(cloud, given)
        cloud.on_demand_desired = max(desired, cloud.on_demand_desired)

    monkeypatch.setattr(simulate, "_alarms", never_back)
    with pytest.raises(BrokenRuleError, match="spot is back"):
        for seed in range(60):
            simulate.simulate(seed, Assumptions(work_hours=12, fallback_minutes=5, drought=0.5))


def test_fallback_costs_more_than_spot_and_ends_sooner() -> None:
    rows = compare(Assumptions(work_hours=12, drought=0.4), 40, 1, 20).data["modes"]
    assert rows["spot"]["dollars"] < rows["spot with fallback"]["dollars"] < rows["on-demand"]["dollars"]
    assert rows["on-demand"]["hours"] < rows["spot with fallback"]["hours"] < rows["spot"]["hours"]


def test_same_options_same_table() -> None:
    assert (
        compare(Assumptions(work_hours=6), 5, 3, 20).lines
        == compare(Assumptions(work_hours=6), 5, 3, 20).lines
    )


def test_a_pool_without_interruptions_is_worth_little_more() -> None:
    """Why price-capacity-optimized is the default: capacity-optimized looks at no price."""
    answer = compare(Assumptions(work_hours=12), 20, 1, 20)
    spot, without = answer.data["modes"]["spot"], answer.data["modes"]["on-demand"]
    worth = answer.data["worth_of_no_interruption"]
    assert worth == pytest.approx(spot["spot_hours"] / without["on_demand_hours"] - 1)
    assert 0.05 < worth < 0.15
    assert any(f"at most {worth:.0%} dearer" in line for line in answer.lines)
    harder = compare(Assumptions(work_hours=12, lost=6), 20, 1, 20).data["worth_of_no_interruption"]
    assert harder > worth


@pytest.mark.parametrize(("price_spread", "life_spread"), [(1.1, 1), (1.1, 16), (1.5, 4)])
def test_the_default_strategy_costs_least(price_spread: float, life_spread: float) -> None:
    given = Assumptions(work_hours=12, price_spread=price_spread, life_spread=life_spread)
    rows = compare(given, 20, 1, 20).data["strategies"]
    default = LaunchPlan("", ()).strategy
    (other,) = simulate.STRATEGIES.keys() - {default}
    assert rows[default]["dollars"] < rows[other]["dollars"]
    if life_spread > 1:
        assert rows[default]["interruptions"] > rows[other]["interruptions"], (
            "the other has the deepest pools"
        )


def test_strategies_choose_alike_where_prices_are_equal() -> None:
    rows = compare(Assumptions(work_hours=6, price_spread=1), 5, 1, 20).data["strategies"]
    assert rows["price-capacity-optimized"] == rows["capacity-optimized"]


# Standbys

DULL = Assumptions(drought=0, missed=0)


def relayed(
    monkeypatch: pytest.MonkeyPatch, strategy: str, minutes: float, *lives: Life, given: Assumptions = DULL
) -> Relayed:
    """A training of so many minutes of steps, on these machines and then on one that stays."""
    more = [*lives, Life(10_000, False, False, 0)]
    monkeypatch.setattr(simulate_standby, "Lives", lambda *_: more)
    return relay(1, Assumptions(**{**given.__dict__, "work_hours": minutes / 60}), strategy)


HOUR = Life(60, noticed=True, recommended=False, drought=0)


@pytest.mark.parametrize(
    ("strategy", "life", "wall", "twice"),
    [
        # Start-up 5 min, 1.5 min of work lost: 53.5 min of the first machine's count, 10 of the second's.
        ("never", HOUR, 60 + 5 + 10, 0),
        ("on-notice", HOUR, 58 + 5 + 10, 2),
        ("on-notice", Life(60, False, False, 0), 60 + 5 + 10 + 4.5, 0),
        ("on-notice", Life(60, True, False, 30), 60 + 30 + 5 + 10, 0),
        # It boots after 40 min, stands by after 43, and takes over: 38 min of the first machine's count.
        ("on-rebalance", Life(60, True, True, 0), 43.4 + 2 + 25.5, 3.4),
        ("on-rebalance", HOUR, 58 + 5 + 10, 2),
        # Ready long since, it takes over at the notice, which is 2 min before the end.
        ("always", HOUR, 58.4 + 2 + 10.5, 53.4 + 10.5),
        ("always", Life(60, True, False, 30), 58.4 + 2 + 10.5, 53.4),
    ],
)
def test_what_a_standby_saves(
    monkeypatch: pytest.MonkeyPatch, strategy: str, life: Life, wall: float, twice: float
) -> None:
    done = relayed(monkeypatch, strategy, 63.5, life, Life(10_000, False, False, 0))
    assert done.wall == pytest.approx(wall)
    assert done.twice == pytest.approx(twice)
    assert done.interruptions == 1


def test_a_standby_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    done = relayed(monkeypatch, "on-notice", 63.5, HOUR, Life(1, False, False, 0))
    assert done.interruptions == 1, "the second machine never had the run"
    assert done.wall == pytest.approx(59 + 5 + 10)
    assert done.twice == pytest.approx(2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_minute_is_paid_for_once_or_twice(strategy: str) -> None:
    for seed in range(40):
        done = relay(seed, Assumptions(work_hours=12, drought=0.4), strategy)
        assert done.trained == 12 * 60
        assert done.paid == pytest.approx(done.wall - done.dry + done.twice)
        assert strategy != "never" or done.twice == 0


def test_an_earlier_standby_loses_less_and_costs_more() -> None:
    table = list(rows(Assumptions(work_hours=12), 40, 1).values())
    lost = [row["lost_minutes"] for row in table]
    assert lost == sorted(lost, reverse=True)
    twice = [row["twice_minutes"] for row in table]
    assert twice == sorted(twice)
    assert twice[2] < 3
