"""The run's place in S3, from the user's account: names it, makes the bucket, looks at it, cleans up.

    --home s3                 the bucket holdfast-ACCOUNT-REGION, which `hf-aws up` makes and sets up
    --home s3://BUCKET/PREFIX a bucket that exists; its settings are its owner's, `hf-aws check` looks at them

The place ends with the run's name, so two runs never share one. Only `down --delete-data` and `gc --delete` delete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import ClientError

from holdfast_aws.account import HUMAN, Account, CommandError, code_of
from holdfast_aws.plan import S3, LaunchPlan
from holdfast_aws.registers import Book

UPLOADS = "holdfast-uploads"  # the kit's own lifecycle rule
LEFTOVER = 86400.0  # seconds after which an upload that has not ended never will
AT_ONCE = 1000  # objects in one DeleteObjects
MISSING = ("404", "NoSuchBucket", "NotFound")


@dataclass(frozen=True)
class Place:
    bucket: str
    prefix: str  # of the objects, without the last slash

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def place_of(home: str) -> Place:
    """From a register or a plan: s3://BUCKET/PREFIX."""
    bucket, _, prefix = home.removeprefix("s3://").partition("/")
    return Place(bucket, prefix.rstrip("/"))


def kits_own(account: Account) -> str:
    owner = account.ask("sts", "get_caller_identity")["Account"]
    return f"holdfast-{owner}-{account.region}"


def resolved(account: Account, plan: LaunchPlan) -> LaunchPlan:
    """The plan with its bucket by name, and its region."""
    if not plan.in_s3:
        return plan
    home = f"s3://{kits_own(account)}" if plan.home == S3 else plan.home
    return replace(plan, home=home, region=account.region)


def must_fit(plan: LaunchPlan, book: Book, volumes: list[Any]) -> None:
    """A run keeps the home that it began with."""
    home = f"s3://{plan.s3}" if plan.in_s3 else ""
    if book.home and book.home != home:
        raise CommandError(
            HUMAN,
            f"the checkpoints of {plan.run} are in {book.home}: --home {book.home.rpartition('/')[0]}; "
            "another home is another run, under another name",
        )
    if home and (book.generations or book.formatted or volumes):
        raise CommandError(
            HUMAN,
            f"the checkpoints of {plan.run} are on its volume: --home ebs; another home is another run, under another "
            "name (holdfast mirror copies checkpoints by hand)",
        )


def prepare(account: Account, plan: LaunchPlan) -> None:
    """Makes the kit's own bucket where it is missing. A bucket of the user's must exist, and is left as it is."""
    place = place_of(f"s3://{plan.s3}")
    own = place.bucket == kits_own(account)
    if not _exists(account, place.bucket):
        if not own:
            raise CommandError(
                HUMAN, f"there is no bucket {place.bucket}: make it, or let hf-aws make one by --home s3"
            )
        more = {} if account.region == "us-east-1" else {"LocationConstraint": account.region}
        arguments: dict[str, Any] = {"CreateBucketConfiguration": more} if more else {}
        account.change(
            f"make the bucket {place.bucket}", "s3", "create_bucket", Bucket=place.bucket, **arguments
        )
    if own:
        _set_up(account, place.bucket)


def _set_up(account: Account, bucket: str) -> None:
    closed = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    account.change(
        f"close {bucket} to the public",
        "s3",
        "put_public_access_block",
        Bucket=bucket,
        PublicAccessBlockConfiguration=dict.fromkeys(closed, True),
    )
    by_default = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    account.change(
        f"encrypt what comes into {bucket}",
        "s3",
        "put_bucket_encryption",
        Bucket=bucket,
        ServerSideEncryptionConfiguration={"Rules": [by_default]},
    )
    # A machine that dies in the middle of a copy leaves its parts; they are paid for and shown in no listing.
    rule = {
        "ID": UPLOADS,
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
    }
    account.change(
        f"let {bucket} forget uploads that nobody ended",
        "s3",
        "put_bucket_lifecycle_configuration",
        Bucket=bucket,
        LifecycleConfiguration={"Rules": [*_other_rules(account, bucket), rule]},
    )


