"""What `hf-aws gc` may delete: decided in one pure function, looked at from every side; then against moto."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import account_lab
import pytest

from holdfast_aws import tidy
from holdfast_aws.account import CommandError
from holdfast_aws.registers import Book, Generation
from holdfast_aws.tidy import sort_out

T0 = datetime(2026, 1, 1, tzinfo=timezone.utc)


def volume(name: str, generation: int | None, state: str = "available", *, retired: bool = False) -> Any:
    tags = [] if generation is None else [{"Key": "holdfast:gen", "Value": str(generation)}]
    if retired:
        tags.append({"Key": "holdfast:retired-by-gen", "Value": "9"})
    return {"VolumeId": name, "State": state, "Tags": tags}


def snapshot(name: str, generation: int, minute: int, state: str = "completed") -> Any:
    tags = [{"Key": "holdfast:gen", "Value": str(generation)}]
    return {"SnapshotId": name, "State": state, "StartTime": T0 + timedelta(minutes=minute), "Tags": tags}


MADE = {f"{kind}-{number}": number for kind in ("vol", "snap") for number in range(10)}


def book(*generations: Generation) -> Book:
    return Book({g.number: g for g in generations}, True, made=MADE)


MOVED = book(
    Generation(1, "i-1", "vol-1", "a"),
    Generation(2, "i-2", cancelled_by="i-1"),
    Generation(3, "i-3", "vol-3", "b"),
)


def test_after_a_move_the_source_goes() -> None:
    found = sort_out(
        MOVED, True, [volume("vol-1", 1, retired=True), volume("vol-3", 3)], [snapshot("snap-3", 3, 0)]
    )
    assert found.delete == ["vol-1"]
    assert set(found.keep) == {"vol-3", "snap-3"}


def test_also_when_its_tag_was_never_written() -> None:
    assert sort_out(MOVED, True, [volume("vol-1", 1), volume("vol-3", 3)], []).delete == ["vol-1"]


def test_copy_of_a_cancelled_move_goes() -> None:
    assert sort_out(MOVED, True, [volume("vol-2", 2), volume("vol-3", 3)], []).delete == ["vol-2"]


def test_nothing_goes_before_the_copy_has_proved_itself() -> None:
    things = (
        [volume("vol-1", 1, retired=True), volume("vol-3", 3)],
        [snapshot("snap-1", 1, 0), snapshot("snap-3", 3, 1)],
    )
    assert sort_out(MOVED, False, *things).delete == []


def test_nothing_goes_without_a_committed_volume() -> None:
    assert (
        sort_out(book(Generation(1, "i-1")), True, [volume("vol-1", 1)], [snapshot("snap-1", 1, 0)]).delete
        == []
    )


def test_an_open_move_is_left_alone() -> None:
    moving = book(Generation(1, "i-1", "vol-1", "a"), Generation(2, "i-2"))
    things = [volume("vol-1", 1), volume("vol-2", 2)], [snapshot("snap-2", 2, 0), snapshot("snap-9", 1, 5)]
    assert sort_out(moving, True, *things).delete == []


def test_what_is_in_use_stays() -> None:
    assert sort_out(MOVED, True, [volume("vol-1", 1, "in-use", retired=True)], []).delete == []


def test_what_the_kit_did_not_make_stays() -> None:
    assert sort_out(MOVED, True, [volume("vol-x", None)], []).delete == []


@pytest.mark.parametrize(
    "others", [["aws:backup:source-resource"], ["aws:dlm:lifecycle-policy-id", "aws:dlm:managed"]]
)
def test_backups_of_other_services_stay_although_they_have_our_tags(others: list[str]) -> None:
    """Even one that the registers name."""
    things = [volume("vol-1", 1, retired=True)], [snapshot("snap-1", 1, 0), snapshot("snap-2", 3, 9)]
    for thing in (things[0][0], things[1][0]):
        thing["Tags"] += [{"Key": key, "Value": "x"} for key in others]
    found = sort_out(MOVED, True, *things)
    assert found.delete == []
    assert "another service of AWS" in found.keep["snap-1"]


def test_what_the_registers_do_not_name_stays() -> None:
    """A person's snapshot by `--copy-tags`, or of another version of the kit."""
    things = [volume("vol-1", 1, retired=True)], [snapshot("snap-1", 1, 0), snapshot("snap-2", 3, 9)]
    known = Book(MOVED.generations, True, made={"vol-3": 3})
    found = sort_out(known, True, *things)
    assert found.delete == []
    assert set(found.keep) == {"vol-1", "snap-1", "snap-2"}
    # Also what a machine made that was lost before it could write it down.
    assert found.keep["vol-1"].endswith("aws ec2 delete-volume --volume-id vol-1")
    assert found.keep["snap-1"].endswith("aws ec2 delete-snapshot --snapshot-id snap-1")
    listed = Book(MOVED.generations, True, made={"vol-1": 1, "vol-3": 3}, leads=("snap-1", "snap-2"))
    assert sort_out(listed, True, *things).delete == ["snap-1", "vol-1"]


