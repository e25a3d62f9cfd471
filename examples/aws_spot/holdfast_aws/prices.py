"""What machines cost. Spot prices are asked for; on-demand prices are a list, because asking for them needs rights
and a service that most users have never touched.
"""

from __future__ import annotations

from datetime import datetime, timezone

from holdfast_aws.account import Account, CommandError

# US dollars an hour in us-east-1, Linux, from memory of 2024's list: look at your region's before you rely on it.
ON_DEMAND = {
    "g4dn.xlarge": 0.526,
    "g4dn.2xlarge": 0.752,
    "g5.xlarge": 1.006,
    "g5.2xlarge": 1.212,
    "g6.xlarge": 0.805,
    "g6.2xlarge": 0.978,
    "p3.2xlarge": 3.06,
    "p3.8xlarge": 12.24,
    "p3.16xlarge": 24.48,
    "p4d.24xlarge": 32.77,
    "p4de.24xlarge": 40.97,
}
GP3_GIB_MONTH = 0.08
GP3_IOPS_MONTH = 0.005  # above 3000
GP3_THROUGHPUT_MONTH = 0.04  # MiB/s above 125
SNAPSHOT_GIB_MONTH = 0.05
HOURS_A_MONTH = 730


def volume_month(size_gib: int, iops: int, throughput: int) -> float:
    """Dollars."""
    more = max(0, iops - 3000) * GP3_IOPS_MONTH + max(0, throughput - 125) * GP3_THROUGHPUT_MONTH
    return size_gib * GP3_GIB_MONTH + more


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
