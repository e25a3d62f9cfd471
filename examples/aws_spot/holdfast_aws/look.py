"""`hf-aws status` and `logs`: they change nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from holdfast_aws.account import HUMAN, LATER, OK, Account, Answer, CommandError
from holdfast_aws.beacon import MARK
from holdfast_aws.plan import on_demand_group
from holdfast_aws.prices import EBS_PRICES, HOURS_A_MONTH, PRICES, Price, spot_price, volume_month
from holdfast_aws.registers import TRAINS, UP, Book, parse, path_of
from holdfast_aws.stop import StopError

SILENT = 300  # seconds without a word of a machine that trains
BEGINS = 2700  # seconds of a machine without a word of a training: it waits, or a start hangs


def status(account: Account, run: str, prices: Mapping[str, Price] = PRICES) -> Answer:
    """One screen. Exit code 75 when a machine should train and does not tell, 78 when a person must look."""
    groups = account.groups(run)
    book, volumes = _book(account, run), account.volumes(run)
    if not groups and book.empty and not volumes:
        raise CommandError(
            HUMAN, f"there is no run {run} in this region: hf-aws up {run} …, or name another --region"
        )
    machines = [_machine(run, machine) for machine in account.machines(run)]
    running = [machine for machine in machines if machine["state"] == "running"]
    names = [machine["id"] for machine in running]
    progress = _progress(account, running)
    data: dict[str, Any] = {
        "run": run,
        "groups": [_group(group) for group in groups],
        "machines": machines,
        "volume": _volume(book, volumes),
        "home": book.home or None,
        "move": _move(book),
        "progress": progress,
        "cost": cost(account, run, groups, machines, prices),
        "kept": kept(account, volumes, account.snapshots(run), prices),
    }
    data["parked"] = [
        name for name, outcome in book.parked.items() if outcome not in (UP, TRAINS) and name in names
    ]
    wanted = sum(group["DesiredCapacity"] for group in groups)
    silent = bool(running) and (progress is None or progress["age_s"] > SILENT)
    data["waits"] = _waits(account, running, progress)
    code = LATER if wanted and (not running or silent or data["waits"]) else OK
    if data["parked"]:
        code = HUMAN
    return Answer(data, _lines(data, wanted), code)


def _waits(account: Account, running: list[dict[str, Any]], progress: dict[str, Any] | None) -> int:
    """Seconds without a word of a training, on a machine that is as old, when they are too many; 0 otherwise."""
    if progress is None:
        return 0
    up = max(account.now() - machine["since"] for machine in running if machine["id"] == progress["machine"])
    told = [one.get("silent_s", 0 if "phase" in one else up) for one in progress["runs"]]
    silent = round(min(up, *told)) if told else round(up)
    return silent if silent > BEGINS else 0


def _book(account: Account, run: str) -> Book:
    try:
        return parse(run, account.parameters(path_of(run)))
    except StopError as error:
        raise CommandError(HUMAN, error.message) from error


def _group(group: Any) -> dict[str, Any]:
    mix = group.get("MixedInstancesPolicy", {}).get("InstancesDistribution", {})
    spot = (
        mix.get("OnDemandBaseCapacity", 0) == 0 and mix.get("OnDemandPercentageAboveBaseCapacity", 100) == 0
    )
    return {
        "name": group["AutoScalingGroupName"],
        "desired": group["DesiredCapacity"],
        "kind": "spot" if spot else "on-demand",
        "zones": sorted(group["AvailabilityZones"]),
    }


def _machine(run: str, machine: Any) -> dict[str, Any]:
    tags = {tag["Key"]: tag["Value"] for tag in machine.get("Tags", [])}
    group = tags.get("aws:autoscaling:groupName", "")
    spot = machine.get("InstanceLifecycle") == "spot"
    return {
        "id": machine["InstanceId"],
        "type": machine["InstanceType"],
        "zone": machine["Placement"]["AvailabilityZone"],
        "state": machine["State"]["Name"],
        "kind": "spot" if spot and group != on_demand_group(run) else "on-demand",
        "since": machine["LaunchTime"].timestamp(),
    }


def _volume(book: Book, volumes: list[Any]) -> dict[str, Any] | None:
    current = book.current
    if current is None:
        return None
    seen = next((volume for volume in volumes if volume["VolumeId"] == current.volume), None)
    attached = seen["Attachments"] if seen else []
    return {
        "id": current.volume,
        "generation": current.number,
        "zone": current.zone,
        "state": seen["State"] if seen else "not found",
        "holder": attached[0]["InstanceId"] if attached else None,
        "size_gib": seen["Size"] if seen else None,
    }


def _move(book: Book) -> dict[str, Any] | None:
    if book.open is None:
        return None
    return {"generation": book.open.number, "by": book.open.claimed_by}


def _progress(account: Account, running: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest word of any machine; of one that trains, if there is one, and not of its standby."""

    def order(told: dict[str, Any]) -> tuple[bool, int]:
        return any("phase" in one for one in told["runs"]), told["t"]

    newest: dict[str, Any] | None = None
    for machine in running:
        for text in console(account, machine["id"]).splitlines():
            told = _status_line(text)
            if told is not None and (newest is None or order(told) >= order(newest)):
                newest = {**told, "machine": machine["id"]}
    if newest is not None:
        newest["age_s"] = max(0, round(account.now() - newest["t"]))
    return newest


