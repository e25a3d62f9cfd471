"""`hf-aws gc` and `down`: the only places that delete anything, and only at the user's word.

gc removes what the run has left behind: volumes that it moved away from, copies of moves that were cancelled, and
snapshots but the newest. Only the registers say what the run has made: tags are copied by AWS Backup, by Data Lifecycle
Manager and by people. It never touches the committed volume, an open move, or anything in use; and nothing at all
while the committed volume has not proved itself: some machine has committed a checkpoint on it (register
gen/N/proved, written by the machine). Of a run in S3 it ends the uploads that lost machines have left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast_aws import bucket
from holdfast_aws.account import HUMAN, OK, Account, Answer, CommandError
from holdfast_aws.cloud import RUN_TAG, of_another_service
from holdfast_aws.launch import POLL, WAIT, stack_state
from holdfast_aws.plan import stack_of
from holdfast_aws.registers import Book, parse, path_of
from holdfast_aws.steer import stop
from holdfast_aws.stop import StopError


@dataclass(frozen=True)
class Sorted:
    """What gc would do with each thing, and why it leaves the rest."""

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)


def proved(run: str, parameters: dict[str, str], generation: int) -> bool:
    return f"{path_of(run)}/gen/{generation}/proved" in parameters


def sort_out(book: Book, is_proved: bool, volumes: list[Any], snapshots: list[Any]) -> Sorted:
    """Pure: decides from what AWS has shown."""
    current, delete = book.current, []
    keep: dict[str, str] = {}
    volumes, snapshots = (_ours(book, things, keep) for things in (volumes, snapshots))
    complete = [snapshot for snapshot in snapshots if snapshot["State"] == "completed"]
    newest = max(complete, key=lambda snapshot: (snapshot["StartTime"], snapshot["SnapshotId"]), default=None)
    for volume in volumes:
        name, generation = volume["VolumeId"], book.made[volume["VolumeId"]]
        if current is None:
            keep[name] = "the run has no committed volume"
        elif name == current.volume:
            keep[name] = f"the run's volume, generation {current.number}"
        elif not is_proved:
            keep[name] = f"nobody has committed on {current.volume} yet"
        elif volume["State"] != "available":
            keep[name] = f"it is {volume['State']}"
        elif generation < current.number or _cancelled(book, generation):
            delete.append(name)
        else:
            keep[name] = f"generation {generation} is open: a move may be at work"
    for snapshot in snapshots:
        name, generation = snapshot["SnapshotId"], book.made.get(snapshot["SnapshotId"], 0)  # 0: a lead
        if snapshot["State"] == "pending":
            keep[name] = "it is being made"
        elif newest is not None and name == newest["SnapshotId"]:
            keep[name] = "the newest"
        elif current is None or not is_proved:
            keep[name] = "the run's volume has not proved itself yet"
        elif generation > current.number and not _cancelled(book, generation):
            keep[name] = f"generation {generation} is open: a move may be at work"
        else:
            delete.append(name)
    return Sorted(sorted(delete), keep)


def _ours(book: Book, things: list[Any], others: dict[str, str]) -> list[Any]:
    """Those that the run has made; the rest goes to `others`, with the reason."""
    ours = []
    for thing in things:
        name = str(thing["SnapshotId"] if "StartTime" in thing else thing["VolumeId"])
        if of_another_service(_tags(thing)):
            others[name] = "another service of AWS has made it, and copied the run's tags"
        elif name not in book.made and name not in book.leads:
            what = "snapshot" if name.startswith("snap-") else "volume"
            others[name] = (
                "the run's registers do not name it: a person made it, another version of this kit, or a machine that "
                f"was lost at that moment. If nobody needs it: aws ec2 delete-{what} --{what}-id {name}"
            )
        else:
            ours.append(thing)
    return ours


def _tags(thing: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", [])}


def _cancelled(book: Book, generation: int) -> bool:
    known = book.generations.get(generation)
    return known is not None and known.cancelled_by is not None


def gc(account: Account, run: str, *, delete: bool = False) -> Answer:
    chosen = _look(account, run)
    account.dry_run = account.dry_run or not delete
    refused: dict[str, str] = {}
    for name in chosen.delete:
        # Looked at again before each: a machine may have begun a move.
        if delete and name not in _look(account, run).delete:
            account.say(f"{name} is needed meanwhile: left alone")
            continue
        _delete(account, name, refused)
    lines = [f"kept {name}: {why}" for name, why in sorted(chosen.keep.items())]
    uploads = _end_leftovers(account, run)
    lines += [f"not deleted {name}: {why}" for name, why in sorted(refused.items())]
    if not delete and (chosen.delete or uploads):
        lines.append(f"nothing was deleted: hf-aws gc {run} --delete")
    return Answer(
        {
            "run": run,
            "delete": chosen.delete,
            "uploads": uploads,
            "keep": chosen.keep,
            "deleted": not account.dry_run,
            "refused": refused,
        },
        lines,
        HUMAN if refused else OK,
    )


def _end_leftovers(account: Account, run: str) -> list[str]:
    """Copies into S3 that a lost machine began: their parts are paid for, and shown in no listing."""
    place = _place(account.parameters(path_of(run)), run)
    if place is None:
        return []
    found = bucket.leftovers(account, place)
    bucket.end_uploads(account, place, found)
    return [str(upload["Key"]) for upload in found]


def _place(parameters: dict[str, str], run: str) -> bucket.Place | None:
    home = parameters.get(f"{path_of(run)}/home")
    return bucket.place_of(home) if home else None


def _look(account: Account, run: str) -> Sorted:
    # Things first, registers after: whatever was made in between is not in the list.
    volumes, snapshots = account.volumes(run), account.snapshots(run)
    parameters = account.parameters(path_of(run))
    book = _book(run, parameters)
    current = book.current
    return sort_out(book, current is not None and proved(run, parameters, current.number), volumes, snapshots)


def _book(run: str, parameters: dict[str, str]) -> Book:
    try:
        return parse(run, parameters)
    except StopError as error:
        raise CommandError(HUMAN, error.message) from error


def _delete(account: Account, name: str, refused: dict[str, str]) -> None:
    """A refusal is told, and does not end the rest."""
    try:
        if name.startswith("snap-"):
            account.change(f"delete {name}", "ec2", "delete_snapshot", SnapshotId=name)
        else:
            account.change(f"delete {name}", "ec2", "delete_volume", VolumeId=name)
    except CommandError as error:
        refused[name] = str(error)


def down(account: Account, run: str, delete_data: str = "") -> Answer:
    """No machine, no stack. The checkpoints stay unless `delete_data` repeats the run's name."""
    if delete_data and delete_data != run:
        raise CommandError(
            64, f"--delete-data {delete_data}: repeat the run's name, {run}, to delete its data"
        )
    name = stack_of(run)
    if account.groups(run):
        stop(account, run)
    if stack_state(account, name, run) is not None:
        account.change(f"delete the stack {name}", "cloudformation", "delete_stack", StackName=name)
        if not account.dry_run:
            _wait_until_deleted(account, name)
    parameters = account.parameters(path_of(run))
    book = _book(run, parameters)
    others: dict[str, str] = {}
    refused: dict[str, str] = {}
    volumes = [volume["VolumeId"] for volume in _ours(book, account.volumes(run), others)]
    snapshots = [snapshot["SnapshotId"] for snapshot in _ours(book, account.snapshots(run), others)]
    lines = []
    place = _place(parameters, run)
    lies = bucket.summary(account, place) if place else ""
    if delete_data:
        if place:
            bucket.delete_all(account, place)
        # Volumes before registers: what is half deleted is a run that refuses to start, never one that starts anew.
        for thing in (*volumes, *snapshots):
            _delete(account, thing, refused)
        lines += [f"not deleted {name}: {why}" for name, why in sorted(refused.items())]
        if refused:
            lines.append(
                f"the registers stay until all is deleted: hf-aws down {run} --delete-data {run} again"
            )
        for register in sorted(account.parameters(path_of(run))) if not refused else ():
            account.change(f"delete the register {register}", "ssm", "delete_parameter", Name=register)
        if others:
            lines.append(
                f"before a new run may have the name {run}, remove the tag {RUN_TAG} from what is left"
            )
    elif volumes or snapshots or lies:
        kept = ", ".join((*volumes, *snapshots, *([lies] if lies else [])))
        lines.append(
            f"kept, and paid for: {kept}. hf-aws up {run} goes on with them; --delete-data {run} deletes them"
        )
    lines += [f"left alone {name}: {why}" for name, why in sorted(others.items())]
    lines.append(f"the run {run} has no machine and no stack")
    told = {"run": run, "volumes": volumes, "snapshots": snapshots, "home": str(place) if place else None}
    more = {"left_alone": others, "refused": refused, "changes": account.changes}
    return Answer({**told, **more}, lines, HUMAN if refused else OK)


def _wait_until_deleted(account: Account, name: str) -> None:
    until = account.now() + WAIT
    while (state := stack_state(account, name)) is not None and state != "DELETE_COMPLETE":
        if state == "DELETE_FAILED" or account.now() > until:
            raise CommandError(
                HUMAN, f"the stack {name} is {state}: look at its events, then hf-aws down again"
            )
        account.sleep(POLL)
