"""`hf-aws check`: everything that can refuse a run, before anything is created. It changes nothing.

Each finding is good, bad or unknown (the user may not ask). Exit code 78 when one is bad.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdfast_aws import bucket
from holdfast_aws.account import HUMAN, OK, Account, Answer, CommandError
from holdfast_aws.instance_types import BEFORE_TURING, described, drives_gb, efa_of_all, gpus, no_efa
from holdfast_aws.launch import body, ready, with_network, zones_that_offer
from holdfast_aws.plan import OPEN_DRIVER_IMAGE, LaunchPlan, UsageError

# How the names of EC2's quotas begin or end. Each counts the vCPUs of the families that its name lists.
QUOTAS = {"spot": "Spot Instance Requests", "on-demand": "Running On-Demand"}
NEEDED = (
    "autoscaling:CreateAutoScalingGroup",
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "cloudformation:CreateStack",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateSecurityGroup",
    "ec2:RunInstances",
    "iam:CreateRole",
    "iam:PassRole",
    "iam:PutRolePolicy",
    "ssm:GetParametersByPath",
    "ssm:PutParameter",
)
NEEDED_FOR_S3 = (
    "s3:CreateBucket",
    "s3:GetLifecycleConfiguration",
    "s3:ListBucket",
    "s3:PutBucketPublicAccessBlock",
    "s3:PutEncryptionConfiguration",
    "s3:PutLifecycleConfiguration",
)


@dataclass(frozen=True)
class Finding:
    what: str
    good: bool | None
    says: str


def check(account: Account, plan: LaunchPlan) -> Answer:
    findings = [_identity(account)]
    if findings[0].good is not False:
        findings += [
            _rights(account, plan),
            _machine_image(account, plan),
            *([] if plan.in_s3 else _default_key(account)),
            _zones(account, plan),
            *_quotas(account, plan),
            *_home(account, plan),
            *_types(account, plan),
            _network(account, plan),
        ]
    marks = {True: "ok     ", False: "BAD    ", None: "unknown"}
    bad = any(finding.good is False for finding in findings)
    return Answer(
        {"findings": [{"what": f.what, "good": f.good, "says": f.says} for f in findings]},
        [f"{marks[f.good]}  {f.what}: {f.says}" for f in findings],
        HUMAN if bad else OK,
    )


def _identity(account: Account) -> Finding:
    try:
        me = account.ask("sts", "get_caller_identity")["Arn"]
        if not me.startswith("arn:aws:"):  # the machines' policy names all things so
            return Finding("account", False, f"{me}: this kit is not for GovCloud or China")
        return Finding("account", True, me)
    except CommandError as problem:
        return Finding("account", False, str(problem))


def _rights(account: Account, plan: LaunchPlan) -> Finding:
    """By IAM's own simulator, which some users may not ask."""
    try:
        me = account.ask("sts", "get_caller_identity")["Arn"]
        if ":assumed-role/" in me:
            role = me.split("/")[1]
            me = account.ask("iam", "get_role", RoleName=role)["Role"]["Arn"]
        needed = [*NEEDED, *(NEEDED_FOR_S3 if plan.in_s3 else ())]
        answer = account.ask("iam", "simulate_principal_policy", PolicySourceArn=me, ActionNames=needed)
    except (
        Exception
    ) as problem:  # also what a double does not know: this is a question, never a reason to stop
        return Finding("rights", None, f"IAM does not tell ({problem})")
    denied = [
        one["EvalActionName"] for one in answer["EvaluationResults"] if one["EvalDecision"] != "allowed"
    ]
    if denied:
        return Finding(
            "rights", False, f"this user may not {', '.join(denied)}: ask the account's administrator"
        )
    return Finding("rights", True, f"all {len(needed)} that are needed")


