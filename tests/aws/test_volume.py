"""The moves of the run's volume, on the double in memory: the kit page's scenarios 1 to 20."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_cloud import Times
from lab import READS, RUN, A, B, C, Lab

from holdfast_aws import cloud as aws
from holdfast_aws.cloud import CloudError
from holdfast_aws.registers import path_of
from holdfast_aws.stop import StopError


def moved(lab: Lab) -> None:
    """A run that has trained in A and whose machine is lost; its volume is free again."""
    first = lab.machine(A)
    assert first.boot() == 0
    first.train(7)
    first.lose()
    lab.turns.sleep_alone(lab.double.times.lost + 1)
    lab.log.clear()


def test_first_boot_creates_one_volume_with_all_its_figures() -> None:
    lab = Lab()
    machine = lab.machine(A, size_gib=40)
    assert machine.boot() == 0
    (volume,) = lab.double.all_volumes.values()
    assert (volume.spec.iops, volume.spec.throughput, volume.spec.size_gib) == (6000, 500, 40)
    assert volume.spec.tags == {aws.RUN_TAG: RUN, aws.GENERATION_TAG: "1"}
    assert machine.host.made == [f"/dev/{volume.id}"]
    order = [m for m in lab.methods() if m in ("put_once", "create_volume", "attach")]
    assert order == ["put_once", "create_volume", "put_once", "attach", "put_once"]


def test_two_first_boots_in_two_zones_make_one_volume() -> None:
    lab = Lab()
    lab.latency = lambda: lab.random.uniform(0.05, 0.3)
    one, two = lab.machine(A), lab.machine(B)
    one.start()
    two.start()
    lab.turns.run()
    assert sorted([one.code or 0, two.code or 0]) == [0, 75]
    assert len(lab.double.all_volumes) == 1


def test_reboot_finds_the_volume_attached() -> None:
    lab = Lab()
    machine = lab.machine(A)
    assert machine.boot() == 0
    machine.train(3)
    machine.host.mount_of = None
    lab.log.clear()
    assert machine.boot() == 0
    assert not lab.calls("attach")
    assert not lab.calls("create_volume")


def test_replacement_in_the_same_zone_waits_for_the_lost_machine() -> None:
    lab = Lab()
    first = lab.machine(A)
    first.boot()
    first.train(5)
    first.lose()
    before = lab.turns.now()
    assert lab.machine(A).boot() == 0
    assert 360 <= lab.turns.now() - before < 380
    assert len(lab.double.all_volumes) == 1


def test_a_volume_that_is_never_let_go_of_ends_with_75_and_the_remedy() -> None:
    lab = Lab(times=Times(lost=10**6))
    first = lab.machine(A)
    first.boot()
    first.lose()
    assert lab.machine(A).boot() == 75
    assert "detach-volume --force" in lab.said[-1]
    assert not lab.calls("detach")


def test_goes_on_after_four_throttled_calls() -> None:
    lab = Lab()
    moved(lab)
    left = [4]

    def fault(method: str) -> str | None:
        if method == "volume" and left[0]:
            left[0] -= 1
            return "before:RequestLimitExceeded"
        return None

    lab.fault = fault
    assert lab.machine(A).boot() == 0


@pytest.mark.parametrize("method", ["parameters", "volume", "volumes"])
def test_a_call_that_always_fails_ends_with_75_and_makes_nothing(method: str) -> None:
    lab = Lab()
    moved(lab)
    lab.fault = lambda called: "before:RequestLimitExceeded" if called == method else None
    assert lab.machine(A).boot() == 75
    assert not lab.calls("create_volume")
    assert not lab.calls("put_once")


def test_registers_that_cannot_be_read_are_not_empty() -> None:
    lab = Lab()
    lab.fault = lambda called: "before:InternalError" if called == "parameters" else None
    assert lab.machine(A).boot() == 75
    assert not lab.calls("put_once")


def test_empty_describe_never_makes_a_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    moved(lab)
    monkeypatch.setattr(lab.double, "volume", lambda _: None)
    monkeypatch.setattr(lab.double, "volumes", lambda *_: [])
    assert lab.machine(A).boot() == 75
    assert not lab.calls("create_volume")
    assert not lab.calls("put_once")


@pytest.mark.parametrize("left", ["volume", "snapshot"])
def test_empty_registers_beside_a_tagged_thing_are_for_a_person(left: str) -> None:
    lab = Lab()
    first = lab.machine(A)
    first.boot()
    (volume,) = lab.double.all_volumes
    if left == "snapshot":
        lab.double.create_snapshot(volume, {aws.RUN_TAG: RUN}, "")
        lab.double.all_volumes[volume].tags.clear()
    first.lose()
    lab.double.registers.clear()
    lab._registers.clear()
    assert lab.machine(A).boot() == 78
    assert "somebody deleted them" in lab.said[-1]
    assert len(lab.double.all_volumes) == 1


def test_registers_without_volume_and_maker_are_for_a_person() -> None:
    lab = Lab()
    lab.double.put_once(f"{path_of(RUN)}/formatted", "vol-1")
    assert lab.machine(A).boot() == 78


def test_a_register_that_the_kit_never_wrote_is_for_a_person() -> None:
    lab = Lab()
    lab.double.put_once(f"{path_of(RUN)}/gen/1/outcome", "vol-1")
    assert lab.machine(A).boot() == 78
    assert "gen/1/outcome" in lab.said[-1]


def test_a_volume_whose_holder_lives_is_never_copied() -> None:
    lab = Lab()
    holder = lab.machine(A)
    holder.boot()
    other = lab.machine(B)
    assert other.boot() == 75
    assert holder.me.instance in lab.said[-1]
    assert not lab.calls("create_snapshot")
    assert lab.book().top == 1
    lab.check()


def test_move_to_another_zone() -> None:
    lab = Lab()
    moved(lab)
    (source,) = lab.double.all_volumes
    machine = lab.machine(B)
    assert machine.boot() == 0
    assert machine.host.content().step == 7
    reads = ("parameters", "volume", "volumes", "snapshot", "living")
    order = [method for method in lab.methods() if method not in reads]
    made = ["create_snapshot", "put_once", "create_volume", "put_once"]
    assert order == ["put_once", *made, "attach", "put_once", "tag_retired"]
    copy = lab.book().current
    assert copy is not None
    assert (copy.number, copy.zone) == (2, B)
    assert machine.host.verified == [copy.volume]
    assert lab.double.all_volumes[source].tags[aws.RETIRED_TAG] == "2"
    spec = lab.double.all_volumes[copy.volume].spec
    assert (spec.iops, spec.throughput) == (6000, 500)
    assert spec.tags[aws.SOURCE_TAG] == source


def test_a_tag_that_fails_does_not_undo_a_move() -> None:
    lab = Lab()
    moved(lab)
    lab.fault = lambda called: "before:InternalError" if called == "tag_retired" else None
    assert lab.machine(B).boot() == 0


def test_failed_snapshot_cancels_the_move() -> None:
    lab = Lab()
    moved(lab)
    lab.double.snapshot_fails = 1
    machine = lab.machine(B)
    assert machine.boot() == 75
    assert "is untouched" in lab.said[-1]
    assert lab.book().generations[2].cancelled_by == machine.me.instance
    assert lab.settle(B).host.content().step == 7


def test_late_snapshot_cancels_the_move() -> None:
    lab = Lab(times=Times(snapshot=10**6))
    moved(lab)
    assert lab.machine(B).boot() == 75
    assert lab.book().open is None


def test_create_volume_that_fails_cancels_the_move() -> None:
    lab = Lab()
    moved(lab)
    lab.double.volume_limit = 1
    assert lab.machine(B).boot() == 75
    assert "VolumeLimitExceeded" in lab.said[-1]
    assert lab.book().open is None
    lab.double.volume_limit = 100
    assert lab.settle(B).host.content().step == 7


def test_a_move_that_fails_again_and_again_is_for_a_person() -> None:
    """Else snapshots and registers without end, and SSM takes 10,000 of all runs together."""
    lab = Lab()
    moved(lab)
    lab.double.volume_limit = 1
    machine = lab.machine(B)
    assert [machine.boot() for _ in range(5)] == [75, 75, 75, 75, 78]
    assert "VolumeLimitExceeded" in lab.said[-1]
    assert len(lab.double.all_snapshots) == 5
    machine.lose()
    lab.double.volume_limit = 100
    assert lab.machine(B).boot() == 0, "another machine tries anew"


def test_a_device_that_cannot_be_read_is_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an exception, which systemd would try again for ever."""
    lab = Lab()
    machine = lab.machine(A)

    def broken(device: str) -> str:
        raise OSError(5, "Input/output error", device)

    monkeypatch.setattr(machine.host, "examine", broken)
    assert machine.boot() == 78
    assert lab.said[-1].endswith(": Input/output error")


