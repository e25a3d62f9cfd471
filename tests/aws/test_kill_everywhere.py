"""The machine of each scenario is killed before and after each of its calls to AWS, all of them.

Then either only its process died and starts again, or the machine is lost and another boots in each of the
zones. In the end one machine runs with the committed volume and the newest data. lab.check holds after every
call.
"""

from __future__ import annotations

import pytest
from fake_cloud import Times
from lab import A, B, C, Lab
from scenarios import SCENARIOS

from holdfast_aws.world import Limits

# Short waits: the branches are the same, and the sweep has thousands of lives.
TIMES = Times(lost=12, snapshot=8)
LIMITS = Limits(release=25, snapshot=60, create=40, lease=10, settle=3, total=120)


def lab_of() -> Lab:
    return Lab(times=Times(**vars(TIMES)), limits=LIMITS)


def points_of(name: str) -> int:
    lab = lab_of()
    machine = SCENARIOS[name](lab)
    before = machine.points
    machine.boot()
    return machine.points - before


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_before_and_after_each_call(name: str) -> None:
    points = points_of(name)
    assert points >= 6
    for point in range(1, points + 1):
        for then in ("process", A, B, C):
            lab = lab_of()
            machine = SCENARIOS[name](lab)
            machine.kill_at = machine.points + point
            machine.start()
            lab.turns.run()
            assert machine.code is None, f"not killed at {point}"
            machine.kill_at = None
            lab.double.snapshot_fails, lab.double.volume_limit = 0, 1000
            if then == "process":
                machine.boot()
                if machine.writing:
                    machine.train()
            else:
                machine.lose()
                successor = lab.machine(then)
                successor.boot()
                if successor.writing:
                    successor.train()
            lab.settle(B)
