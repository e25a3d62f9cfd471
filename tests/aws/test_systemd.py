"""What a real systemd makes of the units: no end of a trainer leaves the machine idle and paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import plans
import pytest
from systemd_box import Box, why_not

from holdfast_aws.plan import LaunchPlan

TRAINER = "holdfast.service"
FINISH, PARK = "hf finish --exit-code 0", "hf park"
Boxes = Callable[..., Box]


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Boxes]:
    if why_not():
        pytest.skip(why_not())
    made = []

    def box(plan: LaunchPlan = plans.PLAIN) -> Box:
        made.append(Box(tmp_path, plan))
        for unit in (
            TRAINER,
            "holdfast-volume.service",
            "hf-finish.service",
            "hf-sick.service",
        ):
            made[-1].faster(unit, RestartSec="50ms")
        return made[-1]

    yield box
    for each in made:
        each.__exit__()


def trains(box: Box) -> Box:
    box.boots()
    box.until("trains")
    return box


def quiet(box: Box, state: str = "inactive") -> list[str]:
    """What was told when nothing is left to do."""
    box.until_state(TRAINER, state)
    box.settles()
    return box.told()


# The trainer's ends


def test_the_machine_comes_up_in_order(boxes: Boxes) -> None:
    box = trains(boxes())
    assert box.told() == ["hf-setup", "hf volume up", "trains"]


def test_a_complete_run_is_finished(boxes: Boxes) -> None:
    box = trains(boxes())
    box.trainer_ends(0)
    box.until(FINISH)
    assert PARK not in quiet(box)


@pytest.mark.parametrize("code", [64, 70, 74, 78, 126, 127, 130])
def test_what_the_supervisor_gave_up_is_parked_at_once(boxes: Boxes, code: int) -> None:
    box = trains(boxes())
    box.trainer_ends(code)
    box.until(PARK)
    assert quiet(box, "failed").count("trains") == 1


@pytest.mark.parametrize("code", [1, 125, 134, 137, 139, "KILL"])
def test_what_ends_again_and_again_is_parked(boxes: Boxes, code: int | str) -> None:
    box = trains(boxes())
    box.trainer_ends(code, always=True)
    box.until(PARK)
    told = quiet(box, "failed")
    assert (told.count("trains"), told.count(PARK)) == (5, 1)


def test_a_supervisor_that_died_is_started_again(boxes: Boxes) -> None:
    box = trains(boxes())
    box.trainer_ends("KILL")
    box.until("trains", times=2)
    assert PARK not in quiet(box, "active")


def test_a_trainer_whose_own_time_is_over_is_parked(boxes: Boxes) -> None:
    """--max-wall: 75, and nobody has asked for it."""
    box = trains(boxes())
    box.trainer_ends(75)
    box.until(PARK)
    assert quiet(box).count("trains") == 1


def test_a_superseded_trainer_is_parked(boxes: Boxes) -> None:
    box = trains(boxes())
    box.trainer_ends(76)
    box.until(PARK)
    assert quiet(box).count("trains") == 1


def test_a_superseded_trainer_with_a_standby_hands_over(boxes: Boxes) -> None:
    """`hf standby` finds the file. `hf` itself may fail at that moment: the trainer is not started again."""
    box = boxes(plans.ALL["s3"])
    box.write("root/opt/holdfast/hf", "#!/bin/bash\n[[ $1 == home ]]\n", 0o755)
    box.plant("opt/holdfast/hf-ended", '"$runtime/handing-over"', "/box/handing-over")
    trains(box).trainer_ends(76)
    told = quiet(box)
    assert (box.root / "handing-over").exists()
    assert told.count("trains") == 1


def test_a_machine_that_leaves_commits_first_and_is_not_parked(boxes: Boxes) -> None:
    box = trains(boxes())
    box.systemctl("stop", "holdfast-volume.service")
    assert quiet(box)[3:] == ["TERM with 105s", "docker rm -f holdfast-run", "hf volume down"]


def test_a_trainer_that_hf_health_restarts_is_not_parked(boxes: Boxes) -> None:
    box = trains(boxes())
    box.systemctl("restart", TRAINER)
    box.until("trains", times=2)
    assert PARK not in quiet(box, "active")


def test_a_trainer_that_had_to_be_killed_runs_again_when_park_looks(boxes: Boxes) -> None:
    """The stop has failed, so the unit has, and OnFailure= begins beside the restart. `hf park` looks first."""
    box = boxes()
    box.faster(TRAINER, TimeoutStopSec="500ms")
    box.does(PARK, f"systemctl show {TRAINER} -p ActiveState >>/box/told")
    box.plant("opt/holdfast/hf-run", "' TERM", "' USR1; trap : TERM")
    trains(box).systemctl("restart", TRAINER)
    box.until(PARK)
    box.until("trains", times=2)
    box.until_begins("ActiveState=")
    looked = {line for line in box.told() if line.startswith("ActiveState=")}
    assert not {"ActiveState=failed", "ActiveState=inactive"} & looked


@pytest.mark.parametrize(("code", "starts"), [(0, FINISH), (75, PARK), (74, PARK), (78, PARK)])
def test_a_sweep_ends_like_a_run_and_once(boxes: Boxes, code: int, starts: str) -> None:
    box = trains(boxes(plans.ALL["a100-mig"]))
    assert box.told() == ["hf-mig", "hf-setup", "hf volume up", "trains"]
    box.trainer_ends(code)
    box.until(starts)
    told = quiet(box, "failed" if code in (74, 78) else "inactive")
    assert [line for line in told if line in (FINISH, PARK)] == [starts]
    assert told.count("docker rm -f holdfast-run") == 1


# Finish


def test_no_time_out_of_the_trainer_ends_finish(boxes: Boxes) -> None:
    box = boxes()
    box.faster(TRAINER, TimeoutStopSec="5s")  # hf-ended needs some of it
    box.does(FINISH, "sleep 11; echo finished >>/box/told")
    trains(box).trainer_ends(0)
    box.until("finished")


def test_finish_is_tried_until_the_groups_are_at_0(boxes: Boxes) -> None:
    box = boxes()
    box.does(FINISH, f"(($(grep -c '^{FINISH}' /box/told) > 6)) || exit 75")
    trains(box).trainer_ends(0)
    box.until(FINISH, times=7)
    assert PARK not in quiet(box)


@pytest.mark.parametrize("code", [1, 78])
def test_what_is_not_complete_or_cannot_say_so_is_parked(boxes: Boxes, code: int) -> None:
    box = boxes()
    box.does(FINISH, f"exit {code}")
    trains(box).trainer_ends(0)
    box.until(PARK)
    assert quiet(box).count(FINISH) == 1


# Before the trainer


@pytest.mark.parametrize("code", [1, 78, 127])
@pytest.mark.parametrize(
    ("name", "up"), [("plain", "hf volume up"), ("s3", "hf home up"), ("nodes", "hf-shared up")]
)
def test_a_home_that_cannot_be_had_is_parked(boxes: Boxes, name: str, up: str, code: int) -> None:
    """An exception of Python is 1."""
    box = boxes(plans.ALL[name])
    box.does(up, f"exit {code}")
    box.boots()
    box.until(PARK)
    assert box.told().count(up) == 1


def test_a_volume_that_is_not_free_yet_is_waited_for(boxes: Boxes) -> None:
    box = boxes()
    box.does("hf volume up", "(($(grep -c 'volume up' /box/told) > 6)) || exit 75")
    assert PARK not in trains(box).told()


def test_a_machine_whose_setup_fails_is_given_up_until_aws_hears_it(boxes: Boxes) -> None:
    box = boxes()
    box.does("hf-setup ", "exit 1")
    box.does("hf-kit ", "exit 1")
    box.does("hf sick", "(($(grep -c sick /box/told) > 6)) || exit 75")
    box.boots()
    box.until("hf sick", times=7)
    assert "hf volume up" not in box.told()


def test_a_gpu_that_cannot_be_cut_is_given_up(boxes: Boxes) -> None:
    box = boxes(plans.ALL["a100-mig"])
    box.does("hf-mig ", "exit 78")
    box.boots()
    box.until("hf sick")
    box.settles()
    assert not {"hf-setup", "hf volume up", "trains"} & set(box.told())


# Planted bugs


@pytest.mark.parametrize(
    ("path", "old", "new", "ends", "state"),
    [
        ("etc/systemd/system/holdfast.service", "OnFailure=hf-park.service\n", "", 74, "failed"),
        ("etc/systemd/system/holdfast.service", "=75 76\n", "=75 76 74\n", 74, "inactive"),
        (
            "opt/holdfast/hf-ended",
            "|| exec systemctl start --no-block hf-park.service",
            "|| true",
            75,
            "inactive",
        ),
        ("opt/holdfast/hf-ended", "exec systemctl start --no-block hf-finish.service", "true", 0, "inactive"),
    ],
    ids=["a failure starts nothing", "74 is no failure", "75 is an end like any", "0 is enough"],
)
def test_planted_idle_machine(boxes: Boxes, path: str, old: str, new: str, ends: int, state: str) -> None:
    box = boxes()
    box.plant(path, old, new)
    trains(box).trainer_ends(ends)
    told = quiet(box, state)
    assert PARK not in told
    assert FINISH not in told


def test_planted_park_of_a_machine_that_leaves(boxes: Boxes) -> None:
    box = boxes()
    box.plant("opt/holdfast/hf-ended", "[[ -n $job && $job != 0 ]]", "false")
    trains(box).systemctl("restart", TRAINER)
    box.until(PARK)


def test_planted_finish_within_the_trainers_unit(boxes: Boxes) -> None:
    box = boxes()
    box.faster(TRAINER, TimeoutStopSec="500ms")
    box.plant(
        "opt/holdfast/hf-ended",
        "exec systemctl start --no-block hf-finish.service",
        f"exec /opt/holdfast/{FINISH}",
    )
    box.does(FINISH, "sleep 2; echo finished >>/box/told")
    trains(box).trainer_ends(0)
    box.until("trains", times=2)
    assert "finished" not in box.told()
