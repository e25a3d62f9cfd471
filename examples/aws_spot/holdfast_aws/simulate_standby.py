"""`hf-aws simulate`, of runs with `--home s3`: what a second machine that stands by saves, and what it costs.

One machine after the other, on the lives that `bench_spot_replay` draws and with the assumptions of simulate.py; all
strategies see the same machines. A standby boots when it is wanted and spot has a machine. The holder trains on until
it has booted, commits and hands over, or its own end comes first. Then the standby's trainer starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_aws.account import Answer
from holdfast_aws.simulate import BOOT, Assumptions, BrokenRuleError, Mersenne64, life_minutes

NOTICE = 2.0  # minutes before the end
HEARS = 1.0  # minutes from a launch until the machine hears notices
HAND_OVER = 0.4  # minutes: the last commit
SILENCE = 1.0  # minutes until the run of a machine that is lost without a notice is given to its standby
MOST = 100_000  # machines of one training

STRATEGIES = ("never", "on-notice", "on-rebalance", "always")


@dataclass(frozen=True)
class Life:
    """What chance decides about a machine."""

    minutes: float
    noticed: bool
    recommended: bool
    drought: float  # minutes from its end until spot has a machine again


@dataclass(frozen=True)
class Standby:
    begin: float
    ready: float
    end: float


@dataclass
class Relayed:
    """A training so far, in minutes from its first launch."""

    wall: float = 0.0
    trained: float = 0.0  # that count
    paid: float = 0.0  # by all machines
    twice: float = 0.0  # by standbys
    dry: float = 0.0  # without a machine
    interruptions: int = 0

    @property
    def lost(self) -> float:
        return self.wall - self.dry - self.trained


class Lives:
    """The machines of a training, in the order in which they boot."""

    def __init__(self, seed: int, given: Assumptions) -> None:
        self._random = Mersenne64(seed)
        self._given = given
        self._drawn: list[Life] = []

    def __getitem__(self, number: int) -> Life:
        if number >= MOST:
            raise BrokenRuleError(f"not complete after {MOST} machines: shorten --hours or --drought-hours")
        while len(self._drawn) <= number:
            self._drawn.append(self._draw())
        return self._drawn[number]

    def _draw(self) -> Life:
        given, share = self._given, self._random.share
        minutes = max(1.0, life_minutes(share()))
        noticed = share() >= given.missed
        # Young machines get none.
        recommended = share() < given.recommended and minutes > BOOT + given.startup + given.lead
        dry, length = share() < given.drought, share()
        drought = 10 * math.pow(given.drought_hours * 6, length) if dry else 0.0
        return Life(minutes, noticed, recommended, drought)


def relay(seed: int, given: Assumptions, strategy: str) -> Relayed:
    """One training from its first machine to its last step."""
    lives, done, need = Lives(seed, given), Relayed(), given.work_hours * 60
    startup = float(BOOT + given.startup)
    number, begin, first, spot_from = 0, 0.0, startup, 0.0
    while True:
        life = lives[number]
        end = begin + life.minutes
        leaves = _leaves(life, begin, end, given, strategy)
        if strategy == "always":
            boots = max(first, spot_from)
        else:  # where spot has none after a machine's end, it has none when that is announced
            boots = end if strategy == "never" or life.drought else leaves
        standbys = list(_standbys(lives, number, boots, end))
        hands_over = next(
            (max(leaves, one.ready) for one in standbys if one.end > max(leaves, one.ready)), end
        )
        if hands_over + HAND_OVER <= end:
            over, trained = hands_over + HAND_OVER, hands_over - first
        else:
            over, trained = end, end - first - given.lost * (1 if life.noticed else 4)
        if trained >= need - done.trained:
            _pay(done, begin, first + need - done.trained, standbys)
            done.trained = need
            return done
        done.trained += max(0.0, trained)
        done.interruptions += 1
        _pay(done, begin, over, standbys)
        told = over < end or life.noticed
        came = [one for one in standbys if one.begin < over]
        if came and came[-1].end > over:
            number, begin = number + len(came), came[-1].begin
            ready = max(came[-1].ready, over + (0 if told else SILENCE))
            first, spot_from = ready + given.startup, over + life.drought
        else:
            last = lives[number + len(came)]
            number, begin = number + len(came) + 1, max(over, (came[-1].end if came else end) + last.drought)
            first, spot_from = begin + startup, begin
            done.dry += begin - over


def _leaves(life: Life, begin: float, end: float, given: Assumptions, strategy: str) -> float:
    """From when on the machine hands its run over; its end when it hears nothing before."""
    hears = begin + HEARS
    if strategy == "on-rebalance" and life.recommended:
        return max(hears, end - given.lead)
    return min(end, max(hears, end - NOTICE)) if life.noticed else end


def _standbys(lives: Lives, holder: int, boots: float, end: float) -> Iterator[Standby]:
    """Those that boot one after the other while the holder lives."""
    while boots < end:
        holder += 1
        standby = Standby(boots, boots + BOOT, boots + lives[holder].minutes)
        yield standby
        boots = standby.end + lives[holder].drought


def _pay(done: Relayed, begin: float, over: float, standbys: list[Standby]) -> None:
    twice = sum(max(0.0, min(one.end, over) - one.begin) for one in standbys)
    # Until `wall` this machine was paid for as a standby.
    done.paid += over - max(begin, done.wall) + twice
    done.twice += twice
    done.wall = over


def rows(given: Assumptions, trainings: int, seed: int) -> dict[str, dict[str, float]]:
    """Each strategy over as many trainings; the same seeds for all."""
    table = {}
    for strategy in STRATEGIES:
        done = [relay(seed + number, given, strategy) for number in range(trainings)]
        interruptions = sum(one.interruptions for one in done)
        hours = sorted(one.wall / 60 for one in done)
        table[strategy] = {
            "dollars": sum(one.paid for one in done) / 60 * given.spot_price / trainings,
            "hours": sum(hours) / trainings,
            "hours_p95": hours[(trainings - 1) * 95 // 100],
            "interruptions": interruptions / trainings,
            "lost_minutes": sum(one.lost for one in done) / max(1, interruptions),
            "twice_minutes": sum(one.twice for one in done) / max(1, interruptions),
        }
    return table


def beside(answer: Answer, given: Assumptions, trainings: int, seed: int) -> Answer:
    """The answer of simulate.compare, and a row a strategy below."""
    table = rows(given, trainings, seed)
    return Answer({**answer.data, "standby": table}, [*answer.lines, "", *_lines(table, given)])


def _lines(table: dict[str, dict[str, float]], given: Assumptions) -> list[str]:
    head = f"{'--home s3 --standby':20}{'MONEY':>10}{'HOURS':>9}{'P95':>9}{'LOST':>9}{'MIN EACH':>10}{'TWICE':>9}"
    shown = [
        f"{strategy:20}{row['dollars']:>9.2f}${row['hours']:>8.1f}{row['hours_p95']:>9.1f}{row['interruptions']:>9.1f}"
        f"{row['lost_minutes']:>10.1f}{row['twice_minutes']:>9.1f}"
        for strategy, row in table.items()
    ]
    note = (
        "MIN EACH: minutes that a machine is up and no step counts, an interruption. TWICE: machine-minutes of "
        f"standbys, an interruption. {given.recommended:.0%} of machines are warned, {given.lead:g} min ahead."
    )
    return [head, *shown, note]
