"""The user's side of `--home s3`, against moto: up makes the bucket, check looks at it, gc and down clean up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import account_lab
import plans
import pytest
from account_lab import Lab
from test_commands import Quotas, make_volume, register

from holdfast_aws import bucket, checks, launch, look, tidy
from holdfast_aws.account import CommandError
from holdfast_aws.cli import main
from holdfast_aws.plan import LaunchPlan

OWN = "holdfast-123456789012-us-east-1"
HOME = f"s3://{OWN}/r1"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # a second for each test
    with account_lab.lab() as made:
        yield made


def plan_of(**changes: Any) -> LaunchPlan:
    return plans.plan(machine_image="ami-12345678", vpc="", subnets=(), **changes)


def put(lab: Lab, key: str, place: str = OWN) -> None:
    lab.client("s3").put_object(Bucket=place, Key=key, Body=b"x" * 1000)


def keys(lab: Lab, place: str = OWN) -> list[str]:
    found = lab.client("s3").list_objects_v2(Bucket=place)
    return [thing["Key"] for thing in found.get("Contents", [])]


def up(lab: Lab, **changes: Any) -> None:
    launch.up(lab.another(), plan_of(home="s3", **changes))


def made(lab: Lab, home: str = "s3", **changes: Any) -> None:
    """The bucket alone."""
    account = lab.another()
    bucket.prepare(account, bucket.resolved(account, plan_of(home=home, **changes)))


def test_up_makes_a_bucket_that_is_closed_encrypted_and_forgets_uploads(lab: Lab) -> None:
    up(lab)
    s3 = lab.client("s3")
    closed = s3.get_public_access_block(Bucket=OWN)["PublicAccessBlockConfiguration"]
    assert set(closed.values()) == {True}
    (rule,) = s3.get_bucket_lifecycle_configuration(Bucket=OWN)["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert "Expiration" not in rule, "it would delete checkpoints"
    (default,) = s3.get_bucket_encryption(Bucket=OWN)["ServerSideEncryptionConfiguration"]["Rules"]
    assert default["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert lab.calls.index("PutBucketLifecycleConfiguration") < lab.calls.index("SetDesiredCapacity")
    assert len(lab.another().machines("r1")) == 1


def test_up_again_and_a_second_run_use_the_same_bucket(lab: Lab) -> None:
    made(lab)
    made(lab)
    made(lab, run="r2")
    assert lab.calls.count("CreateBucket") == 1


EXPIRES = {
    "ID": "mine",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
}


def test_up_keeps_the_users_lifecycle_rules(lab: Lab) -> None:
    made(lab)
    s3 = lab.client("s3")
    s3.put_bucket_lifecycle_configuration(Bucket=OWN, LifecycleConfiguration={"Rules": [EXPIRES]})
    made(lab)
    made(lab)
    rules = s3.get_bucket_lifecycle_configuration(Bucket=OWN)["Rules"]
    assert [rule["ID"] for rule in rules] == ["mine", "holdfast-uploads"]


def test_a_bucket_that_keeps_versions_is_told_of(lab: Lab) -> None:
    """There retention and `down` only hide what they delete."""
    made(lab)
    account, s3 = lab.another(), lab.client("s3")
    plan = bucket.resolved(account, plan_of(home="s3"))
    assert bucket.troubles(account, plan) == (True, HOME)
    s3.put_bucket_versioning(Bucket=OWN, VersioningConfiguration={"Status": "Enabled"})
    assert "NoncurrentVersionExpiration" in bucket.troubles(account, plan)[1]
    put(lab, "r1/run/step-1")
    bucket.delete_all(lab.another(), bucket.place_of(HOME))
    assert any("those of s3://" in said and "stay, and are paid for" in said for said in lab.said)
    s3.put_bucket_lifecycle_configuration(Bucket=OWN, LifecycleConfiguration={"Rules": [EXPIRES]})
    assert bucket.troubles(account, plan) == (True, HOME)


def test_up_leaves_a_bucket_of_the_users_as_it_is(lab: Lab) -> None:
    with pytest.raises(CommandError, match="no bucket mine"):
        launch.up(lab.another(), plan_of(home="s3://mine/x"))
    assert lab.calls == []
    lab.client("s3").create_bucket(Bucket="mine")
    lab.calls.clear()
    made(lab, "s3://mine/x")
    assert not [call for call in lab.calls if "Bucket" in call or "PublicAccess" in call]


def test_a_run_keeps_the_home_that_it_began_with(lab: Lab) -> None:
    register(lab, "home", HOME)
    for home in ("ebs", "s3://mine"):
        with pytest.raises(CommandError, match=f"are in {HOME}: --home s3://{OWN};") as refusal:
            launch.up(lab.another(), plan_of(home=home))
        assert refusal.value.code == 78
    make_volume(lab, 1)
    lab.calls.clear()
    with pytest.raises(CommandError, match="on its volume: --home ebs"):
        launch.up(lab.another(), plan_of(home="s3", run="r1"))
    assert lab.calls == []


def findings(lab: Lab, **changes: Any) -> dict[str, tuple[bool | None, str]]:
    lab.stand_ins["service-quotas"] = Quotas(800)
    lab.calls.clear()
    answer = checks.check(lab.another(), plan_of(**changes))
    assert lab.calls == [], "check changes nothing"
    return {one["what"]: (one["good"], one["says"]) for one in answer.data["findings"]}


def test_check_says_what_is_wrong_with_a_bucket(lab: Lab) -> None:
    s3 = lab.client("s3")
    assert findings(lab, home="s3")["home"] == (True, f"{HOME}: up makes the bucket")
    assert findings(lab, home="s3://missing")["home"][0] is False
    s3.create_bucket(Bucket="far", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    good, says = findings(lab, home="s3://far")["home"]
    assert (good, "--region eu-west-1" in says) == (False, True)
    s3.create_bucket(Bucket="mine")
    good, says = findings(lab, home="s3://mine")["home"]
    assert good is True
    assert "hf-aws gc r1 --delete" in says
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "key-1"}}
    s3.put_bucket_encryption(Bucket="mine", ServerSideEncryptionConfiguration={"Rules": [rule]})
    good, says = findings(lab, home="s3://mine")["home"]
    assert (good, "encrypts with key-1" in says) == (False, True)


def test_check_hints_at_a_gateway_endpoint(lab: Lab) -> None:
    good, says = findings(lab, home="s3")["endpoint"]
    assert good is True
    assert "create-vpc-endpoint" in says
    vpc = says.split()[0]
    lab.client("ec2").create_vpc_endpoint(
        VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", VpcEndpointType="Gateway"
    )
    assert findings(lab, home="s3")["endpoint"][1] == f"{vpc} has a gateway endpoint for S3"
    assert "endpoint" not in findings(lab)


def test_check_asks_ec2_for_the_drives(lab: Lab) -> None:
    good, says = findings(lab, nvme=True, types=("p4d.24xlarge",))["NVMe drives"]
    assert (good, says) == (True, "p4d.24xlarge: 8000 GB")


def test_down_keeps_what_is_in_s3_and_says_so(lab: Lab) -> None:
    made(lab)
    register(lab, "home", HOME)
    put(lab, "r1/run/step-000000000010-a0001.h5")
    answer = tidy.down(lab.another(), "r1")
    assert f"1 object(s), 0.00 GB in {HOME}" in answer.lines[0]
    assert "--delete-data r1" in answer.lines[0]
    assert len(keys(lab)) == 1


def test_down_deletes_the_runs_objects_and_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made(lab)
    register(lab, "home", HOME)
    monkeypatch.setattr(bucket, "AT_ONCE", 2)
    for number in range(5):  # more than one call takes
        put(lab, f"r1/run/attempts/{number}.x")
        put(lab, f"r1/runs/lr{number}/step-000000000010-a0001.h5")
    put(lab, "r10/run/step-000000000010-a0001.h5")
    lab.client("s3").create_multipart_upload(Bucket=OWN, Key="r1/run/step-1.h5")
    tidy.down(lab.another(), "r1", "r1")
    assert keys(lab) == ["r10/run/step-000000000010-a0001.h5"]
    assert lab.client("s3").list_multipart_uploads(Bucket=OWN).get("Uploads", []) == []
    assert lab.another().parameters("/holdfast/r1") == {}
    assert lab.calls.index("DeleteObjects") < lab.calls.index("DeleteParameter")


def test_down_leaves_the_bucket_to_a_run_that_waits_for_its_first_machine(lab: Lab) -> None:
    made(lab)
    made(lab, run="r2")
    register(lab, "home", HOME)
    put(lab, "r1/run/step-000000000010-a0001.h5")
    tidy.down(lab.another(), "r1", "r1")
    assert keys(lab) == []
    assert "DeleteBucket" not in lab.calls


def test_down_never_deletes_a_bucket_of_the_users(lab: Lab) -> None:
    lab.client("s3").create_bucket(Bucket="mine")
    put(lab, "x/r1/run/step-000000000010-a0001.h5", "mine")
    register(lab, "home", "s3://mine/x/r1")
    tidy.down(lab.another(), "r1", "r1")
    assert keys(lab, "mine") == []
    assert "DeleteBucket" not in lab.calls


def test_gc_ends_old_uploads_of_the_run_only_when_told(lab: Lab) -> None:
    s3 = lab.client("s3")
    s3.create_bucket(Bucket=OWN)
    register(lab, "home", HOME)
    for key in ("r1/run/step-1.h5", "r2/run/step-1.h5"):
        s3.create_multipart_upload(Bucket=OWN, Key=key)
    began = s3.list_multipart_uploads(Bucket=OWN)["Uploads"][0]["Initiated"].timestamp()
    lab.clock[0] = began + 3600
    assert tidy.gc(lab.another(), "r1", delete=True).data["uploads"] == [], "it may still go on"
    lab.clock[0] = began + 90_000
    answer = tidy.gc(lab.another(), "r1")
    assert answer.data["uploads"] == ["r1/run/step-1.h5"]
    assert "nothing was deleted" in answer.lines[-1]
    assert len(s3.list_multipart_uploads(Bucket=OWN)["Uploads"]) == 2
    tidy.gc(lab.another(), "r1", delete=True)
    assert [u["Key"] for u in s3.list_multipart_uploads(Bucket=OWN)["Uploads"]] == ["r2/run/step-1.h5"]


def test_dry_run_changes_nothing(lab: Lab) -> None:
    launch.up(lab.another(dry_run=True), plan_of(home="s3"))
    assert lab.calls == []
    made(lab)
    register(lab, "home", HOME)
    put(lab, "r1/run/step-000000000010-a0001.h5")
    lab.calls.clear()
    tidy.down(lab.another(dry_run=True), "r1", "r1")
    tidy.gc(lab.another(dry_run=True), "r1", delete=True)
    assert lab.calls == []
    assert any(text.startswith("would delete 1 object(s)") for text in lab.said)


def test_status_shows_the_home(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    register(lab, "home", HOME)
    monkeypatch.setattr(look, "console", lambda account, instance: "")
    answer = look.status(lab.another(), "r1")
    assert answer.data["home"] == HOME
    words = "\n".join(answer.lines)
    assert f"home      {HOME}: no volume, any zone" in words
    assert "volume    " not in words


def test_render_needs_the_region(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", "r1", "--setup", "true", "--home", "s3://mine", "--", "train", "{run_dir}"]
    assert main([*words[:-3], "--policy", *words[-3:]], lab.client) == 0
    policy = json.loads(capsys.readouterr().out)
    assert "arn:aws:s3:::mine/r1/run/step-*" in json.dumps(policy)


def test_wrong_homes_are_64_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = ["--setup", "true", "--", "train", "{run_dir}"]
    for words, says in (
        (["--home", "efs"], "ebs, s3, or s3://BUCKET"),
        (["--home", "s3", "--size", "200"], "--size means nothing"),
    ):
        assert main(["up", "r1", *words, *trainer], lambda name: None) == 64
        assert says in capsys.readouterr().err


def test_no_region_is_said_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    from botocore.exceptions import NoRegionError

    def clients(name: str) -> Any:
        raise NoRegionError

    words = ["render", "r1", "--setup", "true", "--home", "s3://mine", "--", "train", "{run_dir}"]
    assert main(words, clients) == 78
    assert "aws configure" in capsys.readouterr().err


def test_place_of_a_register() -> None:
    assert bucket.place_of("s3://a/b/c") == bucket.Place("a", "b/c")
    assert str(bucket.place_of("s3://a/b/c/")) == "s3://a/b/c"