def _other_rules(account: Account, bucket: str) -> list[Any]:
    """The user's own: a configuration is put as a whole."""
    try:
        rules = account.client("s3").get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    except ClientError as error:
        if code_of(error) in ("NoSuchLifecycleConfiguration", *MISSING):  # the latter: --dry-run makes none
            return []
        raise CommandError(
            HUMAN, f"the lifecycle rules of {bucket} cannot be read ({code_of(error)}), so none is put"
        ) from error
    return [rule for rule in rules if rule.get("ID") != UPLOADS]


def _exists(account: Account, bucket: str) -> bool:
    try:
        account.client("s3").head_bucket(Bucket=bucket)
    except ClientError as error:
        if code_of(error) in MISSING:
            return False
        raise CommandError(
            HUMAN, f"the bucket {bucket} cannot be looked at ({code_of(error)}): it is not this account's, "
            "or this user may not s3:ListBucket"
        ) from error  # fmt: skip
    return True


# For `hf-aws check`.


def troubles(account: Account, plan: LaunchPlan) -> tuple[bool, str]:
    """Whether the bucket will do, and what to know of it."""
    place = place_of(f"s3://{plan.s3}")
    own = place.bucket == kits_own(account)
    if not _exists(account, place.bucket):
        if own:
            return True, f"{place}: up makes the bucket"
        return False, f"there is no bucket {place.bucket}: make it, or let hf-aws make one by --home s3"
    where = account.ask("s3", "get_bucket_location", Bucket=place.bucket).get("LocationConstraint")
    region = {None: "us-east-1", "": "us-east-1", "EU": "eu-west-1"}.get(where, where)
    if region != account.region:
        return False, (
            f"{place.bucket} is in {region}, the run in {account.region}: every copy would be slow, and paid for by "
            f"the GB. Take --region {region}, or another bucket"
        )
    key = _key(account, place.bucket)
    if key:
        return False, (
            f"{place.bucket} encrypts with {key}, and the kit grants no machine a right to a key: take a bucket with "
            "S3's own keys (SSE-S3)"
        )
    hints = [str(place)]
    if not own and not _has_rule(account, place.bucket, "AbortIncompleteMultipartUpload"):
        hints.append(
            "no lifecycle rule ends uploads that a lost machine left (AbortIncompleteMultipartUpload); "
            f"hf-aws gc {plan.run} --delete does"
        )
    if _keeps_versions(account, place.bucket) and not _has_rule(
        account, place.bucket, "NoncurrentVersionExpiration"
    ):
        hints.append(
            "the bucket keeps versions, so what retention deletes stays and is paid for, about $0.023 a GB and month: "
            "add a lifecycle rule with NoncurrentVersionExpiration"
        )
    return True, "; ".join(hints)


def _key(account: Account, bucket: str) -> str:
    """The default key, where it is not S3's own; "" otherwise."""
    found = _or_none(lambda: account.client("s3").get_bucket_encryption(Bucket=bucket))
    rules = found["ServerSideEncryptionConfiguration"]["Rules"] if found else []
    for rule in rules:
        default = rule.get("ApplyServerSideEncryptionByDefault", {})
        if str(default.get("SSEAlgorithm", "")).startswith("aws:kms"):
            return str(default.get("KMSMasterKeyID") or "the key aws/s3")
    return ""


def _has_rule(account: Account, bucket: str, what: str) -> bool:
    found = _or_none(lambda: account.client("s3").get_bucket_lifecycle_configuration(Bucket=bucket))
    rules = found["Rules"] if found else []
    return any(what in rule and rule["Status"] == "Enabled" for rule in rules)


def _keeps_versions(account: Account, bucket: str) -> bool:
    found = _or_none(lambda: account.client("s3").get_bucket_versioning(Bucket=bucket))
    return bool(found and found.get("Status") == "Enabled")


def _or_none(ask: Callable[[], Any]) -> Any:
    """What is not set, or may not be asked, says nothing."""
    try:
        return ask()
    except ClientError:
        return None