def _machine_image(account: Account, plan: LaunchPlan) -> Finding:
    try:
        name = plan.machine_image
        if not name.startswith("ami-"):
            name = account.ask("ssm", "get_parameter", Name=name)["Parameter"]["Value"]
        images = account.ask("ec2", "describe_images", ImageIds=[name])["Images"]
    except CommandError as problem:
        return Finding("machine image", False, f"{plan.machine_image}: {problem}; name another by --ami")
    if not images or images[0].get("State") != "available":
        return Finding(
            "machine image", False, f"{name} is not available in this region: name another by --ami"
        )
    image = images[0]
    if image.get("RootDeviceName") != "/dev/sda1":
        root = image.get("RootDeviceName")
        return Finding(
            "machine image", False, f"{name} boots from {root}, this kit knows /dev/sda1 (Ubuntu, Debian)"
        )
    least = max(
        (d["Ebs"].get("VolumeSize", 0) for d in image.get("BlockDeviceMappings", []) if "Ebs" in d), default=0
    )
    if least > plan.root_gib:
        return Finding("machine image", False, f"{name} needs --root-size {least}")
    return Finding("machine image", True, f"{name} {image.get('Name', '')}".strip())


def _default_key(account: Account) -> list[Finding]:
    """Of EBS. The role of the machines has no right to any key but AWS's own."""
    try:
        if not account.ask("ec2", "get_ebs_encryption_by_default")["EbsEncryptionByDefault"]:
            return []
        key = account.ask("ec2", "get_ebs_default_kms_key_id")["KmsKeyId"]
    except Exception:  # this user may not ask, or a double does not know: a hint, never a reason to stop
        return []
    if key.endswith("alias/aws/ebs"):
        return []
    says = f"EBS encrypts by default with {key}: its policy must let the role of the machines use it"
    return [Finding("encryption", None, says)]


def _zones(account: Account, plan: LaunchPlan) -> Finding:
    try:
        offered = zones_that_offer(account, plan.types)
    except CommandError as problem:
        return Finding("machines", None, str(problem))
    if not offered:
        return Finding("machines", False, f"no zone of this region offers {', '.join(plan.types)}")
    text = "; ".join(f"{zone}: {', '.join(sorted(types))}" for zone, types in sorted(offered.items()))
    missing = set(plan.types) - set().union(*offered.values())
    return Finding("machines", True, text + (f" (nowhere: {', '.join(sorted(missing))})" if missing else ""))


def _quotas(account: Account, plan: LaunchPlan) -> list[Finding]:
    try:
        quotas = list(
            account.pages("service-quotas", "list_aws_default_service_quotas", "Quotas", ServiceCode="ec2")
        )
        found = described(account, plan.types)
    except Exception as problem:  # as above
        return [Finding("quotas", None, f"cannot be asked ({problem})")]
    needs = {kind: plan.nodes * one["VCpuInfo"]["DefaultVCpus"] for kind, one in sorted(found.items())}
    findings = []
    for how in ["spot"] + (["on-demand"] if plan.fallback_minutes else []):
        counted: dict[str, dict[str, int]] = {}
        names = {}
        for kind, vcpus in needs.items():
            quota = _quota_of(quotas, how, kind)
            if quota is None:
                findings.append(
                    Finding(f"quota of {how} {kind}", None, "no quota of EC2 has its family in its name")
                )
            else:
                counted.setdefault(quota["QuotaCode"], {})[kind] = vcpus
                names[quota["QuotaCode"]] = quota["QuotaName"]
        findings += [_quota(account, code, names[code], types) for code, types in counted.items()]
    return findings


def _quota_of(quotas: list[Any], how: str, kind: str) -> Any | None:
    """That which counts the type: "All P5 Spot …" before "All P Spot …", "G and VT" also for gr6."""
    match = re.match(r"([a-z]+)(\d*)", kind)
    family, generation = match.groups() if match else (kind, "")
    candidates = [quota for quota in quotas if QUOTAS[how] in quota["QuotaName"]]
    for wanted in (family + generation, family, family[:1]):
        for quota in candidates:
            if wanted.upper() in re.findall(r"\w+", quota["QuotaName"].upper()):
                return quota
    return None


