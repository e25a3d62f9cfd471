"""The user's account, for the commands of `hf-aws`: every change goes through `change`, which --dry-run only tells.

Errors: CommandError, with the exit code of the command and one line that names the remedy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from holdfast_aws.cloud import RUN_TAG, TRANSIENT
from holdfast_aws.plan import on_demand_group, spot_group

OK, USAGE, INTERNAL, LATER, HUMAN = 0, 64, 70, 75, 78


class CommandError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Answer:
    """What a command says: `data` with --json, else `lines`."""

    data: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    code: int = OK


class Account:
    def __init__(
        self,
        clients: Callable[[str], Any],
        *,
        dry_run: bool = False,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._make = clients
        self._made: dict[str, Any] = {}
        self.dry_run = dry_run
        self.say = say
        self.sleep = sleep
        self.now = now
        self.changes: list[str] = []  # what was done, or with --dry-run what would be

    def client(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def ask(self, service: str, call: str, **arguments: Any) -> Any:
        """A call that changes nothing."""
        return _translated(lambda: getattr(self.client(service), call)(**arguments))

    def pages(self, service: str, call: str, key: str, **arguments: Any) -> Iterator[Any]:
        pages = self.client(service).get_paginator(call).paginate(**arguments)
        yield from _translated(lambda: [thing for page in pages for thing in page[key]])

    def change(self, what: str, service: str, call: str, **arguments: Any) -> Any:
        """A call that changes something; None with --dry-run."""
        self.changes.append(what)
        self.say(f"{'would ' if self.dry_run else ''}{what}")
        if self.dry_run:
            return None
        return _translated(lambda: getattr(self.client(service), call)(**arguments))

    # What several commands ask for.

    @property
    def region(self) -> str:
        return str(_translated(lambda: self.client("ec2")).meta.region_name)

    def groups(self, run: str) -> list[Any]:
        """The run's Auto Scaling groups, spot first."""
        names = [spot_group(run), on_demand_group(run)]
        found = {
            g["AutoScalingGroupName"]: g
            for g in self.pages(
                "autoscaling",
                "describe_auto_scaling_groups",
                "AutoScalingGroups",
                AutoScalingGroupNames=names,
            )
        }
        return [found[name] for name in names if name in found]

    def must_have_groups(self, run: str) -> list[Any]:
        groups = self.groups(run)
        if not groups:
            raise CommandError(
                HUMAN, f"there is no run {run} in this region: hf-aws up {run} …, or name another --region"
            )
        return groups

    def machines(self, run: str) -> list[Any]:
        """Its instances that are not gone yet."""
        states = ["pending", "running", "shutting-down", "stopping", "stopped"]
        reservations = self.pages(
            "ec2",
            "describe_instances",
            "Reservations",
            Filters=[
                {"Name": f"tag:{RUN_TAG}", "Values": [run]},
                {"Name": "instance-state-name", "Values": states},
            ],
        )
        return [instance for reservation in reservations for instance in reservation["Instances"]]

    def tagged(self, call: str, key: str, run: str, **arguments: Any) -> list[Any]:
        """The run's volumes or snapshots."""
        filters = [{"Name": f"tag:{RUN_TAG}", "Values": [run]}]
        return list(self.pages("ec2", call, key, Filters=filters, **arguments))

    def volumes(self, run: str) -> list[Any]:
        return self.tagged("describe_volumes", "Volumes", run)

    def snapshots(self, run: str) -> list[Any]:
        return self.tagged("describe_snapshots", "Snapshots", run, OwnerIds=["self"])

    def parameters(self, path: str) -> dict[str, str]:
        found = self.pages("ssm", "get_parameters_by_path", "Parameters", Path=path, Recursive=True)
        return {parameter["Name"]: parameter["Value"] for parameter in found}


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _translated(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (NoCredentialsError, NoRegionError) as error:
        raise CommandError(HUMAN, f"{error}: run aws configure") from error
    except ClientError as error:
        code, what = code_of(error), error.operation_name
        message = error.response.get("Error", {}).get("Message", "")
        if code in TRANSIENT:
            raise CommandError(LATER, f"{what}: AWS is busy ({code}); try again") from error
        if code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"):
            raise CommandError(
                HUMAN, f"{what}: this user may not ({code}); hf-aws check says what is missing"
            ) from error
        raise CommandError(HUMAN, f"{what}: {code}: {message}") from error
    except BotoCoreError as error:
        raise CommandError(LATER, f"AWS does not answer: {error}") from error