def test_a_move_writes_down_what_it_makes() -> None:
    """`hf-aws gc` deletes nothing else. The copy is bad, so the move is cancelled: no commit names it."""
    lab = Lab()
    moved(lab)
    (source,) = lab.double.all_volumes
    lab.double.content(source).damaged = True
    assert lab.machine(B).boot() == 78
    assert len(lab.double.all_volumes) == 2
    assert set(lab.book().made) == {*lab.double.all_volumes, *lab.double.all_snapshots}


@pytest.mark.parametrize("state", ["error", None])
def test_a_first_volume_that_ec2_does_not_make_is_never_the_runs(state: str | None) -> None:
    """An encryption key that the role may not use: CreateVolume succeeds, and the volume goes."""
    lab = Lab()
    machine = lab.machine(A)
    machine.kill_after = "create_volume"
    assert machine.boot() is None
    machine.kill_after = None
    (made,) = lab.double.all_volumes.values()
    made.broken, made.visible_at = state, made.visible_at if state else float("inf")
    assert machine.boot() == 78
    assert "encryption key" in lab.said[-1]
    assert lab.book().current is None
    machine.lose()
    made.tags.clear()
    assert lab.machine(A).boot() == 0, "the name is not burnt"


def test_tokens_fit_and_belong_to_one_machine() -> None:
    """EC2 takes 64 letters, and a run's name may be as long; a run may begin anew under an old name."""
    lab = Lab()
    moved(lab)
    machine = lab.machine(B)
    assert machine.boot() == 0
    first, copy = lab.double.tokens
    assert copy == f"{machine.me.instance}-g2"
    assert first == f"{lab.machines[0].me.instance}-g1"


