"""The state machine that finds the run's volume, or makes it, or moves it to this zone.

`next_step` is a pure function: it gets a World and answers with one Action. The executor carries the action
out, looks at the world again and asks again. So a machine that dies between any two calls leaves nothing but
what the next machine sees. The functions stand in the order of a life:

    FIRST         no volume yet: one machine claims generation 1, makes the volume and commits it
    SEE           the committed volume is gone or broken: a person must look
    SAME ZONE     attach it
    OTHER ZONE    claim the next generation, snapshot, new volume, attach, verify, commit
    DEVICE, FS    which device it is, and what is on it
    MOUNT, LEASE  for good, and only by one

Every end leaves the committed volume as it was. Nothing here deletes anything.
"""

from __future__ import annotations

from holdfast_aws.cloud import Volume
from holdfast_aws.stop import HUMAN, OK, RETRY
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
    MakeFilesystem,
    MarkFormatted,
    Mount,
    Move,
    Poll,
    TakeLease,
    TakeSnapshot,
    Unmount,
    Verify,
    World,
)

FILESYSTEMS = ("ext4", "xfs")


def next_step(world: World) -> Action:
    if world.book.home:
        return Exit(
            HUMAN,
            f"the checkpoints of {world.run} are in {world.book.home}, and this machine was launched for a volume: "
            f"hf-aws up {world.run} --home {world.book.home.rpartition('/')[0]} …",
        )
    if world.book.current is None:
        return _first(world)
    for plugged in world.plugged:
        if not _wanted(world, plugged):
            return _unplug(world, plugged)
    volume = world.volume
    if volume is None:
        return _see_nothing(world)
    if volume.state not in ("creating", "available", "in-use"):
        return Exit(HUMAN, f"volume {volume.id} is {volume.state}: {_by_hand(world)}")
    if volume.zone == world.me.zone:
        return _same_zone(world, volume)
    return _other_zone(world, volume)


# FIRST


def _first(world: World) -> Action:
    book, me = world.book, world.me
    if book.empty:
        if world.tagged:
            things = ", ".join(world.tagged)
            return Exit(
                HUMAN,
                f"the registers of {world.run} are empty, but {things} exist: somebody deleted them. "
                "Nothing was made. Restore them, or remove the tag holdfast:run to begin anew",
            )
        return Claim(1)
    first = book.open
    if first is None or first.number != 1:
        return Exit(HUMAN, f"the registers of {world.run} name no volume and no maker: restore them")
    if world.first is not None:
        return _first_made(world, world.first)
    if first.claimed_by == me.instance:
        return CreateFirst(f"{me.instance}-g1")
    if first.claimed_by in world.living:
        return _poll(world, f"{first.claimed_by} makes the first volume")
    if world.finds:
        found = min(world.finds, key=lambda volume: (volume.zone != me.zone, volume.id))
        return _first_made(world, found)
    return CreateFirst(f"{me.instance}-g1")


def _first_made(world: World, first: Volume) -> Action:
    """Not before EC2 has made it: a name that the registers commit to is the run's for good."""
    if first.state == "creating":
        return _poll(world, f"{first.id} is being created")
    if first.state in ("available", "in-use"):
        return Commit(1, first.id, first.zone)
    return Exit(
        HUMAN,
        f"EC2 did not make the first volume {first.id}: it is {first.state}. If the account encrypts all volumes by an "
        f"encryption key of its own, the role of this machine must be allowed to use it; then hf-aws up {world.run}",
    )


# SEE


def _see_nothing(world: World) -> Action:
    current = world.book.current
    name = current.volume if current else ""
    if world.missing_for is not None and world.missing_for >= world.limits.missing:
        return Exit(HUMAN, f"volume {name} does not exist: {_by_hand(world)}")
    return _poll(world, f"EC2 does not show volume {name}")


def _by_hand(world: World) -> str:
    newest = world.last_snapshot or "none is known"
    return f"restore it by hand (newest snapshot of {world.run}: {newest})"


def _wanted(world: World, volume: Volume) -> bool:
    current = world.book.current
    if current is not None and volume.id == current.volume:
        return True
    return world.move is not None and world.move.volume is not None and volume.id == world.move.volume.id


def _unplug(world: World, volume: Volume) -> Action:
    if volume.attachment == "detaching":
        return _poll(world, f"{volume.id} is being detached")
    return Detach(volume.id, f"{volume.id} is not the run's volume")


# SAME ZONE


def _same_zone(world: World, volume: Volume) -> Action:
    move = world.book.open
    if move is not None:  # the one in the volume's zone is faster
        return Cancel(move.number, f"the volume is here; {move.claimed_by} need not move it")
    if volume.holder == world.me.instance:
        if volume.attachment == "attached":
            return _attached(world, volume)
        return _poll(world, f"{volume.id}: {volume.attachment}")
    if volume.state == "available":
        return Attach(volume.id)
    if volume.state == "creating":
        return _poll(world, f"{volume.id} is being created")
    return _held(world, volume)


def _held(world: World, volume: Volume) -> Action:
    """A volume in other hands is never copied and never taken."""
    alive = volume.holder in world.living
    who = f"live {volume.holder}" if alive else f"lost {volume.holder}"
    if world.held_for < world.limits.release:
        return Poll(f"{volume.id} is held by {who}")
    hint = (
        "" if alive else f"; if that machine is gone: aws ec2 detach-volume --force --volume-id {volume.id}"
    )
    return Exit(RETRY, f"{volume.id} was held by {who} for {world.held_for:.0f} s{hint}")


# OTHER ZONE


