"""What machines cost. Spot prices are asked for; on-demand prices are a list, because asking for them needs rights
and a service that most users have never touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from holdfast_aws.account import Account, CommandError
from holdfast_aws.plan import UsageError


@dataclass(frozen=True)
class Price:
    dollars: float
    date: str  # of the list that has it


# US dollars in us-east-1, Linux. Machines an hour, by a third party's copy of AWS's list (instances.vantage.sh);
# EBS a month, from memory of AWS's page. Look at your region's, and give yours by --prices.
PRICES = {
    "g4dn.xlarge": Price(0.526, "2026-01-21"),
    "g4dn.2xlarge": Price(0.752, "2026-01-21"),
    "g5.xlarge": Price(1.006, "2026-01-21"),
    "g5.2xlarge": Price(1.212, "2026-01-21"),
    "g6.xlarge": Price(0.8048, "2026-01-21"),
    "g6.2xlarge": Price(0.9776, "2026-01-21"),
    "g6.4xlarge": Price(1.3232, "2026-01-21"),
    "g6e.xlarge": Price(1.861, "2026-01-21"),
    "g6e.2xlarge": Price(2.24208, "2026-01-21"),
    "g6e.4xlarge": Price(3.00424, "2026-01-21"),
    "g7e.2xlarge": Price(3.36312, "2026-01-21"),
    "g7e.4xlarge": Price(3.99816, "2026-01-21"),
    "g7e.8xlarge": Price(5.26824, "2026-01-21"),
    "p4d.24xlarge": Price(21.957642, "2026-01-21"),
    "p4de.24xlarge": Price(27.44705, "2026-01-21"),
    "p5.4xlarge": Price(6.88, "2026-01-21"),
    "p5.48xlarge": Price(55.04, "2026-01-21"),
    "p6-b200.48xlarge": Price(113.9328, "2026-01-21"),
    "gp3-gib": Price(0.08, "2024-12-31"),
    "gp3-iops": Price(0.005, "2024-12-31"),  # above 3000
    "gp3-throughput": Price(0.04, "2024-12-31"),  # a MiB/s above 125
    "snapshot-gib": Price(0.05, "2024-12-31"),
}
EBS_PRICES = ("gp3-gib", "gp3-iops", "gp3-throughput", "snapshot-gib")
HOURS_A_MONTH = 730


def with_file(path: str) -> dict[str, Price]:
    """PRICES, and before them those of a file: lines of "TYPE DOLLARS YYYY-MM-DD"; # begins a comment."""
    prices = dict(PRICES)
    if not path:
        return prices
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prices {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            try:
                prices[words[0]] = _price(words)
            except ValueError as error:
                raise UsageError(f"--prices {path}:{number}: {error}") from error
    return prices


def _price(words: list[str]) -> Price:
    if len(words) != 3:
        raise ValueError("a line is TYPE DOLLARS YYYY-MM-DD, such as g5.xlarge 1.006 2026-11-28")
    dollars = float(words[1])
    if not 0 <= dollars < math.inf:
        raise ValueError(f"{words[1]} is no price")
    datetime.strptime(words[2], "%Y-%m-%d")
    return Price(dollars, words[2])


def volume_month(size_gib: int, iops: int, throughput: int, prices: Mapping[str, Price] = PRICES) -> float:
    """Dollars."""
    more = max(0, iops - 3000) * prices["gp3-iops"].dollars
    more += max(0, throughput - 125) * prices["gp3-throughput"].dollars
    return size_gib * prices["gp3-gib"].dollars + more


def spot_price(account: Account, kind: str, zone: str) -> float | None:
    """Dollars an hour now; None when AWS does not tell."""
    try:
        found = account.ask(
            "ec2",
            "describe_spot_price_history",
            InstanceTypes=[kind],
            AvailabilityZone=zone,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.fromtimestamp(account.now(), timezone.utc),
        )["SpotPriceHistory"]
    except CommandError:
        return None
    newest = max(found, key=lambda price: price["Timestamp"], default=None)
    return float(newest["SpotPrice"]) if newest else None
