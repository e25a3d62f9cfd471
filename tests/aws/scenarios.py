"""What can happen to a run, as small plays. Each has one machine that matters: the sweep kills it everywhere.

A scenario prepares the lab and answers with that machine, ready to start. Machines that act beside it have
been started. Works on either double.
"""

from __future__ import annotations

from collections.abc import Callable

from lab import A, B, C, Lab, Machine

Scenario = Callable[[Lab], Machine]


def trained(lab: Lab, zone: str = A) -> Machine:
    machine = lab.machine(zone)
    assert machine.boot() == 0
    machine.train(7)
    return machine


def lost(lab: Lab) -> None:
    """A run with data in A; nobody holds its volume."""
    trained(lab).lose()
    lab.turns.sleep_alone(lab.double.times.lost + 1)


def first_boot(lab: Lab) -> Machine:
    return lab.machine(A)


def first_boot_beside_another(lab: Lab) -> Machine:
    lab.machine(B).start(after=0.5)
    return lab.machine(A)


def first_boot_after_a_lost_claim(lab: Lab) -> Machine:
    maker = lab.machine(B)
    maker.kill_after = "put_once"
    maker.boot()
    maker.lose()
    return lab.machine(A)


def first_boot_after_a_lost_creation(lab: Lab) -> Machine:
    maker = lab.machine(B)
    maker.kill_after = "create_volume"
    maker.boot()
    maker.lose()
    return lab.machine(A)


def reboot(lab: Lab) -> Machine:
    machine = trained(lab)
    machine.end_process()
    machine.host.mount_of = None
    return machine


def restarted_service(lab: Lab) -> Machine:
    machine = trained(lab)
    machine.end_process()
    return machine


def replacement_in_zone(lab: Lab) -> Machine:
    trained(lab).lose()
    return lab.machine(A)


def move(lab: Lab) -> Machine:
    lost(lab)
    return lab.machine(B)


def move_after_the_loss(lab: Lab) -> Machine:
    trained(lab).lose()
    return lab.machine(B)


def move_back(lab: Lab) -> Machine:
    lost(lab)
    away = lab.machine(B)
    assert away.boot() == 0
    away.train(2)
    away.lose()
    lab.turns.sleep_alone(lab.double.times.lost + 1)
    return lab.machine(A)


def move_with_failing_snapshot(lab: Lab) -> Machine:
    lost(lab)
    lab.double.snapshot_fails = 1
    return lab.machine(B)


def move_without_capacity(lab: Lab) -> Machine:
    lost(lab)
    lab.double.volume_limit = len(lab.double.ids()[0])
    return lab.machine(B)


def move_while_another_boots_in_zone(lab: Lab) -> Machine:
    lost(lab)
    lab.machine(A).start(after=4)
    return lab.machine(B)


def boot_in_zone_of_a_running_move(lab: Lab) -> Machine:
    lost(lab)
    lab.machine(B).start()
    lab.turns.run(lab.turns.now() + 6)
    return lab.machine(A)


def two_movers(lab: Lab) -> Machine:
    lost(lab)
    lab.machine(C).start(after=1)
    return lab.machine(B)


def move_after_a_lost_mover(lab: Lab) -> Machine:
    lost(lab)
    mover = lab.machine(C)
    mover.kill_after = "attach"
    mover.boot()
    mover.lose()
    return lab.machine(B)


def second_try_of_a_killed_mover(lab: Lab) -> Machine:
    """Its process was killed after the copy was attached; the machine lives."""
    lost(lab)
    mover = lab.machine(B)
    mover.kill_after = "attach"
    mover.boot()
    mover.kill_after = None
    return mover


def waits_for_a_live_holder(lab: Lab) -> Machine:
    trained(lab)
    return lab.machine(B)


SCENARIOS: dict[str, Scenario] = {
    play.__name__: play
    for play in (
        first_boot,
        first_boot_beside_another,
        first_boot_after_a_lost_claim,
        first_boot_after_a_lost_creation,
        reboot,
        restarted_service,
        replacement_in_zone,
        move,
        move_after_the_loss,
        move_back,
        move_with_failing_snapshot,
        move_without_capacity,
        move_while_another_boots_in_zone,
        boot_in_zone_of_a_running_move,
        two_movers,
        move_after_a_lost_mover,
        second_try_of_a_killed_mover,
        waits_for_a_live_holder,
    )
}
