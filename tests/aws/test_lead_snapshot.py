"""The snapshot ahead of time: it helps a move, and is never what a move restores."""

from __future__ import annotations

from lab import RUN, A, B, Lab, Machine

from holdfast_aws import cloud as aws
from holdfast_aws.cloud import CloudError
from holdfast_aws.lead_snapshot import lead_snapshot


def take(lab: Lab, machine: Machine) -> int:
    return lead_snapshot(lab.double, lab.turns, RUN, machine.me.instance, lab.said.append)


def trained() -> tuple[Lab, Machine]:
    lab = Lab()
    machine = lab.machine(A)
    assert machine.boot() == 0
    machine.train(3)
    return lab, machine


def test_takes_one_of_the_committed_volume() -> None:
    lab, machine = trained()
    assert take(lab, machine) == 0
    (snapshot,) = lab.double.all_snapshots.values()
    assert snapshot.tags == {aws.RUN_TAG: RUN, aws.GENERATION_TAG: "1", aws.LEAD_TAG: "1"}


def test_not_twice_in_a_quarter_of_an_hour_and_not_beside_a_pending_one() -> None:
    lab, machine = trained()
    for _ in range(3):
        assert take(lab, machine) == 0
        lab.turns.sleep_alone(200)
    assert len(lab.double.all_snapshots) == 1
    lab.turns.sleep_alone(600)
    take(lab, machine)
    assert len(lab.double.all_snapshots) == 2


def hours(lab: Lab, machine: Machine, count: int) -> None:
    for _ in range(count):
        assert take(lab, machine) == 0
        lab.turns.sleep_alone(3600)


def test_a_day_leaves_two_and_not_one_each_hour() -> None:
    lab, machine = trained()
    hours(lab, machine, 24)
    kept = sorted(lab.double.all_snapshots.values(), key=lambda s: s.started)
    assert len(kept) == 2
    assert lab.book().leads == tuple(snapshot.id for snapshot in kept)
    assert lab.turns.now() - kept[-1].started == 3600


def test_what_the_list_does_not_name_or_another_service_made_stays() -> None:
    lab, machine = trained()
    hours(lab, machine, 1)
    (backup,) = lab.double.all_snapshots.values()
    backup.tags["aws:backup:source-resource"] = "x"
    copied = dict(backup.tags)
    copied.pop("aws:backup:source-resource")
    volume = str(lab.book().current.volume)  # type: ignore[union-attr]
    by_a_person = lab.double.create_snapshot(volume, copied, "copied")
    lab.turns.sleep_alone(3600)
    hours(lab, machine, 5)
    assert {backup.id, by_a_person} < set(lab.double.all_snapshots)
    assert len(lab.double.all_snapshots) == 4


def test_one_that_may_not_be_deleted_stays_in_the_list_and_does_not_keep_the_rest() -> None:
    lab, machine = trained()
    hours(lab, machine, 1)
    (locked,) = lab.double.all_snapshots
    real = lab.double.delete_snapshot

    def refuses(name: str) -> None:
        if name == locked:
            raise CloudError("SnapshotInUse")
        real(name)

    lab.double.delete_snapshot = refuses
    hours(lab, machine, 5)
    assert len(lab.double.all_snapshots) == 3
    assert locked in lab.book().leads
    lab.double.delete_snapshot = real
    hours(lab, machine, 1)
    assert locked not in {*lab.book().leads, *lab.double.all_snapshots}


def test_one_that_somebody_deleted_leaves_the_list() -> None:
    lab, machine = trained()
    hours(lab, machine, 1)
    lab.double.all_snapshots.clear()
    hours(lab, machine, 2)
    assert set(lab.book().leads) == set(lab.double.all_snapshots)


def test_only_the_holder_takes_one() -> None:
    lab, _ = trained()
    other = lab.machine(A)
    assert take(lab, other) == 0
    assert not lab.double.all_snapshots
    empty = Lab()
    assert take(empty, empty.machine(A)) == 0


def test_a_failure_is_told() -> None:
    lab, machine = trained()

    class Broken:
        def __getattr__(self, method: str) -> object:
            if method == "create_snapshot":
                raise CloudError("SnapshotCreationPerVolumeRateExceeded")
            return getattr(lab.double, method)

    assert lead_snapshot(Broken(), lab.turns, RUN, machine.me.instance, lab.said.append) == 75  # type: ignore[arg-type]


def test_a_move_takes_its_own() -> None:
    lab, machine = trained()
    take(lab, machine)
    machine.train(5)
    machine.lose()
    lab.turns.sleep_alone(400)
    other = lab.machine(B)
    assert other.boot() == 0
    assert other.host.content().step == 8
    assert len(lab.double.all_snapshots) == 2
