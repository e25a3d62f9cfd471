"""`hf-aws simulate`: money and hours of one training on spot, on spot with fallback, and on-demand.

Minute by minute, with the rules of the template's alarms and the volume's hand-over; machine lives are those that
`bench_spot_replay` draws. What is assumed, and by which option: capacity (--drought, --drought-hours), start-up, loss.
Two rules are checked each minute, and break the simulation: never two writers, and no on-demand machine that has
trained on although spot had one for longer than SPOT_IS_BACK_MINUTES and a hand-over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from holdfast_aws.account import Answer
from holdfast_aws.template import HOOK_SECONDS, SPOT_IS_BACK_MINUTES

BOOT = 3  # minutes from a launch to a machine that asks for the volume
RELEASE_LOST = 6  # EC2 lets go of a volume whose machine vanished
MOVE = 6  # snapshot, new volume, verify
METRIC_DELAY = 2  # an alarm sees the groups as they were
LIMIT = 60 * 24 * 365


class Mersenne64:
    """C++'s std::mt19937_64, so that the lives are those of the bench."""

    def __init__(self, seed: int) -> None:
        self._state = [seed & _ALL]
        for index in range(1, 312):
            last = self._state[-1]
            self._state.append((6364136223846793005 * (last ^ (last >> 62)) + index) & _ALL)
        self._at = 312

    def __call__(self) -> int:
        if self._at == 312:
            self._twist()
        value = self._state[self._at]
        self._at += 1
        value ^= (value >> 29) & 0x5555555555555555
        value ^= (value << 17) & 0x71D67FFFEDA60000
        value ^= (value << 37) & 0xFFF7EEE000000000
        return value ^ (value >> 43)

    def share(self) -> float:
        """In (0, 1)."""
        return ((self() >> 11) + 0.5) * 2.0**-53

    def _twist(self) -> None:
        state = self._state
        for index in range(312):
            both = (state[index] & 0xFFFFFFFF80000000) | (state[(index + 1) % 312] & 0x7FFFFFFF)
            state[index] = state[(index + 156) % 312] ^ (both >> 1) ^ (0xB5026F5AA96619E9 if both & 1 else 0)
        self._at = 0


_ALL = (1 << 64) - 1


def life_minutes(share: float) -> float:
    """The quantile: a quarter under 10 min, half under 39 min, the longest 11.5 h, as in public V100 traces."""
    if share < 0.25:
        return 10 * share / 0.25
    if share < 0.5:
        return 10 * math.pow(39.0 / 10, (share - 0.25) / 0.25)
    return 39 * math.pow(690.0 / 39, (share - 0.5) / 0.5)


@dataclass(frozen=True)
class Pool:
    """Of spot machines: one type in one zone."""

    price: float = 1  # times Assumptions.spot_price
    life: float = 1  # times life_minutes()


