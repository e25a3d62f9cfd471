"""What `hf-aws gc` may delete: decided in one pure function, looked at from every side; then against moto."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import account_lab
import pytest

from holdfast_aws import tidy
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


def book(*generations: Generation) -> Book:
    return Book({g.number: g for g in generations}, True)


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


def test_the_newest_snapshot_stays() -> None:
    snapshots = [snapshot("snap-1", 3, 0), snapshot("snap-2", 3, 60), snapshot("snap-3", 3, 120, "pending")]
    assert sort_out(MOVED, True, [], snapshots).delete == ["snap-1"]


@pytest.mark.parametrize("seed", range(300))
def test_never_deletes_the_run(seed: int) -> None:
    """Whatever the registers and AWS show: the committed volume, open moves and the newest snapshot survive."""
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
    assert not deleted & {str(current.volume), *(f"vol-{n}" for n in open_ones if not _retired(volumes, n))}
    assert not deleted & {f"snap-{n}" for n in open_ones}
    complete = [s for s in snapshots if s["State"] == "completed"]
    if complete:
        newest = max(complete, key=lambda s: (s["StartTime"], s["SnapshotId"]))
        assert newest["SnapshotId"] not in deleted


def _retired(volumes: list[Any], number: int) -> bool:
    return any(v["VolumeId"] == f"vol-{number}" and len(v["Tags"]) > 1 for v in volumes)


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
