"""Launch plans that the tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast_aws.plan import TYPES, LaunchPlan, check

DIGEST = "@sha256:" + "0123456789abcdef" * 4
SWEEP = "".join(f'{{"name": "lr{n}", "lr": 0.{n}}}\n' for n in range(9))
COMMAND = ("resnet50_cifar10", "--checkpoint-dir", "{run_dir}", "--lr", "0.1")

PLAIN = check(
    LaunchPlan(
        "r1", COMMAND, vpc="vpc-11111111", subnets=("subnet-11111111",), image="registry/train" + DIGEST
    )
)


def plan(**changes: Any) -> LaunchPlan:
    return check(replace(PLAIN, **changes))


ALL = {
    "plain": PLAIN,
    "on-the-machine": plan(image="", setup="curl -fsS https://example.com/train | tar -xz -C /usr/local"),
    "fallback": plan(fallback_minutes=20),
    "rebalance": plan(rebalance=True),
    "ecr": plan(image="111122223333.dkr.ecr.us-east-1.amazonaws.com/train" + DIGEST),
    "own-image": plan(types=TYPES["l40s"], machine_image="ami-0123456789abcdef0"),
    "a100-mig": plan(types=TYPES["a100"], slices=7, sweep=SWEEP),
    "nodes": plan(
        types=("p4d.24xlarge",),
        nodes=4,
        efa=(0, 1, 2, 3),
        image="",
        setup="true",
        shared="fs-1.fsx.us-east-1.amazonaws.com@tcp:/x",
    ),
    "remote-shell": plan(remote_shell=True),
    "nvme": plan(types=TYPES["a100"], nvme=True, image="", setup="true"),
    "s3": plan(home="s3://bucket/runs", region="us-east-1"),
    "s3-nvme-mig": plan(
        home="s3://bucket", region="us-east-1", nvme=True, types=TYPES["a100"], slices=7, sweep=SWEEP
    ),
}
