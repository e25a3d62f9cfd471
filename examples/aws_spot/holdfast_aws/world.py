"""What the state machine in volume.py sees, and what it can ask for. Plain values.

A World is read anew before each step; only `move`, `first`, `local` and the times are memory of this process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from holdfast_aws.cloud import Snapshot, Volume
from holdfast_aws.registers import Book


@dataclass(frozen=True)
class Machine:
    """This instance, as the metadata service describes it."""

    instance: str
    zone: str
    region: str


@dataclass(frozen=True)
class Limits:
    """Seconds. All are counted on the steady clock of this process."""

    release: float = 900  # a volume whose machine was lost stays in-use for about 6 minutes
    missing: float = 120  # a new volume may be invisible for a while; after that it is gone
    device: float = 120  # from attached to a device node
    create: float = 600  # a volume from a snapshot
    lease: float = 180  # a foreign lease older than this is stale
    snapshot: float = 900
    snapshot_per_gib: float = 20
    settle: float = 15  # from the claim to the commit: what EC2 shows may be older than the claim
    total: float = 3000  # for anything else that one waits for


@dataclass(frozen=True)
class Move:
    """The generation that this process has claimed and not ended: a copy of the volume into this zone."""

    generation: int
    source: str
    began: float  # seconds of `World.elapsed`
    snapshot: Snapshot | None = None
    volume: Volume | None = None
    volume_asked: float = 0  # seconds of `World.elapsed`


@dataclass(frozen=True)
class Mounted:
    device: str
    read_only: bool


@dataclass(frozen=True)
class Lease:
    """The lease file on the volume: after a forced detach it shows a writer that the attachment does not."""

    instance: str
    boot: str
    age: float  # seconds by this machine's wall clock


@dataclass(frozen=True)
class Local:
    """What this machine has done with the attached volume `of`."""

    of: str | None = None
    candidates: tuple[str, ...] = ()  # devices that are that volume; more than one is a riddle
    searched: float = 0  # seconds
    content: str | None = None  # ext4, xfs, blank, unknown, or another signature; None: not examined
    checked: bool | None = None  # fsck
    verdict: str | None = None  # good, nothing (no checkpoint and none expected), or why it is bad
    mounted: Mounted | None = None  # on the run's mount point
    lease: Lease | None = None  # of somebody else
    leased: bool = False
    lease_waited: float = 0  # seconds


@dataclass(frozen=True)
class World:
    """`volume` is the committed one; None when AWS did not show it."""

    run: str
    me: Machine
    book: Book
    volume: Volume | None = None
    missing_for: float | None = None  # seconds since AWS first said InvalidVolume.NotFound, without a break
    tagged: tuple[str, ...] = ()  # volumes and snapshots of the run; looked up while the registers are empty
    finds: tuple[Volume, ...] = ()  # first volumes by tag; looked up when their maker is dead
    plugged: tuple[Volume, ...] = ()  # of the run, attached to me
    living: frozenset[str] = frozenset()
    last_snapshot: str = ""  # looked up when the volume is gone
    first: Volume | None = None  # that this process made for generation 1
    move: Move | None = None
    local: Local = field(default_factory=Local)
    elapsed: float = 0  # seconds since the command began
    held_for: float = 0  # seconds that the volume has been in somebody else's hands
    limits: Limits = field(default_factory=Limits)


# What the state machine can ask for. The executor carries out one, then looks again.


@dataclass(frozen=True)
class Poll:
    why: str


@dataclass(frozen=True)
class Exit:
    code: int
    message: str


@dataclass(frozen=True)
class Claim:
    """Claims a generation; `source` is None for the very first volume."""

    generation: int
    source: str | None = None


@dataclass(frozen=True)
class CreateFirst:
    token: str


@dataclass(frozen=True)
class Commit:
    generation: int
    volume: str
    zone: str
    retires: str | None = None


@dataclass(frozen=True)
class Cancel:
    generation: int
    why: str
    then: Exit | None = None


@dataclass(frozen=True)
class TakeSnapshot:
    generation: int
    source: str


@dataclass(frozen=True)
class CreateCopy:
    generation: int
    snapshot: str
    source: str
    size_gib: int


@dataclass(frozen=True)
class Attach:
    volume: str


@dataclass(frozen=True)
class Detach:
    """Unmounts it where it is mounted, then detaches it."""

    volume: str
    why: str


@dataclass(frozen=True)
class FindDevice:
    volume: str
    label: str  # /dev/sdf


@dataclass(frozen=True)
class Examine:
    device: str


@dataclass(frozen=True)
class MakeFilesystem:
    device: str


@dataclass(frozen=True)
class MarkFormatted:
    volume: str


@dataclass(frozen=True)
class Check:
    device: str
    content: str


@dataclass(frozen=True)
class Mount:
    device: str
    content: str
    read_only: bool


@dataclass(frozen=True)
class Unmount:
    why: str


@dataclass(frozen=True)
class Verify:
    pass


@dataclass(frozen=True)
class TakeLease:
    pass


Action = Union[
    Poll,
    Exit,
    Claim,
    CreateFirst,
    Commit,
    Cancel,
    TakeSnapshot,
    CreateCopy,
    Attach,
    Detach,
    FindDevice,
    Examine,
    MakeFilesystem,
    MarkFormatted,
    Check,
    Mount,
    Unmount,
    Verify,
    TakeLease,
]