def _status_line(text: str) -> dict[str, Any] | None:
    _, mark, rest = text.partition(MARK)
    try:
        told = json.loads(rest) if mark else None
    except ValueError:
        return None  # cut by another line of the console
    if (
        not isinstance(told, dict)
        or not isinstance(told.get("t"), int)
        or not isinstance(told.get("runs"), list)
    ):
        return None
    return told


def console(account: Account, instance: str) -> str:
    """What the machine has written on its console; "" when EC2 has none yet."""
    try:
        # Of machines without Nitro EC2 keeps an old copy only.
        answer = account.ask("ec2", "get_console_output", InstanceId=instance, Latest=True)
    except CommandError:
        answer = account.ask("ec2", "get_console_output", InstanceId=instance)
    return str(answer.get("Output") or "")


def logs(account: Account, run: str, count: int = 50) -> Answer:
    machines = [machine for machine in account.machines(run) if machine["State"]["Name"] == "running"]
    if not machines:
        raise CommandError(LATER, f"no machine of {run} runs: the run's ledger is on its volume")
    data = {}
    lines = []
    for machine in machines:
        name = machine["InstanceId"]
        said = [text.rstrip() for text in console(account, name).splitlines() if MARK not in text][-count:]
        data[name] = said
        lines += [f"== {name}", *(said or ["(EC2 shows no console yet; it can take some minutes)"])]
    return Answer({"run": run, "logs": data}, lines)


# Money


def cost(
    account: Account,
    run: str,
    groups: list[Any],
    machines: list[dict[str, Any]],
    prices: Mapping[str, Price] = PRICES,
) -> dict[str, Any]:
    """Dollars so far, by today's spot prices. A machine that is gone counts as the dearest type of its group."""
    lives = _lives(account, groups)
    for machine in machines:
        lives[machine["id"]] = {
            **lives.get(machine["id"], {"end": None, "types": []}),
            **machine,
            "begin": machine["since"],
        }
    total, hours, guessed = 0.0, 0.0, False
    unpriced: set[str] = set()
    dates: set[str] = set()
    for life in lives.values():
        length = max(0.0, (life["end"] or account.now()) - life["begin"]) / 3600
        kinds = [life["type"]] if life.get("type") else life["types"]
        found = {kind: _price(account, kind, life["zone"], life["kind"], prices) for kind in kinds}
        known = [price for price in found.values() if price is not None]
        unpriced |= {kind for kind, price in found.items() if price is None}
        if life["kind"] != "spot":
            dates |= {prices[kind].date for kind in kinds if kind in prices}
        guessed |= len(known) != 1 or len(kinds) != 1
        total += length * max(known, default=0.0)
        hours += length
    return {
        "machines": len(lives),
        "hours": round(hours, 2),
        "usd": round(total, 2),
        "estimate": guessed,
        "unpriced": sorted(unpriced),
        "prices_of": min(dates, default=None),
    }


def _price(account: Account, kind: str, zone: str, how: str, prices: Mapping[str, Price]) -> float | None:
    if how == "spot":
        return spot_price(account, kind, zone)
    return prices[kind].dollars if kind in prices else None


def _lives(account: Account, groups: list[Any]) -> dict[str, dict[str, Any]]:
    """Launches and ends of the last six weeks, as the groups remember them."""
    lives: dict[str, dict[str, Any]] = {}
    for group in groups:
        name = group["AutoScalingGroupName"]
        overrides = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {}).get("Overrides", [])
        for activity in account.pages(
            "autoscaling", "describe_scaling_activities", "Activities", AutoScalingGroupName=name
        ):
            match = re.search(
                r"(Launching a new|Terminating) EC2 instance: (i-[0-9a-f]+)", activity["Description"]
            )
            if not match or activity.get("StatusCode") not in ("Successful", "InProgress"):
                continue
            details = json.loads(activity.get("Details") or "{}")
            life = lives.setdefault(
                match[2],
                {
                    "begin": activity["StartTime"].timestamp(),
                    "end": None,
                    "zone": "",
                    "types": [one["InstanceType"] for one in overrides],
                    "kind": _group(group)["kind"],
                },
            )
            life["zone"] = details.get("Availability Zone", life["zone"])
            if match[1] == "Terminating":
                life["end"] = (activity.get("EndTime") or activity["StartTime"]).timestamp()
            else:
                life["begin"] = activity["StartTime"].timestamp()
    return lives