def test_first_volume_that_cannot_be_made_is_retried() -> None:
    lab = Lab()
    lab.double.volume_limit = 0
    machine = lab.machine(A)
    assert machine.boot() == 75
    lab.double.volume_limit = 1
    assert machine.boot() == 0


@pytest.mark.parametrize("state", ["error", "deleting"])
def test_broken_copy_cancels_the_move(state: str) -> None:
    lab = Lab(times=Times(create=60))
    moved(lab)
    machine = lab.machine(B)
    machine.start()
    while len(lab.double.all_volumes) < 2:
        lab.turns.sleep_alone(5)
    copy = max(lab.double.all_volumes)
    lab.double.all_volumes[copy].broken = state
    lab.turns.run()
    assert machine.code == 75
    assert lab.book().open is None


def test_copy_that_stays_in_creation_cancels_the_move() -> None:
    lab = Lab()
    moved(lab)
    lab.double.times.create = 10**6
    assert lab.machine(B).boot() == 75
    assert "was not created" in lab.said[-1]
    assert lab.book().open is None


def test_source_that_is_attached_during_the_snapshot_is_not_left_behind() -> None:
    lab = Lab()
    moved(lab)
    mover, local = lab.machine(B), lab.machine(A)
    mover.start()
    local.start(after=20)
    lab.turns.run()
    assert (local.code, mover.code) == (0, 75)
    assert lab.book().generations[2].cancelled_by == local.me.instance
    current = lab.book().current
    assert current is not None
    assert current.number == 1


def test_source_that_a_person_attaches_during_a_move_stays_the_runs_volume() -> None:
    lab = Lab()
    moved(lab)
    (source,) = lab.double.all_volumes
    mover = lab.machine(B)
    person = lab.double.launch(A)
    mover.start()
    lab.turns.sleep_alone(20)
    lab.double.attach(source, person, "/dev/sdf")
    lab.turns.run()
    assert mover.code == 75
    current = lab.book().current
    assert current is not None
    assert current.volume == source


@pytest.mark.parametrize("seed", range(50))
def test_a_race_for_an_outcome_has_one_winner(seed: int) -> None:
    lab = Lab(seed=seed, times=Times(snapshot=10, create=2, attach=1))
    moved(lab)
    lab.latency = lambda: lab.random.uniform(0.05, 2)
    machines = [lab.machine(zone) for zone in (A, B, C)]
    for machine in machines:
        machine.start(after=lab.random.uniform(0, 30))
    lab.turns.run()
    assert sorted(machine.code or 0 for machine in machines) == [0, 75, 75]


