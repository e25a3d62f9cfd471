"""The calls to AWS that a machine makes, and nothing else. None deletes or overwrites anything, but for snapshots
that a machine takes ahead of time, and the list of them.

Each method is one call to AWS. Errors: CloudError with AWS's own code, such as "VolumeInUse".
`aws.py` makes the real calls; the tests have doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

RUN_TAG = "holdfast:run"
GENERATION_TAG = "holdfast:gen"
SOURCE_TAG = "holdfast:from"
LEAD_TAG = "holdfast:lead"
RETIRED_TAG = "holdfast:retired-by-gen"

HOOK = "holdfast-terminating"  # the groups' lifecycle hook

# A later try may succeed; `aws.py` has used up its own tries when it raises one of these.
TRANSIENT = frozenset(
    {
        # What botocore makes of an answer without AWS's own body: a proxy's, or that of a service which is down.
        "500",
        "502",
        "503",
        "504",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Throttling",
        "ThrottlingException",
        "Timeout",
        "TooManyUpdates",
        "Unavailable",
    }
)

# The credentials of a machine's role are renewed, and a new role is not known everywhere at once.
CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "RequestExpired",
        "UnrecognizedClientException",
    }
)

FORBIDDEN = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
# No later try of the same machine will do. A code that is in no list says nothing: it is tried again.
FINAL = frozenset(
    {
        *FORBIDDEN,
        "AttachmentLimitExceeded",
        "InvalidParameterCombination",
        "InvalidVolume.ZoneMismatch",
        "ParameterLimitExceeded",
        "ValidationException",
    }
)


class CloudError(Exception):
    """AWS refused a call, or did not answer (code "Timeout")."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


@dataclass(frozen=True)
class Volume:
    """An EBS volume as DescribeVolumes shows it; it may be seconds old."""

    id: str
    zone: str
    state: str  # creating, available, in-use, deleting, deleted, error
    holder: str | None = None  # instance that it is attached to
    attachment: str | None = None  # attaching, attached, busy, detaching
    device: str | None = None  # the label of its attachment, such as /dev/sdf
    size_gib: int = 0
    snapshot: str = ""  # that it was made from; "" when it was made empty
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    id: str
    volume: str
    state: str  # pending, completed, error
    started: float = 0.0  # Unix seconds
    tags: Mapping[str, str] = field(default_factory=dict)


def of_another_service(tags: Iterable[str]) -> bool:
    """AWS Backup, Data Lifecycle Manager and others mark what they make, and copy our tags to it."""
    return any(key.startswith("aws:") for key in tags)


@dataclass(frozen=True)
class VolumeSpec:
    """What CreateVolume gets. gp3's figures are named each time: a volume from a snapshot inherits none."""

    zone: str
    size_gib: int
    iops: int
    throughput: int  # MiB/s
    token: str  # the same token gives the same volume
    tags: Mapping[str, str]
    snapshot: str = ""


@dataclass(frozen=True)
class Group:
    """An Auto Scaling group of the run."""

    name: str
    desired: int
    most: int = 1
    members: Mapping[str, str] = field(default_factory=dict)  # instance -> lifecycle state


class Cloud(Protocol):
    # Registers: SSM parameters.
    def parameters(self, path: str) -> dict[str, str]:
        """All parameters below the path, by their full names. An error is never read as "none"."""

    def put_once(self, name: str, value: str) -> bool:
        """Creates the parameter; False when it exists already."""

    def put(self, name: str, value: str) -> None:
        """Creates the parameter, or overwrites it: the list of lead snapshots, which changes each hour."""

    # EC2.
    def volume(self, volume_id: str) -> Volume | None:
        """None: the answer was empty, which says nothing. No such volume: InvalidVolume.NotFound."""

    def volumes(self, run: str, instance: str | None = None) -> list[Volume]:
        """The run's volumes by their tag; with an instance, those attached to it."""

    def snapshots(self, run: str) -> list[Snapshot]:
        """The run's snapshots by their tag."""

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        """None: not visible yet."""

    def living(self, instances: Iterable[str]) -> frozenset[str]:
        """Those of the instances that are pending or running."""

    def create_volume(self, spec: VolumeSpec) -> str: ...

    def create_snapshot(self, volume_id: str, tags: Mapping[str, str], description: str) -> str: ...

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Of a lead snapshot; the policy allows no other."""

    def attach(self, volume_id: str, instance: str, device: str) -> None: ...

    def detach(self, volume_id: str, instance: str) -> None: ...

    def tag_retired(self, volume_id: str, generation: int) -> None: ...

    # The end of a run, and the machine's health.
    def groups(self, run: str) -> list[Group]: ...

    def group_of(self, instance: str) -> str | None:
        """The Auto Scaling group that the instance belongs to."""

    def set_desired(self, group: str, capacity: int) -> None: ...

    def leave(self, instance: str, *, fewer: bool) -> None:
        """The group ends this instance; with `fewer` it wants one less, else it starts another."""

    def marks(self, run: str, instances: Sequence[str]) -> dict[str, frozenset[str]]:
        """Of each instance those of ready, began, over that it has written (standby.py)."""

    def set_unhealthy(self, instance: str) -> None: ...

    def complete_hook(self, group: str, hook: str, instance: str) -> None: ...

    def metric(self, run: str, name: str) -> None:
        """Counts 1 for this event in the namespace Holdfast."""


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds."""

    def sleep(self, seconds: float) -> None: ...
