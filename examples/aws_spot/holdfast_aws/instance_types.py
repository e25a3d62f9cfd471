"""What EC2 says of instance types: drives, network cards, GPUs. Names decide nothing: each generation has others.

Errors: CommandError; UsageError, which names the option.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast_aws.account import HUMAN, Account, CommandError
from holdfast_aws.plan import LaunchPlan, UsageError

# NVIDIA's open driver needs Turing or newer. EC2 has had no older GPU than these.
BEFORE_TURING = ("K80", "M60", "V100")


def described(account: Account, types: tuple[str, ...]) -> dict[str, Any]:
    """Those of the types that this region has, by name. A filter: EC2 refuses a list with an unknown name."""
    wanted = [{"Name": "instance-type", "Values": list(types)}]
    found = account.pages("ec2", "describe_instance_types", "InstanceTypes", Filters=wanted)
    return {one["InstanceType"]: one for one in found}


def resolved(account: Account, plan: LaunchPlan) -> LaunchPlan:
    """The plan without types that this region does not have, and with its network cards."""
    found = described(account, plan.types)
    if not found:
        raise CommandError(HUMAN, f"EC2 has none of {', '.join(plan.types)} in {account.region}")
    missing = [kind for kind in plan.types if kind not in found]
    if missing:
        # A group with an unknown type could not be made.
        account.say(f"{', '.join(missing)}: EC2 does not have it in {account.region}; it is left out")
        plan = replace(plan, types=tuple(kind for kind in plan.types if kind in found))
    without = [kind for kind in plan.types if not drives_gb(found[kind])]
    if plan.nvme and without:
        raise UsageError(
            f"--nvme: {', '.join(without)} has no NVMe drives of its own; leave --nvme out, or name other --types"
        )
    if plan.nodes > 1:
        plan = replace(plan, efa=efa_of_all(found))
        if not plan.efa:
            account.say(no_efa(found))
    return plan


def drives_gb(one: Any) -> int:
    """0: it has no NVMe drives of its own."""
    drives = one.get("InstanceStorageInfo", {})
    if not one.get("InstanceStorageSupported") or drives.get("NvmeSupport") == "unsupported":
        return 0
    return int(drives.get("TotalSizeInGB", 0))


def efa_cards(one: Any) -> tuple[int, ...]:
    """The network cards that speak EFA, by their index."""
    network = one.get("NetworkInfo", {})
    if not network.get("EfaSupported"):
        return ()
    cards = [
        card["NetworkCardIndex"]
        for card in network.get("NetworkCards", [])
        if "efa-only" in card.get("InterfaceTypes", [])
    ]
    return tuple(sorted(cards)[: network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 1)])


def efa_of_all(found: dict[str, Any]) -> tuple[int, ...]:
    """The cards of any of them: nodes with different ones would meet over TCP, or not at all."""
    cards = {efa_cards(one) for one in found.values()}
    if len(cards) > 1:
        raise UsageError(
            f"--nodes: {' and '.join(sorted(found))} have different EFA network cards; name --types that have the same"
        )
    return cards.pop()


def no_efa(found: dict[str, Any]) -> str:
    return f"{', '.join(sorted(found))} has no EFA: the nodes train over TCP"


def gpus(one: Any) -> list[Any]:
    return [gpu for gpu in one.get("GpuInfo", {}).get("Gpus", []) if gpu.get("Manufacturer") == "NVIDIA"]