def test_move_of_a_lost_machine_is_taken_over() -> None:
    lab = Lab()
    moved(lab)
    mover = lab.machine(B)
    mover.kill_after = "create_snapshot"
    assert mover.boot() is None
    assert lab.book().open is not None
    mover.lose()
    other = lab.machine(C)
    assert other.boot() == 0
    assert lab.book().generations[2].cancelled_by == other.me.instance
    assert lab.book().current.number == 3  # type: ignore[union-attr]


def test_move_of_a_live_machine_is_waited_for() -> None:
    lab = Lab()
    moved(lab)
    mover, other = lab.machine(B), lab.machine(C)
    mover.start()
    other.start(after=10)
    lab.turns.run()
    assert (mover.code, other.code) == (0, 75)
    assert len(lab.double.all_snapshots) == 1


def test_two_claims_at_once_make_one_snapshot() -> None:
    lab = Lab()
    moved(lab)
    lab.latency = lambda: 0.1
    machines = [lab.machine(zone) for zone in (B, C)]
    for machine in machines:
        machine.start()
    lab.turns.run()
    assert len(lab.calls("put_once")) > 2
    assert len(lab.double.all_snapshots) == 1
    assert sorted(machine.code or 0 for machine in machines) == [0, 75]


def test_copy_that_does_not_verify_is_never_committed() -> None:
    lab = Lab()
    moved(lab)
    (source,) = lab.double.all_volumes
    lab.double.content(source).damaged = True
    assert lab.machine(B).boot() == 78
    assert source in lab.said[-1]
    assert "does not verify" in lab.said[-1]
    assert lab.book().current.volume == source  # type: ignore[union-attr]
    assert lab.book().open is None


def test_a_move_that_takes_long_is_taken_up_and_not_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends in the middle of it: systemd's limit, a verify that is slow, a reboot."""
    lab = Lab()
    moved(lab)
    machine, slow = lab.machine(B), [1, 2]
    real = machine.host.verify

    def verify() -> str:
        if slow:
            slow.pop()
            raise StopError(75, "holdfast did not end within 3600 s")
        return real()

    monkeypatch.setattr(machine.host, "verify", verify)
    assert [machine.boot(), machine.boot(), machine.boot()] == [75, 75, 0]
    assert (len(lab.double.all_volumes), len(lab.double.all_snapshots)) == (2, 1)
    current = lab.book().current
    assert current is not None
    assert (current.number, current.zone) == (2, B)


@pytest.mark.parametrize("after", ["snapshot", "create_volume", "attach"])
def test_a_process_that_is_killed_in_a_move_makes_nothing_twice(after: str) -> None:
    lab = Lab()
    moved(lab)
    machine = lab.machine(B)
    machine.kill_after = after
    assert machine.boot() is None
    machine.kill_after = None
    assert machine.boot() == 0
    assert (len(lab.double.all_volumes), len(lab.double.all_snapshots)) == (2, 1)


def test_the_volumes_unit_has_no_limit_of_its_own() -> None:
    """A snapshot of 1 TB alone may take six hours: Limits."""
    unit = (Path(aws.__file__).parents[1] / "units/holdfast-volume.service").read_text()
    assert "TimeoutStartSec=infinity" in unit


def test_volume_that_is_gone_is_for_a_person_and_names_the_snapshot() -> None:
    lab = Lab()
    moved(lab)
    (source,) = lab.double.all_volumes
    snapshot = lab.double.create_snapshot(source, {aws.RUN_TAG: RUN}, "")
    lab.turns.sleep_alone(100)
    lab.double.all_volumes.clear()
    lab._things = lab.double.ids()
    assert lab.machine(A).boot() == 78
    assert snapshot in lab.said[-1]
    assert not lab.calls("create_volume")


def test_volume_that_is_not_visible_yet_is_waited_for() -> None:
    lab = Lab(times=Times(visible=40))
    assert lab.machine(A).boot() == 0
    lab = Lab()
    moved(lab)
    (volume,) = lab.double.all_volumes.values()
    volume.visible_at = lab.turns.now() + 60
    assert lab.machine(A).boot() == 0


def test_broken_volume_is_for_a_person() -> None:
    lab = Lab()
    moved(lab)
    (source,) = lab.double.all_volumes
    lab.double.all_volumes[source].broken = "error"
    assert lab.machine(A).boot() == 78
    assert source in lab.said[-1]


