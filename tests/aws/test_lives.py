"""Random lives of a run: interruptions, zones, droughts, two machines at once, slow and failing snapshots,
API errors whose calls had their effect or not, and answers that are seconds old.

HOLDFAST_AWS_LIVES=N lives that many; HOLDFAST_AWS_LIFE=SEED one, and prints its calls.
"""

from __future__ import annotations

import os
import random

import pytest
from fake_cloud import Times
from lab import A, B, C, Lab, Machine

from holdfast_aws.world import Limits

LIVES = int(
    os.environ.get("HOLDFAST_AWS_LIVES", "10000" if os.environ.get("HOLDFAST_AWS_NIGHTLY") else "2500")
)
PARTS = 20
CODES = ("RequestLimitExceeded", "InternalError", "Timeout")


def live(seed: int) -> Lab:
    chance = random.Random(seed)
    times = Times(
        create=chance.uniform(0.5, 8),
        attach=chance.uniform(0.5, 4),
        detach=chance.uniform(0.5, 4),
        lost=chance.uniform(2, 40),
        snapshot=chance.uniform(1, 20),
        visible=chance.choice((0, 0, 2, 6)),
        stale=chance.choice((0, 0, 2, 5)),
    )
    limits = Limits(release=30, snapshot=60, create=40, lease=10, settle=10, missing=20, device=20, total=150)
    lab = Lab(times=times, limits=limits, seed=seed)
    slow = chance.choice((0.05, 0.5, 3))
    errors = chance.choice((0, 0, 0.02, 0.1))
    lab.latency = lambda: chance.uniform(0, slow)
    lab.fault = lambda _: (
        chance.choice(("before:", "after:")) + chance.choice(CODES) if chance.random() < errors else None
    )
    zones = (A, B, C)[: chance.choice((1, 2, 3))]
    at = 0.0
    for _ in range(chance.randint(2, 5)):
        lab.turns.spawn(lambda: one_machine(lab, chance, chance.choice(zones)), at)
        at += chance.choice((0, 1, chance.uniform(0, 120)))
    lab.turns.spawn(lambda: weather(lab, chance), 0)
    lab.turns.run()
    lab.double.snapshot_fails, lab.double.volume_limit = 0, 1000
    times.stale = times.visible = 0
    lab.settle(chance.choice((A, B, C)))
    return lab


def weather(lab: Lab, chance: random.Random) -> None:
    """Snapshots that fail, and times in which no volume can be made."""
    for _ in range(chance.randint(0, 3)):
        lab.turns.sleep(chance.uniform(0, 100))
        lab.double.snapshot_fails = chance.choice((0, 0, 1))
        lab.double.volume_limit = chance.choice((1000, 1000, len(lab.double.ids()[0])))


def one_machine(lab: Lab, chance: random.Random, zone: str) -> None:
    machine = lab.machine(zone)
    for _ in range(chance.choice((1, 1, 2, 3))):
        machine.program = lab.turns.spawn(lambda: service(lab, machine))
        lab.turns.sleep(chance.choice((chance.uniform(0, 10), chance.uniform(0, 60), chance.uniform(0, 150))))
        machine.end_process()  # kill -9, or SIGTERM to the trainer
    if chance.random() < 0.4:
        orderly = lab.turns.spawn(lambda: machine.down() and None)
        lab.turns.sleep(chance.uniform(0, 20))
        lab.turns.kill(orderly)
    machine.lose()


def service(lab: Lab, machine: Machine) -> None:
    """The two units: the volume, then the trainer."""
    while (code := machine.executor().up()) != 0:
        if code == 78 and lab.said[-1].endswith("another would, too"):
            return  # parked: so many of its moves have failed
        assert code == 75, lab.said[-1]
        lab.turns.sleep(5)
    machine.write()
    while True:
        lab.turns.sleep(7)
        machine.train()


@pytest.mark.parametrize("part", range(PARTS))
def test_random_lives(part: int) -> None:
    for seed in range(part, LIVES, PARTS):
        try:
            live(seed)
        except AssertionError as error:
            raise AssertionError(f"life {seed}: {error}") from error


@pytest.mark.skipif("HOLDFAST_AWS_LIFE" not in os.environ, reason="no HOLDFAST_AWS_LIFE=SEED")
def test_one_life() -> None:
    lab = live(int(os.environ["HOLDFAST_AWS_LIFE"]))
    print("\n".join(lab.log))