STRATEGIES: dict[str, Callable[[Sequence[Pool]], Pool]] = {
    # The half of the pools with the most spare capacity, and the cheapest of these.
    "price-capacity-optimized": lambda pools: min(
        sorted(pools, key=lambda one: -one.life)[: (len(pools) + 1) // 2], key=lambda one: one.price
    ),
    # The most spare capacity, at any price.
    "capacity-optimized": lambda pools: max(pools, key=lambda one: one.life),
}


@dataclass(frozen=True)
class Assumptions:
    work_hours: float = 24.0
    strategy: str = ""  # of STRATEGIES; "": there is one pool
    pools: int = 6  # drawn anew for each machine, because prices and capacity change
    price_spread: float = 1.5  # the dearest pool costs so many times what the cheapest costs
    life_spread: float = 4.0  # in the deepest pool a machine lives so many times as long as in the shallowest
    fallback_minutes: int | None = None  # None: spot only; -1: on-demand only
    spot_price: float = 0.40  # dollars an hour
    on_demand_price: float = 1.006
    startup: int = 2  # minutes from the mounted volume to the first step
    lost: float = 1.5  # minutes of training that an interruption takes
    missed: float = 0.05  # share of interruptions without a notice
    drought: float = 0.2  # share of interruptions after which there is no spot machine for a while
    drought_hours: float = 8.0  # the longest; evenly in its logarithm, from 10 min
    zones: int = 3
    recommended: float = 0.6  # share of machines with a rebalance recommendation, as one user counted
    lead: float = 20.0  # minutes before the end that it comes


@dataclass
class Machine:
    kind: str  # spot or on-demand
    zone: int
    boots_at: int
    ends_at: float = math.inf  # a spot machine's life; else when its hook lets it go
    leaving: bool = False
    price: float = 1  # times the assumed one


@dataclass
class Outcome:
    hours: float = 0
    dollars: float = 0
    spot_hours: float = 0
    on_demand_hours: float = 0
    interruptions: int = 0
    moves: int = 0
    trained: float = 0  # minutes that count


@dataclass
class Cloud:
    """The run at one minute."""

    random: Mersenne64
    spot: Machine | None = None
    on_demand: Machine | None = None
    holder: Machine | None = None
    trains_from: float = math.inf  # the holder's first step
    volume_zone: int = -1  # -1: none yet
    free_at: int = 0  # the volume's release
    spot_possible_at: int = 0
    on_demand_desired: int = 0
    in_service: list[int] = field(default_factory=list)  # of spot, a minute each


class BrokenRuleError(Exception):
    """The simulated template did what it must not."""


def simulate(seed: int, given: Assumptions) -> Outcome:
    """One training from its first minute to its last."""
    cloud, outcome = Cloud(Mersenne64(seed)), Outcome()
    need = given.work_hours * 60
    only_on_demand = given.fallback_minutes == -1
    cloud.on_demand_desired = 1 if only_on_demand else 0
    for minute in range(LIMIT):
        if not only_on_demand:
            _spot(cloud, given, outcome, minute)
            _alarms(cloud, given)
        _on_demand(cloud, minute)
        _volume(cloud, given, outcome, minute)
        _check(cloud)
        for machine in (cloud.spot, cloud.on_demand):
            if machine is not None:
                price = given.spot_price if machine.kind == "spot" else given.on_demand_price
                outcome.dollars += price * machine.price / 60
                outcome.spot_hours += (machine.kind == "spot") / 60
                outcome.on_demand_hours += (machine.kind != "spot") / 60
        if cloud.holder is not None and minute >= cloud.trains_from and not cloud.holder.leaving:
            outcome.trained += 1
        if outcome.trained >= need:
            outcome.hours = (minute + 1) / 60
            return outcome
    raise BrokenRuleError(f"seed {seed}: not complete after a year")


def _spot(cloud: Cloud, given: Assumptions, outcome: Outcome, minute: int) -> None:
    machine = cloud.spot
    if machine is not None and minute >= machine.ends_at:
        outcome.interruptions += 1
        noticed = cloud.random.share() >= given.missed
        if cloud.holder is machine:
            # Without a notice the volume stays attached for minutes, and more work is lost.
            lost = given.lost if noticed else given.lost * 4
            if minute > cloud.trains_from:
                outcome.trained = max(0.0, outcome.trained - lost)
            _let_go(cloud, minute + (1 if noticed else RELEASE_LOST))
        cloud.spot = None
        cloud.spot_possible_at = minute + 1 + _drought(cloud, given)
    if cloud.spot is None and minute >= cloud.spot_possible_at:
        pool = _pool(cloud.random, given)
        life = life_minutes(cloud.random.share()) * pool.life
        zone = cloud.random() % given.zones
        cloud.spot = Machine("spot", zone, minute, minute + max(1.0, life), price=pool.price)
    cloud.in_service.append(1 if cloud.spot is not None and minute > cloud.spot.boots_at else 0)


def _pool(random: Mersenne64, given: Assumptions) -> Pool:
    if not given.strategy:
        return Pool()
    pools = [
        Pool(1 + (given.price_spread - 1) * random.share(), math.pow(given.life_spread, random.share() - 0.5))
        for _ in range(given.pools)
    ]
    return STRATEGIES[given.strategy](pools)


def _drought(cloud: Cloud, given: Assumptions) -> int:
    if cloud.random.share() >= given.drought:
        return 0
    return int(10 * math.pow(given.drought_hours * 6, cloud.random.share()))


def _alarms(cloud: Cloud, given: Assumptions) -> None:
    """As in the template. An alarm that stays acts each minute; ExactCapacity makes that harmless."""
    seen = cloud.in_service[: len(cloud.in_service) - METRIC_DELAY]
    wait = given.fallback_minutes
    if wait and len(seen) >= wait and not any(seen[-wait:]):
        cloud.on_demand_desired = 1
    if len(seen) >= SPOT_IS_BACK_MINUTES and all(seen[-SPOT_IS_BACK_MINUTES:]):
        cloud.on_demand_desired = 0


def _on_demand(cloud: Cloud, minute: int) -> None:
    machine = cloud.on_demand
    if machine is None:
        if cloud.on_demand_desired:
            zone = cloud.volume_zone if cloud.volume_zone >= 0 else 0
            cloud.on_demand = Machine("on-demand", zone, minute)
        return
    if not cloud.on_demand_desired and not machine.leaving:
        machine.leaving, machine.ends_at = True, minute + 2  # the hook: commit, unmount, detach
    if machine.leaving and minute >= machine.ends_at:
        if cloud.holder is machine:
            _let_go(cloud, minute + 1)
        cloud.on_demand = None


def _volume(cloud: Cloud, given: Assumptions, outcome: Outcome, minute: int) -> None:
    """A machine that is up takes the volume when nobody holds it; from another zone it moves it."""
    if cloud.holder is not None or minute < cloud.free_at:
        return
    machines = [machine for machine in (cloud.spot, cloud.on_demand) if machine is not None]
    waiting = [one for one in machines if not one.leaving and minute >= one.boots_at + BOOT]
    if not waiting:
        return
    taker = min(waiting, key=lambda m: m.zone != cloud.volume_zone)
    moves = cloud.volume_zone >= 0 and taker.zone != cloud.volume_zone
    outcome.moves += moves
    cloud.holder, cloud.volume_zone = taker, taker.zone
    cloud.trains_from = minute + given.startup + (MOVE if moves else 0)


def _let_go(cloud: Cloud, free_at: int) -> None:
    cloud.holder, cloud.trains_from, cloud.free_at = None, math.inf, free_at


def _check(cloud: Cloud) -> None:
    if cloud.holder is not None and cloud.holder is not cloud.spot and cloud.holder is not cloud.on_demand:
        raise BrokenRuleError("a machine that is gone holds the volume")
    patience = SPOT_IS_BACK_MINUTES + METRIC_DELAY + math.ceil(HOOK_SECONDS / 60)
    back = len(cloud.in_service) >= patience and all(cloud.in_service[-patience:])
    if back and cloud.on_demand is not None:
        raise BrokenRuleError("on-demand is paid for although spot is back")


MODES = {"spot": None, "spot with fallback": 20, "on-demand": -1}


def compare(given: Assumptions, lives: int, seed: int, fallback_minutes: int) -> Answer:
    """Each mode, and spot by each strategy, over as many trainings; the same seeds for all."""
    rows = {}
    for mode, fallback in MODES.items():
        minutes = fallback_minutes if fallback and fallback > 0 else fallback
        rows[mode] = _row(replace(given, fallback_minutes=minutes), lives, seed)
    strategies = {
        name: _row(replace(given, fallback_minutes=None, strategy=name), lives, seed) for name in STRATEGIES
    }
    # What interruptions cost of spot's hours. A pool without any is worth that much more, and no more.
    worth = rows["spot"]["spot_hours"] / rows["on-demand"]["on_demand_hours"] - 1
    lines = [
        f"{lives} trainings of {given.work_hours:g} h of steps each (seed {seed}); spot ${given.spot_price}/h, "
        f"on-demand ${given.on_demand_price}/h, fallback after {fallback_minutes} min",
        f"{'':26}{'MONEY':>10}{'HOURS':>9}{'P95':>9}{'SPOT h':>9}{'OD h':>9}{'LOST':>7}{'MOVES':>7}",
        *(_line(mode, row) for mode, row in rows.items()),
        f"A spot pool that is never interrupted pays off while it is at most {worth:.0%} dearer (--strategy).",
        f"Spot from {given.pools} pools, the dearest up to {given.price_spread:g} times as dear, the deepest up to "
        f"{given.life_spread:g} times as long-lived:",
        *(_line(name, row) for name, row in strategies.items()),
        "LOST: interruptions of a training. Nothing was measured: the same options print the same table.",
    ]
    data = {
        "assumptions": given.__dict__,
        "lives": lives,
        "seed": seed,
        "modes": rows,
        "strategies": strategies,
    }
    return Answer({**data, "worth_of_no_interruption": worth}, lines)


def _row(given: Assumptions, lives: int, seed: int) -> dict[str, float]:
    done = [simulate(seed + number, given) for number in range(lives)]
    hours = sorted(one.hours for one in done)
    return {
        "dollars": sum(one.dollars for one in done) / lives,
        "hours": sum(hours) / lives,
        "hours_p95": hours[(lives - 1) * 95 // 100],
        "spot_hours": sum(one.spot_hours for one in done) / lives,
        "on_demand_hours": sum(one.on_demand_hours for one in done) / lives,
        "interruptions": sum(one.interruptions for one in done) / lives,
        "moves": sum(one.moves for one in done) / lives,
    }


def _line(name: str, row: dict[str, float]) -> str:
    return (
        f"{name:26}{row['dollars']:>9.2f}${row['hours']:>8.1f}{row['hours_p95']:>9.1f}{row['spot_hours']:>9.1f}"
        f"{row['on_demand_hours']:>9.1f}{row['interruptions']:>7.1f}{row['moves']:>7.1f}"
    )