@pytest.mark.parametrize(
    "code", ["AttachmentLimitExceeded", "UnauthorizedOperation", "InvalidVolume.ZoneMismatch"]
)
@pytest.mark.parametrize("zone", [A, B])
def test_attach_that_cannot_work_is_for_a_person(code: str, zone: str) -> None:
    lab = Lab()
    moved(lab)
    lab.fault = lambda called: f"before:{code}" if called == "attach" else None
    assert lab.machine(zone).boot() == 78
    assert len(lab.calls("attach")) == 1
    assert code in lab.said[-1]


@pytest.mark.parametrize("code", ["503", "ExpiredToken", "RequestExpired", "AuthFailure", "NeverHeardOf"])
@pytest.mark.parametrize("zone", [A, B])
def test_attach_that_one_disturbance_keeps_is_tried_again(code: str, zone: str) -> None:
    lab = Lab()
    moved(lab)
    left = [f"before:{code}"]
    lab.fault = lambda called: left.pop() if called == "attach" and left else None
    machine = lab.machine(zone)
    assert machine.boot() in (0, 75)
    assert machine.code == 0 or machine.boot() == 0


def test_device_name_in_use_takes_the_next() -> None:
    lab = Lab()
    machine = lab.machine(A)
    other = lab.double.create_volume(
        aws.VolumeSpec(A, 8, 3000, 125, "other", {"owner": "user"}),
    )
    lab.turns.sleep_alone(10)
    lab.double.attach(other, machine.me.instance, "/dev/sdf")
    assert machine.boot() == 0
    assert [line.split()[-1] for line in lab.calls("attach")] == ["/dev/sdf", "/dev/sdg"]


def test_first_volume_of_a_lost_maker_is_adopted() -> None:
    lab = Lab()
    maker = lab.machine(A)
    maker.kill_after = "create_volume"
    assert maker.boot() is None
    assert len(lab.double.all_volumes) == 1
    assert lab.book().current is None
    maker.lose()
    assert lab.machine(A).boot() == 0
    assert len(lab.double.all_volumes) == 1


def test_first_claim_of_a_lost_maker_is_carried_out() -> None:
    lab = Lab()
    maker = lab.machine(A)
    maker.kill_after = "put_once"
    assert maker.boot() is None
    assert not lab.double.all_volumes
    maker.lose()
    assert lab.machine(B).boot() == 0
    assert lab.book().current.zone == B  # type: ignore[union-attr]


def test_first_volume_is_not_made_twice_by_its_own_maker() -> None:
    lab = Lab()
    maker = lab.machine(A)
    maker.kill_after = "create_volume"
    maker.boot()
    maker.kill_after = None
    assert maker.boot() == 0
    assert len(lab.double.all_volumes) == 1


def test_blank_volume_of_a_lost_maker_can_move() -> None:
    lab = Lab()
    maker = lab.machine(A)
    maker.boot()
    maker.lose()
    (volume,) = lab.double.all_volumes
    lab.double.content(volume).filesystem = None  # it was lost before mkfs
    del lab.double.registers[f"{path_of(RUN)}/formatted"]
    lab._registers.clear()
    machine = lab.machine(B)
    assert machine.boot() == 0
    assert len(machine.host.made) == 1


def test_blank_volume_of_a_run_that_had_a_file_system_is_for_a_person() -> None:
    lab = Lab()
    moved(lab)
    (volume,) = lab.double.all_volumes
    lab.double.content(volume).filesystem = None
    machine = lab.machine(A)
    assert machine.boot() == 78
    assert machine.host.made == []


def test_down_gives_the_volume_back() -> None:
    lab = Lab()
    machine = lab.machine(A)
    machine.boot()
    machine.train(2)
    codes: list[int] = []
    lab.turns.spawn(lambda: codes.append(machine.down()))
    lab.turns.run()
    assert codes == [0]
    assert machine.host.mount_of is None
    (volume,) = lab.double.all_volumes
    assert lab.double.holder_of(volume) is None
    before = lab.turns.now()
    assert lab.machine(A).boot() == 0
    assert lab.turns.now() - before < 30


def test_a_forced_detach_from_a_live_machine_waits_for_its_lease() -> None:
    lab = Lab()
    first = lab.machine(A)
    first.boot()
    first.train(1)
    (volume,) = lab.double.all_volumes
    lab.double.all_volumes[volume].free_at = lab.turns.now()  # by hand; the machine lives
    first.writing = False
    before = lab.turns.now()
    assert lab.machine(A).boot() == 0
    assert lab.turns.now() - before >= 170


