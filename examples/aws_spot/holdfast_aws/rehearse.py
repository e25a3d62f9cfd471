"""`hf-aws rehearse`: an interruption on purpose, to see the run survive it.

With --fis-role: EC2's own spot interruption through the Fault Injection Service: notice, two minutes, reclaim. Without:
a notice file on the machine, through the session manager (a run made with `up --remote-shell`): the trainer hears it,
commits and pauses; nothing is reclaimed, and the run goes on when the file goes away.
"""

from __future__ import annotations

import json

from holdfast_aws.account import HUMAN, Account, Answer, CommandError
from holdfast_aws.cloud import RUN_TAG

NOTICE_FILE = "/run/holdfast/notice"


def rehearse(account: Account, run: str, fis_role: str = "", seconds: int = 120) -> Answer:
    machines = [machine for machine in account.machines(run) if machine["State"]["Name"] == "running"]
    if not machines:
        raise CommandError(HUMAN, f"no machine of {run} runs: hf-aws up first")
    name = machines[0]["InstanceId"]
    if fis_role:
        if machines[0].get("InstanceLifecycle") != "spot":
            raise CommandError(HUMAN, f"{name} is no spot machine: nothing interrupts it")
        return _interrupt(account, run, machines[0], fis_role)
    return _notice(account, run, name, seconds)


def _interrupt(account: Account, run: str, machine: dict[str, object], role: str) -> Answer:
    owner = account.ask("sts", "get_caller_identity")["Account"]
    region = str(machine["Placement"]["AvailabilityZone"])[:-1]  # type: ignore[index]
    made = account.change(
        "make an experiment",
        "fis",
        "create_experiment_template",
        description=f"Holdfast: a spot interruption of {run}",
        roleArn=role,
        stopConditions=[{"source": "none"}],
        targets={
            "machine": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceArns": [f"arn:aws:ec2:{region}:{owner}:instance/{machine['InstanceId']}"],
                "selectionMode": "ALL",
            }
        },
        actions={
            "interrupt": {
                "actionId": "aws:ec2:send-spot-instance-interruptions",
                "parameters": {"durationBeforeInterruption": "PT2M"},
                "targets": {"SpotInstances": "machine"},
            }
        },
        tags={RUN_TAG: run},
    )
    template = made["experimentTemplate"]["id"] if made else "(dry run)"
    account.change(
        f"interrupt {machine['InstanceId']} in two minutes",
        "fis",
        "start_experiment",
        experimentTemplateId=template,
    )
    account.change(f"forget the experiment {template}", "fis", "delete_experiment_template", id=template)
    return Answer({"run": run, "machine": machine["InstanceId"], "how": "fis"}, _watch(run))


def _notice(account: Account, run: str, name: str, seconds: int) -> Answer:
    notice = json.dumps({"action": "terminate", "in_seconds": seconds, "text": "rehearsal"})
    commands = [f"echo '{notice}' >{NOTICE_FILE}.new", f"mv {NOTICE_FILE}.new {NOTICE_FILE}"]
    commands += [f"sleep {seconds + 60}", f"rm -f {NOTICE_FILE}"]
    try:
        account.change(
            f"tell {name} that it goes away in {seconds} s",
            "ssm",
            "send_command",
            InstanceIds=[name],
            DocumentName="AWS-RunShellScript",
            Parameters={"commands": commands},
        )
    except CommandError as problem:
        raise CommandError(
            HUMAN,
            f"{problem}. Either --fis-role ARN (a role that FIS may take), or a run made with up --remote-shell",
        ) from problem
    return Answer({"run": run, "machine": name, "how": "notice file"}, _watch(run))


def _watch(run: str) -> list[str]:
    return [f"watch it: hf-aws status {run}; then send what `holdfast report` says of the run directory"]