def test_a_strangers_snapshot_is_not_the_newest() -> None:
    newer = snapshot("snap-of-a-person", 3, 60)
    assert sort_out(MOVED, True, [], [snapshot("snap-1", 3, 0), newer]).delete == []


def test_the_newest_snapshot_stays() -> None:
    snapshots = [snapshot("snap-1", 3, 0), snapshot("snap-2", 3, 60), snapshot("snap-3", 3, 120, "pending")]
    assert sort_out(MOVED, True, [], snapshots).delete == ["snap-1"]


@pytest.mark.parametrize("seed", range(300))
def test_never_deletes_the_run(seed: int) -> None:
    """Whatever registers, AWS and tags show: the committed volume, open moves and the newest snapshot survive."""
    chance = random.Random(seed)
    generations = []
    for number in range(1, chance.randint(1, 6)):
        fate = chance.choice(["commit", "cancel", "open"])
        generations.append(
            Generation(number, f"i-{number}", f"vol-{number}", "a")
            if fate == "commit"
            else Generation(number, f"i-{number}", cancelled_by="i-0" if fate == "cancel" else None)
        )
    known = book(*generations)
    states = ["available", "in-use", "creating", "error"]
    volumes = [
        volume(f"vol-{n}", chance.choice([n, n, None]), chance.choice(states), retired=chance.random() < 0.3)
        for n in range(1, 8)
    ]
    snapshots = [
        snapshot(f"snap-{n}", n, chance.randint(0, 9), chance.choice(["completed", "pending"]))
        for n in range(1, 8)
    ]
    deleted = set(sort_out(known, chance.random() < 0.8, volumes, snapshots).delete)
    current = known.current
    assert not deleted & {v["VolumeId"] for v in volumes if v["State"] != "available"}
    if current is None:
        assert deleted == set()
        return
    open_ones = {
        n for n in range(current.number + 1, 8) if n not in known.generations or known.generations[n].open
    }
    assert not deleted & {str(current.volume), *(f"vol-{n}" for n in open_ones)}
    assert not deleted & {f"snap-{n}" for n in open_ones}
    complete = [s for s in snapshots if s["State"] == "completed"]
    if complete:
        newest = max(complete, key=lambda s: (s["StartTime"], s["SnapshotId"]))
        assert newest["SnapshotId"] not in deleted


def moved_run(lab: account_lab.Lab, *, proved: bool) -> tuple[str, str]:
    import test_commands as commands

    old, new = commands.make_volume(lab, 1), commands.make_volume(lab, 2)
    lab.client("ec2").create_tags(Resources=[old], Tags=[{"Key": "holdfast:retired-by-gen", "Value": "2"}])
    for name, value in {
        "gen/1/claim": "i-1",
        "gen/1/outcome": f"commit:{old}:us-east-1a",
        "gen/2/claim": "i-2",
        "gen/2/outcome": f"commit:{new}:us-east-1b",
        "formatted": old,
        **({"gen/2/proved": new} if proved else {}),
    }.items():
        commands.register(lab, name, value)
    return old, new