def kept(
    account: Account, volumes: list[Any], snapshots: list[Any], prices: Mapping[str, Price] = PRICES
) -> dict[str, Any]:
    """What lies in EBS, and dollars for it so far. Each snapshot counts in full, and is less: EC2 does not tell what it
    holds beside the one before it."""
    found = []
    for volume in volumes:
        month = volume_month(volume["Size"], volume.get("Iops", 0), volume.get("Throughput", 0), prices)
        found.append((month, volume["CreateTime"]))
    for snapshot in snapshots:
        size = snapshot.get("FullSnapshotSizeInBytes", snapshot["VolumeSize"] << 30) / (1 << 30)
        found.append((size * prices["snapshot-gib"].dollars, snapshot["StartTime"]))
    months = [
        (price, max(0.0, account.now() - since.timestamp()) / 3600 / HOURS_A_MONTH) for price, since in found
    ]
    return {
        "volumes": len(volumes),
        "snapshots": len(snapshots),
        "usd_so_far": round(sum(price * age for price, age in months), 2),
        "usd_a_month": round(sum(price for price, _ in months), 2),
        "prices_of": min(prices[name].date for name in EBS_PRICES),
    }


# Words


def _lines(data: dict[str, Any], wanted: int) -> list[str]:
    lines = [f"run {data['run']}: " + ("no stack" if not data["groups"] else f"wants {wanted} machine(s)")]
    for group in data["groups"]:
        lines.append(
            f"  group     {group['name']} ({group['kind']}): {group['desired']}, {', '.join(group['zones'])}"
        )
    for machine in data["machines"]:
        since = datetime.fromtimestamp(machine["since"], timezone.utc)
        what = f"{machine['id']} {machine['type']} ({machine['kind']}) in {machine['zone']}"
        lines.append(f"  machine   {what}: {machine['state']} since {since:%Y-%m-%d %H:%M} UTC")
    for name in data["parked"]:
        lines.append(
            f"  parked    {name} waits for a person, half an hour at most, then the run stops: hf-aws logs "
            f"{data['run']}; hf-aws up {data['run']} goes on"
        )
    volume = data["volume"]
    if data["home"]:
        lines.append(f"  home      {data['home']}: no volume, any zone")
    elif volume is None:
        lines.append("  volume    none yet")
    else:
        held = f"held by {volume['holder']}" if volume["holder"] else "free"
        what = (
            f"{volume['id']}, generation {volume['generation']}, {volume['size_gib']} GiB in {volume['zone']}"
        )
        lines.append(f"  volume    {what}: {volume['state']}, {held}")
    if data["move"]:
        lines.append(f"  move      generation {data['move']['generation']} by {data['move']['by']}")
    lines += _progress_lines(data["progress"])
    if data["waits"]:
        lines.append(
            f"  waits     no training tells anything for {data['waits'] / 60:.0f} min, though a machine is paid for: "
            f"hf-aws logs {data['run']}"
        )
    lines.append(cost_line(data["cost"]))
    ebs = data["kept"]
    if ebs["volumes"] or ebs["snapshots"]:
        lines.append(
            f"  kept      {ebs['volumes']} volume(s), {ebs['snapshots']} snapshot(s): at most about "
            f"${ebs['usd_so_far']:.2f} so far, ${ebs['usd_a_month']:.2f} a month, by prices of {ebs['prices_of']}, "
            f"us-east-1 (--prices FILE); hf-aws gc {data['run']} tells of what"
        )
    return lines


def cost_line(cost_so_far: dict[str, Any]) -> str:
    about = "at most about" if cost_so_far["estimate"] and not cost_so_far["unpriced"] else "about"
    line = (
        f"  cost      {about} ${cost_so_far['usd']:.2f} for {cost_so_far['hours']:.1f} h of "
        f"{cost_so_far['machines']} machine(s)"
    )
    if cost_so_far["unpriced"]:
        line += f", without {', '.join(cost_so_far['unpriced'])}, whose price is not known (--prices FILE)"
    if cost_so_far["prices_of"]:
        line += f"; on-demand prices of {cost_so_far['prices_of']}, us-east-1"
    return line


def _progress_lines(progress: dict[str, Any] | None) -> list[str]:
    if progress is None:
        return ["  training  no word of it yet (a machine tells twice a minute on its console)"]
    lines = []
    for one in progress["runs"]:
        two_tiers = "home_step" in one
        age = one.get("home_age_s" if two_tiers else "durable_age_s")
        risk = f"none {'home' if two_tiers else 'durable'}"
        if age is not None:
            risk = f"{age + progress['age_s']} s of work at risk"
        durable = f"durable {one.get('durable_step', '?')}"
        if two_tiers:  # what is not home dies with the machine
            durable += f" here, {one['home_step'] if one['home_step'] >= 0 else 'nothing'} home"
        step = f"step {one.get('step', '?')}, {durable}, {risk}"
        phase = f"{one.get('phase', 'not begun')}, attempt {one.get('attempt', 0)}"
        lines.append(f"  training  {one['dir']}: {phase}, {step}")
        if one.get("notice"):
            lines.append(f"  notice    {one['notice']}")
        if one.get("home_failure"):
            lines.append(f"  home      the mirror tries again: {one['home_failure']}")
    if progress["age_s"] > SILENT:
        lines.append(f"  silence   the last word is {progress['age_s']} s old: hf-aws logs")
    return lines