def endpoint_hint(account: Account, plan: LaunchPlan) -> str:
    """A gateway endpoint costs nothing, and keeps the copies off a NAT gateway, which takes money by the GB."""
    service = f"com.amazonaws.{account.region}.s3"
    filters = [{"Name": "vpc-id", "Values": [plan.vpc]}]
    found = account.ask("ec2", "describe_vpc_endpoints", Filters=filters)["VpcEndpoints"]
    if any(one["ServiceName"] == service and one.get("VpcEndpointType") == "Gateway" for one in found):
        return f"{plan.vpc} has a gateway endpoint for S3"
    return (
        f"{plan.vpc} has no gateway endpoint for S3: free, and it spares the fee of a NAT gateway where the subnets "
        f"have one (aws ec2 create-vpc-endpoint --vpc-id {plan.vpc} --service-name {service} --route-table-ids …)"
    )


# What lies there.


def objects(account: Account, place: Place) -> Iterator[dict[str, Any]]:
    pages = account.client("s3").get_paginator("list_objects_v2")
    try:
        for page in pages.paginate(Bucket=place.bucket, Prefix=f"{place.prefix}/"):
            yield from page.get("Contents", [])
    except ClientError as error:
        if code_of(error) not in MISSING:
            raise CommandError(HUMAN, f"{place} cannot be listed: {code_of(error)}") from error


def leftovers(account: Account, place: Place, age: float = LEFTOVER) -> list[dict[str, Any]]:
    """Uploads that began so many seconds ago and have not ended."""
    pages = account.client("s3").get_paginator("list_multipart_uploads")
    before = datetime.fromtimestamp(account.now() - age, timezone.utc)
    try:
        found = [
            upload
            for page in pages.paginate(Bucket=place.bucket, Prefix=f"{place.prefix}/")
            for upload in page.get("Uploads", [])
        ]
    except ClientError as error:
        if code_of(error) in MISSING:
            return []
        raise CommandError(HUMAN, f"the uploads of {place} cannot be listed: {code_of(error)}") from error
    return [upload for upload in found if upload["Initiated"] <= before]


def end_uploads(account: Account, place: Place, uploads: list[dict[str, Any]]) -> None:
    for upload in uploads:
        try:
            account.change(
                f"end the upload of {upload['Key']}",
                "s3",
                "abort_multipart_upload",
                Bucket=place.bucket,
                Key=upload["Key"],
                UploadId=upload["UploadId"],
            )
        except CommandError as error:
            # One that has ended meanwhile, or may not be ended, does not keep the rest.
            account.say(str(error))


def delete_all(account: Account, place: Place) -> None:
    """What the run's machines may have written. A run that waits for its first machine has only the bucket."""
    ours = re.compile(rf"{re.escape(place.prefix)}/run(s/[^/]+)?/(step-|attempts/).*")
    found = [str(thing["Key"]) for thing in objects(account, place)]
    keys = [{"Key": key} for key in found if ours.fullmatch(key)]
    others = len(found) - len(keys)
    if others:
        account.say(f"{others} object(s) of {place} were not written by the run: left alone")
    for at in range(0, len(keys), AT_ONCE):
        some = keys[at : at + AT_ONCE]
        done = account.change(
            f"delete {len(some)} object(s) of {place}",
            "s3",
            "delete_objects",
            Bucket=place.bucket,
            Delete={"Objects": some, "Quiet": True},
        )
        failed = (done or {}).get("Errors", [])
        if failed:
            raise CommandError(
                HUMAN,
                f"{failed[0]['Key']} of {place} could not be deleted: {failed[0].get('Code')}; "
                "then hf-aws down again",
            )
    end_uploads(account, place, leftovers(account, place, 0))
    if keys and _keeps_versions(account, place.bucket):
        account.say(
            f"the bucket keeps versions: those of {place} stay, and are paid for, until a lifecycle rule with "
            "NoncurrentVersionExpiration or their owner deletes them"
        )
    account.say(f"the bucket {place.bucket} stays: another run may be about to use it")


def summary(account: Account, place: Place) -> str:
    """How much lies there, in words; "" when nothing does."""
    count, size = 0, 0
    for thing in objects(account, place):
        count, size = count + 1, size + int(thing["Size"])
    return f"{count} object(s), {size / 1e9:.2f} GB in {place}" if count else ""