def _other_zone(world: World, volume: Volume) -> Action:
    if world.move is not None:
        return _moving(world, volume, world.move)
    move = world.book.open
    if move is not None:
        if move.claimed_by == world.me.instance:
            return Cancel(move.number, "an earlier process of this machine began it")
        if move.claimed_by in world.living:
            return _poll(world, f"{move.claimed_by} moves {volume.id}")
        return Cancel(move.number, f"{move.claimed_by} is lost")
    if volume.state == "in-use":
        return _held(world, volume)
    if volume.state == "creating":
        return _poll(world, f"{volume.id} is being created")
    return Claim(world.book.top + 1, volume.id)


def _moving(world: World, source: Volume, move: Move) -> Action:
    if source.state != "available":  # looked at before each step, and before the commit
        return Cancel(move.generation, f"{source.id} was attached meanwhile")
    if move.snapshot is None:
        return TakeSnapshot(move.generation, source.id)
    if move.snapshot.state == "error":
        return _give_up(move, f"snapshot {move.snapshot.id} failed")
    if move.snapshot.state != "completed":
        limit = world.limits.snapshot + world.limits.snapshot_per_gib * source.size_gib
        if world.elapsed - move.began >= limit:
            return _give_up(move, f"snapshot {move.snapshot.id} was not complete after {limit:.0f} s")
        return Poll(f"snapshot {move.snapshot.id} of {source.id}")
    if move.volume is None:
        return CreateCopy(move.generation, move.snapshot.id, source.id, source.size_gib)
    copy = move.volume
    if copy.state == "creating":
        if world.elapsed - move.volume_asked >= world.limits.create:
            return _give_up(move, f"{copy.id} was not created after {world.limits.create:.0f} s")
        return Poll(f"{copy.id} is being created")
    if copy.state == "available":
        return Attach(copy.id)
    if copy.state != "in-use" or copy.holder != world.me.instance:
        return _give_up(move, f"{copy.id} is {copy.state}, held by {copy.holder}")
    if copy.attachment != "attached":
        return _poll(world, f"{copy.id}: {copy.attachment}")
    return _copied(world, copy, move)


def _give_up(move: Move, why: str, code: int = RETRY) -> Action:
    return Cancel(move.generation, why, Exit(code, f"{why}; {move.source} is untouched"))


def _copied(world: World, copy: Volume, move: Move) -> Action:
    """The copy proves itself before it counts: read-only, every byte of the newest checkpoint."""
    local = world.local
    step = _filesystem(world, copy)
    if isinstance(step, Exit):
        return _give_up(move, step.message, step.code)
    if isinstance(step, MakeFilesystem):  # blank as its source is; the first file system waits for the commit
        return _commit_copy(world, copy, move)
    if step is not None:
        return step
    if local.mounted is None:
        return Mount(local.candidates[0], str(local.content), read_only=True)
    if local.verdict is None:
        return Verify()
    if local.verdict not in ("good", "nothing"):
        return _give_up(move, f"the copy {copy.id} does not verify: {local.verdict}", HUMAN)
    return _commit_copy(world, copy, move)


def _commit_copy(world: World, copy: Volume, move: Move) -> Action:
    if world.elapsed - move.began < world.limits.settle:
        return Poll("what EC2 shows of the source may be seconds old")
    return Commit(move.generation, copy.id, copy.zone, retires=move.source)


# DEVICE, FS


def _filesystem(world: World, volume: Volume) -> Action | None:
    """None: the device is known, has a file system that may be mounted, and nothing else is mounted there."""
    local = world.local
    if local.of != volume.id or not local.candidates:
        if local.of == volume.id and local.searched >= world.limits.device:
            return Exit(RETRY, f"no device of {volume.id} after {local.searched:.0f} s")
        return FindDevice(volume.id, volume.device or "")
    if len(local.candidates) > 1:
        return Exit(HUMAN, f"{volume.id} could be any of {', '.join(local.candidates)}: nothing was touched")
    device = local.candidates[0]
    if local.content is None:
        return Examine(device)
    if local.content == "blank" and not world.book.formatted:
        return MakeFilesystem(device)  # the run has never had one, and there is not a byte on it
    if local.content not in FILESYSTEMS:
        return Exit(
            HUMAN, f"{volume.id} ({device}) holds {local.content}, not the run's file system: look by hand"
        )
    if local.mounted is not None:
        if local.mounted.device == device:
            return None
        return Exit(
            HUMAN, f"{local.mounted.device} is mounted where {volume.id} ({device}) belongs: unmount it"
        )
    if local.checked is None:
        return Check(device, local.content)
    if not local.checked:
        return Exit(
            HUMAN, f"the file system of {volume.id} needs repair: fsck {device}, or restore a snapshot"
        )
    return None


# MOUNT, LEASE


def _attached(world: World, volume: Volume) -> Action:
    step = _filesystem(world, volume)
    if step is not None:
        return step
    local, current = world.local, world.book.current
    if not world.book.formatted:
        return MarkFormatted(volume.id)
    if local.mounted is None:
        return Mount(local.candidates[0], str(local.content), read_only=False)
    if local.mounted.read_only:
        return Unmount("it was mounted to verify it")
    if local.leased:
        return Exit(
            OK, f"ready: {volume.id}, generation {current.number if current else 0}, {local.mounted.device}"
        )
    lease = local.lease
    if lease is not None and lease.age < world.limits.lease and lease.instance in world.living:
        if local.lease_waited >= world.limits.lease:
            return Exit(RETRY, f"{lease.instance} still writes to {volume.id}: stop it")
        return Poll(f"{lease.instance} wrote to {volume.id} {lease.age:.0f} s ago")
    return TakeLease()


def _poll(world: World, why: str) -> Action:
    if world.elapsed >= world.limits.total:
        return Exit(RETRY, f"{why}; gave up after {world.elapsed:.0f} s")
    return Poll(why)