def test_dry_run_is_the_default() -> None:
    with account_lab.lab() as lab:
        old, new = moved_run(lab, proved=True)
        lab.calls.clear()
        answer = tidy.gc(lab.another(), "r1")
        assert answer.data["delete"] == [old]
        assert lab.calls == []
        tidy.gc(lab.another(), "r1", delete=True)
        assert lab.calls == ["DeleteVolume"]
        assert [v["VolumeId"] for v in lab.another().volumes("r1")] == [new]


def test_waits_for_the_proof() -> None:
    with account_lab.lab() as lab:
        moved_run(lab, proved=False)
        lab.calls.clear()
        tidy.gc(lab.another(), "r1", delete=True)
        assert lab.calls == []


def test_looks_again_before_each_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    with account_lab.lab() as lab:
        old, _ = moved_run(lab, proved=True)
        lab.calls.clear()
        looks = iter([tidy.Sorted([old]), tidy.Sorted([])])
        monkeypatch.setattr(tidy, "_look", lambda account, run: next(looks))
        tidy.gc(lab.another(), "r1", delete=True)
        assert lab.calls == []


def test_a_refusal_does_not_end_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    import test_commands as commands

    with account_lab.lab() as lab:
        old, new = moved_run(lab, proved=True)
        copy = commands.make_volume(lab, 3)
        for name, value in {"claim": "i-3", "copy": copy, "outcome": "cancel:i-3"}.items():
            commands.register(lab, f"gen/3/{name}", value)
        account = lab.another()
        first = min(old, copy)
        refuse(account, monkeypatch, first)
        answer = tidy.gc(account, "r1", delete=True)
        assert answer.code == 78
        assert {v["VolumeId"] for v in lab.another().volumes("r1")} == {first, new}
        assert any(line.startswith(f"not deleted {first}: DeleteVolume: AWS Backup") for line in answer.lines)


def test_the_registers_stay_while_something_could_not_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    with account_lab.lab() as lab:
        old, new = moved_run(lab, proved=True)
        account = lab.another()
        refuse(account, monkeypatch, old)
        answer = tidy.down(account, "r1", "r1")
        assert answer.code == 78
        assert [v["VolumeId"] for v in lab.another().volumes("r1")] == [old]
        assert lab.another().parameters("/holdfast/r1")
        assert tidy.down(lab.another(), "r1", "r1").code == 0
        assert lab.another().volumes("r1") == []
        assert not lab.another().parameters("/holdfast/r1")
        assert new


def test_down_deletes_no_data_of_others() -> None:
    with account_lab.lab() as lab:
        old, _ = moved_run(lab, proved=True)
        ec2 = lab.client("ec2")
        tags = [{"Key": "holdfast:run", "Value": "r1"}, {"Key": "holdfast:gen", "Value": "1"}]
        theirs = ec2.create_snapshot(
            VolumeId=old, TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags}]
        )["SnapshotId"]
        answer = tidy.down(lab.another(), "r1", "r1")
        assert [s["SnapshotId"] for s in lab.another().snapshots("r1")] == [theirs]
        assert lab.another().volumes("r1") == []
        assert any(line.startswith(f"left alone {theirs}: ") for line in answer.lines)


def refuse(account: account_lab.Account, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = account.change

    def change(what: str, *words: str, **arguments: Any) -> Any:
        if name in arguments.values():
            raise CommandError(78, "DeleteVolume: AWS Backup keeps it")
        return real(what, *words, **arguments)

    monkeypatch.setattr(account, "change", change)