def test_a_lease_that_is_renewed_by_another_ends_with_75() -> None:
    lab = Lab()
    first, second = lab.machine(A), lab.machine(A)
    first.boot()
    (volume,) = lab.double.all_volumes
    lab.double.all_volumes[volume].free_at = lab.turns.now()
    first.writing = False
    content = lab.double.content(volume)

    def renew() -> None:
        for _ in range(60):
            content.lease = (first.me.instance, "boot-1", lab.turns.now())
            lab.turns.sleep(20)

    lab.turns.spawn(renew)
    second.start()
    lab.turns.run()
    assert second.code == 75
    assert first.me.instance in lab.said[-1]


def test_riddles_and_strangers_are_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    for device_answer, content, word in [
        (("/dev/nvme1n1", "/dev/nvme2n1"), "ext4", "could be any of"),
        (None, "unknown data", "unknown data"),
        (None, "LVM2_member", "LVM2_member"),
    ]:
        lab = Lab()
        moved(lab)
        machine = lab.machine(A)
        if device_answer:
            monkeypatch.setattr(machine.host, "find_device", lambda *_, answer=device_answer: answer)
        monkeypatch.setattr(machine.host, "examine", lambda _, answer=content: answer)
        assert machine.boot() == 78
        assert word in lab.said[-1]
        assert machine.host.made == []


def test_device_that_never_shows_ends_with_75(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    machine = lab.machine(A)
    monkeypatch.setattr(machine.host, "find_device", lambda *_: ())
    assert machine.boot() == 75


def test_file_system_that_needs_repair_is_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    for zone in (A, B):
        lab = Lab()
        moved(lab)
        machine = lab.machine(zone)
        monkeypatch.setattr(machine.host, "check", lambda *_: False)
        assert machine.boot() == 78
        assert "fsck" in lab.said[-1]
        assert lab.book().open is None


def test_something_else_at_the_mount_point_is_for_a_person() -> None:
    lab = Lab()
    moved(lab)
    machine = lab.machine(A)
    machine.host.mount_of = ("vol-else", True)
    assert machine.boot() == 78


def test_never_waits_for_ever_for_a_claim_that_nobody_ends() -> None:
    lab = Lab()
    idle = lab.machine(A)
    lab.double.put_once(f"{path_of(RUN)}/gen/1/claim", idle.me.instance)
    assert lab.machine(B).boot() == 75


def test_forbidden_calls_name_themselves() -> None:
    lab = Lab()
    lab.fault = lambda called: "before:UnauthorizedOperation" if called == "create_volume" else None
    assert lab.machine(A).boot() == 78
    with pytest.raises(CloudError):
        lab.double.attach("vol-none", "i-none", "/dev/sdf")


def test_status_tells_and_changes_nothing() -> None:
    lab = Lab()
    machine = lab.machine(A)
    assert machine.executor().status() == 0
    assert "no volume yet" in lab.said[-1]
    machine.boot()
    machine.train(1)
    lab.double.put_once(f"{path_of(RUN)}/gen/2/claim", machine.me.instance)
    lab.log.clear()
    assert machine.executor().status() == 0
    assert f"held by {machine.me.instance}" in lab.said[-2]
    assert "generation 2 is open" in lab.said[-1]
    assert set(lab.methods()) <= READS


def test_an_answer_that_nobody_expects_ends_with_75() -> None:
    for method in ("volumes", "volume", "create_snapshot", "detach"):
        lab = Lab()
        moved(lab)
        lab.fault = lambda called, method=method: "before:NoSuchThing" if called == method else None
        machine = lab.machine(B)
        assert machine.boot() == (0 if method == "detach" else 75), method
        if method == "detach":
            machine.writing = False
            codes: list[int] = []
            lab.turns.spawn(lambda machine=machine, codes=codes: codes.append(machine.executor().down()))
            lab.turns.run()
            assert codes == [75]


def test_a_run_in_s3_never_gets_a_volume() -> None:
    lab = Lab()
    lab.double.put_once(f"{path_of(RUN)}/home", "s3://bucket/x/r1")
    assert lab.machine(A).boot() == 78
    assert "--home s3://bucket/x" in lab.said[-1]
    assert not lab.calls("create_volume")
    assert not lab.calls("put_once")
