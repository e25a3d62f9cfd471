"""The branches of volume.next_step one by one, as the kit page's §2.3 names them, and that looking twice changes
nothing: it is a pure function."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from holdfast_aws.cloud import Snapshot, Volume
from holdfast_aws.registers import Book, Generation
from holdfast_aws.volume import next_step
from holdfast_aws.world import (
    Action,
    Attach,
    Cancel,
    Check,
    Claim,
    Commit,
    CreateCopy,
    CreateFirst,
    Detach,
    Examine,
    Exit,
    FindDevice,
    Lease,
    Local,
    Machine,
    MakeFilesystem,
    MarkFormatted,
    Mount,
    Mounted,
    Move,
    Poll,
    TakeLease,
    TakeSnapshot,
    Unmount,
    Verify,
    World,
)

ME = Machine("i-me", "us-east-1a", "us-east-1")
HERE, THERE = "us-east-1a", "us-east-1b"


def book(*generations: Generation, formatted: bool = True) -> Book:
    return Book({g.number: g for g in generations}, formatted)


def committed(zone: str, number: int = 1) -> Generation:
    return Generation(number, "i-maker", f"vol-{number}", zone)


def shown(
    zone: str, state: str = "available", holder: str | None = None, attachment: str | None = None
) -> Volume:
    return Volume("vol-1", zone, state, holder, attachment, "/dev/sdf", 100)


def world(zone: str = HERE, **more: Any) -> World:
    usual: dict[str, Any] = {"book": book(committed(zone)), "volume": shown(zone)}
    return World("r1", ME, **{**usual, **more})


def mine(**local: Any) -> World:
    """Attached to me in my zone, and this much is known of it."""
    known = {"of": "vol-1", "candidates": ("/dev/nvme1n1",), "content": "ext4", "checked": True, **local}
    return world(volume=shown(HERE, "in-use", "i-me", "attached"), local=Local(**known))


def moving(source: str = "available", local: Local | None = None, elapsed: float = 60, **move: Any) -> World:
    generations = book(committed(THERE), Generation(2, "i-me"))
    return world(
        THERE,
        book=generations,
        volume=shown(THERE, source, "i-else" if source == "in-use" else None),
        move=Move(2, "vol-1", 0, **move),
        local=local or Local(),
        elapsed=elapsed,
    )


DONE = Snapshot("snap-1", "vol-1", "completed")
COPY = Volume("vol-2", HERE, "available", size_gib=100)
MY_COPY = replace(COPY, state="in-use", holder="i-me", attachment="attached")
READ = Local("vol-2", ("/dev/nvme2n1",), 0, "ext4", True, None, Mounted("/dev/nvme2n1", True))
RW = Mounted("/dev/nvme1n1", False)

BRANCHES: dict[str, tuple[World, Action | tuple[type, Any]]] = {
    # FIRST
    "FIRST claims": (World("r1", ME, Book()), Claim(1)),
    "FIRST beside tagged things": (World("r1", ME, Book(), tagged=("vol-1",)), (Exit, 78)),
    "FIRST claimed by me creates": (World("r1", ME, book(Generation(1, "i-me"))), CreateFirst("i-me-g1")),
    "FIRST made by me commits": (
        World("r1", ME, book(Generation(1, "i-me")), first=Volume("vol-9", HERE, "available")),
        Commit(1, "vol-9", HERE),
    ),
    "FIRST made by me is waited for": (
        World("r1", ME, book(Generation(1, "i-me")), first=Volume("vol-9", HERE, "creating")),
        (Poll, None),
    ),
    **{
        f"FIRST made by me is {state}": (
            World("r1", ME, book(Generation(1, "i-me")), first=Volume("vol-9", HERE, state)),
            (Exit, 78),
        )
        for state in ("error", "gone", "deleting")
    },
    "FIRST claimed by the living waits": (
        World("r1", ME, book(Generation(1, "i-a")), living=frozenset({"i-a"})),
        (Poll, None),
    ),
    "FIRST claimed by the dead finds by tag, in this zone first": (
        World(
            "r1",
            ME,
            book(Generation(1, "i-a")),
            finds=(shown(THERE), Volume("vol-9", HERE, "available")),
        ),
        Commit(1, "vol-9", HERE),
    ),
    "FIRST claimed by the dead and nothing found creates": (
        World("r1", ME, book(Generation(1, "i-a"))),
        CreateFirst("i-me-g1"),
    ),
    "FIRST cancelled": (World("r1", ME, book(Generation(1, "i-a", cancelled_by="i-b"))), (Exit, 78)),
    # SEE
    "SEE an empty answer waits": (world(volume=None), (Poll, None)),
    "SEE an empty answer for too long": (world(volume=None, elapsed=4000), (Exit, 75)),
    "SEE not found at first waits": (world(volume=None, missing_for=5.0), (Poll, None)),
    "SEE not found": (world(volume=None, missing_for=121.0, last_snapshot="snap-7"), (Exit, 78)),
    **{
        f"SEE {state}": (world(volume=shown(HERE, state)), (Exit, 78))
        for state in ("error", "deleting", "deleted")
    },
    "SEE another volume of the run at this machine": (
        world(plugged=(replace(MY_COPY, id="vol-8"),)),
        Detach("vol-8", "vol-8 is not the run's volume"),
    ),
    "SEE another volume that is being detached": (
        world(plugged=(replace(MY_COPY, id="vol-8", attachment="detaching"),)),
        (Poll, None),
    ),
    "SEE the run's own volume at this machine": (
        world(
            plugged=(shown(HERE, "in-use", "i-me", "attached"),),
            volume=shown(HERE, "in-use", "i-me", "attached"),
        ),
        FindDevice("vol-1", "/dev/sdf"),
    ),
    # SAME ZONE
    "SAME ZONE cancels a move": (
        world(book=book(committed(HERE), Generation(2, "i-a")), living=frozenset({"i-a"})),
        (Cancel, 2),
    ),
    "SAME ZONE available attaches": (world(), Attach("vol-1")),
    "SAME ZONE creating waits": (world(volume=shown(HERE, "creating")), (Poll, None)),
    "SAME ZONE attaching waits": (world(volume=shown(HERE, "in-use", "i-me", "attaching")), (Poll, None)),
    "SAME ZONE held waits": (world(volume=shown(HERE, "in-use", "i-a", "attached")), (Poll, None)),
    "SAME ZONE held too long": (
        world(volume=shown(HERE, "in-use", "i-a", "attached"), held_for=901.0),
        (Exit, 75),
    ),
    # OTHER ZONE
    "OTHER ZONE claims": (world(THERE), Claim(2, "vol-1")),
    "OTHER ZONE claims after what was cancelled": (
        world(THERE, book=book(committed(THERE), Generation(2, "i-a", cancelled_by="i-b"))),
        Claim(3, "vol-1"),
    ),
    "OTHER ZONE creating waits": (world(THERE, volume=shown(THERE, "creating")), (Poll, None)),
    "OTHER ZONE held by the living waits": (
        world(THERE, volume=shown(THERE, "in-use", "i-a", "attached"), living=frozenset({"i-a"})),
        (Poll, None),
    ),
    "OTHER ZONE a living mover is waited for": (
        world(THERE, book=book(committed(THERE), Generation(2, "i-a")), living=frozenset({"i-a"})),
        (Poll, None),
    ),
    "OTHER ZONE a dead mover is cancelled": (
        world(THERE, book=book(committed(THERE), Generation(2, "i-a"))),
        (Cancel, 2),
    ),
    "OTHER ZONE my own old move is cancelled": (
        world(THERE, book=book(committed(THERE), Generation(2, "i-me"))),
        (Cancel, 2),
    ),
    "MOVE takes its own snapshot": (moving(), TakeSnapshot(2, "vol-1")),
    "MOVE the source was taken": (moving("in-use", snapshot=DONE, volume=MY_COPY, local=READ), (Cancel, 2)),
    "MOVE snapshot pending waits": (moving(snapshot=replace(DONE, state="pending")), (Poll, None)),
    "MOVE snapshot late": (moving(snapshot=replace(DONE, state="pending"), elapsed=2900), (Cancel, 2)),
    "MOVE snapshot failed": (moving(snapshot=replace(DONE, state="error")), (Cancel, 2)),
    "MOVE creates the copy": (moving(snapshot=DONE), CreateCopy(2, "snap-1", "vol-1", 100)),
    "MOVE copy creating waits": (moving(snapshot=DONE, volume=replace(COPY, state="creating")), (Poll, None)),
    "MOVE copy late": (
        moving(snapshot=DONE, volume=replace(COPY, state="creating"), elapsed=700),
        (Cancel, 2),
    ),
    "MOVE copy broken": (moving(snapshot=DONE, volume=replace(COPY, state="error")), (Cancel, 2)),
    "MOVE copy in other hands": (
        moving(snapshot=DONE, volume=replace(MY_COPY, holder="i-a")),
        (Cancel, 2),
    ),
    "MOVE attaches": (moving(snapshot=DONE, volume=COPY), Attach("vol-2")),
    "MOVE attaching waits": (
        moving(snapshot=DONE, volume=replace(MY_COPY, attachment="attaching")),
        (Poll, None),
    ),
    "MOVE looks for the device": (moving(snapshot=DONE, volume=MY_COPY), FindDevice("vol-2", "")),
    "MOVE mounts to read": (
        moving(snapshot=DONE, volume=MY_COPY, local=replace(READ, mounted=None)),
        Mount("/dev/nvme2n1", "ext4", True),
    ),
    "MOVE verifies": (moving(snapshot=DONE, volume=MY_COPY, local=READ), Verify()),
    "MOVE does not verify": (
        moving(snapshot=DONE, volume=MY_COPY, local=replace(READ, verdict="damaged")),
        (Cancel, 2),
    ),
    "MOVE too early to commit waits": (
        moving(snapshot=DONE, volume=MY_COPY, local=replace(READ, verdict="good"), elapsed=3),
        (Poll, None),
    ),
    "MOVE commits": (
        moving(snapshot=DONE, volume=MY_COPY, local=replace(READ, verdict="good")),
        Commit(2, "vol-2", HERE, "vol-1"),
    ),
    # DEVICE, FS
    "DEVICE is looked for": (mine(of=None), FindDevice("vol-1", "/dev/sdf")),
    "DEVICE is late": (mine(candidates=(), searched=121.0), (Exit, 75)),
    "DEVICE is ambiguous": (mine(candidates=("/dev/a", "/dev/b")), (Exit, 78)),
    "FS is examined": (mine(content=None), Examine("/dev/nvme1n1")),
    "FS blank in a new run is made": (
        replace(mine(content="blank"), book=book(committed(HERE), formatted=False)),
        MakeFilesystem("/dev/nvme1n1"),
    ),
    "FS blank in a run that had one": (mine(content="blank"), (Exit, 78)),
    **{
        f"FS {kind}": (mine(content=kind), (Exit, 78))
        for kind in ("unknown data", "swap", "crypto_LUKS", "dos")
    },
    "FS is checked": (mine(checked=None), Check("/dev/nvme1n1", "ext4")),
    "FS needs repair": (mine(checked=False), (Exit, 78)),
    "FS is recorded": (
        replace(mine(), book=book(committed(HERE), formatted=False)),
        MarkFormatted("vol-1"),
    ),
    # MOUNT, LEASE
    "MOUNT": (mine(content="xfs"), Mount("/dev/nvme1n1", "xfs", False)),
    "MOUNT after verifying": (mine(mounted=Mounted("/dev/nvme1n1", True)), (Unmount, None)),
    "MOUNT point is taken": (mine(mounted=Mounted("/dev/else", False)), (Exit, 78)),
    "LEASE": (mine(mounted=RW), TakeLease()),
    "LEASE of the living and fresh waits": (
        replace(mine(mounted=RW, lease=Lease("i-a", "b", 9)), living=frozenset({"i-a"})),
        (Poll, None),
    ),
    "LEASE of the living is renewed": (
        replace(mine(mounted=RW, lease=Lease("i-a", "b", 9), lease_waited=181.0), living=frozenset({"i-a"})),
        (Exit, 75),
    ),
    "LEASE stale": (
        replace(mine(mounted=RW, lease=Lease("i-a", "b", 190)), living=frozenset({"i-a"})),
        TakeLease(),
    ),
    "LEASE of the dead": (mine(mounted=RW, lease=Lease("i-a", "b", 9)), TakeLease()),
    "RUN": (mine(mounted=RW, leased=True), (Exit, 0)),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branch(name: str) -> None:
    before, expected = BRANCHES[name]
    kept = copy.deepcopy(before)
    action = next_step(before)
    if isinstance(expected, tuple):
        kind, number = expected
        assert isinstance(action, kind), action
        if number is not None:
            assert getattr(action, "code" if kind is Exit else "generation") == number, action
    else:
        assert action == expected
    assert next_step(before) == action
    assert before == kept


@pytest.mark.parametrize("name", [name for name in BRANCHES if name.startswith("MOVE")])
def test_what_ends_a_move_names_its_source(name: str) -> None:
    action = next_step(BRANCHES[name][0])
    if isinstance(action, Cancel) and action.then is not None:
        assert "vol-1 is untouched" in action.then.message
        assert action.then.code == (78 if "verify" in name else 75)


def test_what_a_person_must_do_is_said() -> None:
    message = {name: str(getattr(next_step(w), "message", "")) for name, (w, _) in BRANCHES.items()}
    assert "snap-7" in message["SEE not found"]
    assert "detach-volume --force" in message["SAME ZONE held too long"]
    for name, text in message.items():
        if text and isinstance(BRANCHES[name][1], tuple) and BRANCHES[name][1][1] == 78:
            assert "vol-" in text or "registers" in text, f"{name}: {text}"