def _quota(account: Account, code: str, name: str, needs: dict[str, int]) -> Finding:
    what = f"quota {name}"
    try:
        quota = account.ask("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code)
        have = quota["Quota"]["Value"]
    except Exception as problem:  # as above
        return Finding(what, None, f"cannot be asked ({problem})")
    fits = sorted(kind for kind, count in needs.items() if count <= have)
    if not fits:
        least = min(needs.values())
        return Finding(
            what,
            False,
            f"{have:.0f} vCPUs, {least} are needed: ask for {least} (Service Quotas, EC2, {code})",
        )
    return Finding(what, True, f"{have:.0f} vCPUs, enough for {', '.join(fits)}")


def _home(account: Account, plan: LaunchPlan) -> list[Finding]:
    if not plan.in_s3:
        return []
    try:
        ready = bucket.resolved(account, plan)
        good, says = bucket.troubles(account, ready)
    except CommandError as problem:
        return [Finding("home", False, str(problem))]
    try:
        hint = bucket.endpoint_hint(account, with_network(account, ready))
    except CommandError as problem:
        return [Finding("home", good, says), Finding("endpoint", None, str(problem))]
    return [Finding("home", good, says), Finding("endpoint", True, hint)]


def _types(account: Account, plan: LaunchPlan) -> list[Finding]:
    """What the machines have, as EC2 describes them."""
    try:
        found = described(account, plan.types)
    except CommandError as problem:
        return [Finding("GPUs", None, str(problem))]
    findings = [_gpus(plan, found)] if plan.gpu and found else []
    if plan.nvme and found:
        findings.append(_drives(found))
    if plan.nodes > 1 and found:
        findings.append(_efa(found))
    return findings


def _gpus(plan: LaunchPlan, found: dict[str, Any]) -> Finding:
    without = sorted(kind for kind, one in found.items() if not gpus(one))
    if without:
        return Finding(
            "GPUs", False, f"{', '.join(without)} has no NVIDIA GPU: name other --types, or --no-gpu"
        )
    old = sorted(
        kind for kind, one in found.items() if any(gpu["Name"] in BEFORE_TURING for gpu in gpus(one))
    )
    if old and plan.machine_image == OPEN_DRIVER_IMAGE:
        return Finding(
            "GPUs",
            False,
            f"the open driver of the default AMI does not run on {', '.join(old)}: name one with the proprietary "
            "driver by --ami",
        )
    each = [
        f"{kind}: {gpu['Count']} x {gpu['Name']}" for kind, one in sorted(found.items()) for gpu in gpus(one)
    ]
    return Finding("GPUs", True, "; ".join(each))


def _drives(found: dict[str, Any]) -> Finding:
    without = sorted(kind for kind, one in found.items() if not drives_gb(one))
    if without:
        return Finding(
            "NVMe drives",
            False,
            f"{', '.join(without)} has none of its own: leave --nvme out, or name other --types",
        )
    sizes = ", ".join(f"{kind}: {drives_gb(one)} GB" for kind, one in sorted(found.items()))
    return Finding("NVMe drives", True, sizes)


def _efa(found: dict[str, Any]) -> Finding:
    try:
        cards = efa_of_all(found)
    except UsageError as problem:
        return Finding("EFA", False, str(problem))
    return Finding("EFA", True, f"{len(cards)} network cards a node" if cards else no_efa(found))


def _network(account: Account, plan: LaunchPlan) -> Finding:
    try:
        whole = ready(account, plan)
        size = len(body(whole))
    except (CommandError, UsageError) as problem:
        return Finding("network", False, str(problem))
    return Finding(
        "network", True, f"{len(whole.subnets)} subnet(s) of {whole.vpc}; the template has {size} bytes"
    )
