"""`hf-aws`: a training on spot machines, from the user's own computer. See ../README.md.

Exit codes: 0 done · 64 wrong options · 75 not now, try again · 78 refused, or a person must act.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from holdfast_aws import sweep_file
from holdfast_aws.account import HUMAN, OK, USAGE, Account, Answer, CommandError
from holdfast_aws.plan import OPEN_DRIVER_IMAGE, TYPES, LaunchPlan, UsageError
from holdfast_aws.plan import check as check_plan
from holdfast_aws.prices import EBS_PRICES

Command = Callable[[Account, argparse.Namespace], Answer]


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def main(words: Sequence[str], clients: Callable[[str], Any] | None = None) -> int:
    options, command = _options(list(words))
    try:
        account = Account(clients or _clients(options.region), dry_run=options.dry_run)
        answer = options.act(account, argparse.Namespace(**{**vars(options), "command": command}))
    except UsageError as error:
        return _fail(options, USAGE, str(error))
    except CommandError as problem:
        return _fail(options, problem.code, str(problem))
    if options.json:
        print(json.dumps({**answer.data, "exit_code": answer.code}, indent=1, default=str))
    else:
        for line in answer.lines:
            print(line)
    return int(answer.code)


def _fail(options: argparse.Namespace, code: int, message: str) -> int:
    if options.json:
        print(json.dumps({"error": message, "exit_code": code}))
    print(f"hf-aws: {message}", file=sys.stderr)
    return code


def _clients(region: str | None) -> Callable[[str], Any]:
    import boto3
    from botocore.config import Config

    session = boto3.Session(region_name=region)
    settings = Config(retries={"mode": "standard", "total_max_attempts": 5}, user_agent_extra="holdfast")
    return lambda name: session.client(name, config=settings)  # type: ignore[call-overload]


# Options


def _options(words: list[str]) -> tuple[argparse.Namespace, tuple[str, ...]]:
    command: list[str] = []
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    parser = Parser(prog="hf-aws", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def add(name: str, what: str, act: Command, *, run: bool = True) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=what, description=what)
        one.set_defaults(act=act)
        if run:
            one.add_argument("run", metavar="RUN", help="the run's name")
        one.add_argument("--region", help="default: that of aws configure")
        one.add_argument("--dry-run", action="store_true", help="change nothing, say what would be")
        one.add_argument("--json", action="store_true", help="one JSON object instead of lines")
        return one

    up = add(
        "up", "start a run, or go on with it: hf-aws up RUN --image IMAGE@sha256:… -- TRAINER {run_dir}…", _up
    )
    _plan_options(up)
    up.add_argument("--no-check", action="store_true", help="do not look first")
    up.add_argument(
        "--max-hours",
        type=float,
        help="then the run stops, all kept (0: never; left out: as it was said before)",
    )
    status = add("status", "where the run is, what it has cost, how much work is at risk", _status)
    _prices_option(status)
    logs = add("logs", "the last lines of the machine's console", _logs)
    logs.add_argument("--lines", type=int, default=50)
    stop = add("stop", "commit, then no machine; all is kept", _stop)
    stop.add_argument("--no-wait", action="store_true", help="do not wait until the machine is gone")
    mode = add("mode", "which machines come next: spot or on-demand", _mode)
    mode.add_argument("kind", choices=("spot", "on-demand"))
    mode.add_argument("--now", action="store_true", help="the present machine commits and is replaced")
    move = add("move", "to another zone; a volume follows", _move)
    move.add_argument("--zone", required=True, help="such as us-east-1b, or any")
    gc = add("gc", "what the run has left behind; deletes nothing without --delete", _gc)
    gc.add_argument("--delete", action="store_true")
    down = add("down", "no machine, no stack; the data stays", _down)
    down.add_argument(
        "--delete-data", metavar="RUN", default="", help="the run's name again: deletes its data, too"
    )
    render = add("render", "print the template (or with an option what is in it)", _render)
    _plan_options(render)
    render.add_argument("--user-data", action="store_true", help="the machine's cloud-config")
    render.add_argument("--policy", action="store_true", help="the machine's policy")
    check = add("check", "rights, quotas, machine image, machines a zone: before anything is created", _check)
    _plan_options(check)
    rehearse = add("rehearse", "an interruption on purpose", _rehearse)
    rehearse.add_argument(
        "--fis-role", default="", help="ARN of a role that the Fault Injection Service may take"
    )
    rehearse.add_argument("--seconds", type=int, default=120, help="of notice, without --fis-role")
    simulate = add("simulate", "money and hours: spot, with fallback, on-demand", _simulate, run=False)
    _simulate_options(simulate)
    return parser.parse_args(words), tuple(command)


def _plan_options(parser: argparse.ArgumentParser) -> None:
    default = LaunchPlan("", ())
    parser.add_argument("--gpu", choices=sorted(TYPES), default="any", help="which machines: %(choices)s")
    parser.add_argument("--types", default="", help="instance types with commas, instead of --gpu")
    parser.add_argument("--image", default="", help="container image by digest")
    parser.add_argument("--setup", default="", help="shell command that installs the programs, once a boot")
    parser.add_argument("--ami", default=OPEN_DRIVER_IMAGE, help="AMI, or SSM parameter that names one")
    parser.add_argument("--subnets", default="", help="with commas; default: the default network's")
    parser.add_argument(
        "--home",
        default=default.home,
        help="where checkpoints survive the machine: ebs, a volume that moves with the run from zone to zone; "
        "s3, any zone, no volume; s3://BUCKET/PREFIX, a bucket that exists (%(default)s)",
    )
    parser.add_argument(
        "--nvme",
        action="store_true",
        help="commit to the machine's own NVMe drives (RAID0), and copy each newest checkpoint home",
    )
    parser.add_argument("--size", type=int, default=default.size_gib, help="GiB of the volume (%(default)s)")
    parser.add_argument("--iops", type=int, default=default.iops)
    parser.add_argument("--throughput", type=int, default=default.throughput, help="MiB/s (%(default)s)")
    parser.add_argument(
        "--root-size", type=int, default=default.root_gib, help="GiB of the machine (%(default)s)"
    )
    parser.add_argument("--filesystem", default=default.filesystem, help="ext4 or xfs")
    parser.add_argument(
        "--fallback-minutes", type=int, default=0, help="without spot, then on-demand (0: never)"
    )
    parser.add_argument(
        "--rebalance", action="store_true", help="launch before the loss; the waiting one costs"
    )
    parser.add_argument(
        "--strategy",
        default=default.strategy,
        help="which spot pool: price-capacity-optimized, cheap among the deep ones; capacity-optimized, the deepest "
        "at any price (%(default)s; simulate compares them)",
    )
    parser.add_argument(
        "--standby",
        default="",
        help="when a second machine boots: never, on-notice, on-rebalance, always (on-notice with --home s3)",
    )
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--shared", default="", help="file system of --nodes, such as fs-1.fsx…@tcp:/x")
    parser.add_argument(
        "--mig-slices", type=int, default=0, help="cut the first GPU (A100, H100), for as many runs at once"
    )
    parser.add_argument(
        "--sweep",
        metavar="FILE",
        default="",
        help="the runs of --mig-slices, a JSON object a line: docs/sweeps.md",
    )
    parser.add_argument("--no-gpu", action="store_true", help="a machine without a GPU is well")
    parser.add_argument("--remote-shell", action="store_true", help="let the session manager in")


def _plan(options: argparse.Namespace) -> LaunchPlan:
    plan = LaunchPlan(
        run=options.run,
        command=options.command,
        types=tuple(options.types.split(",")) if options.types else TYPES[options.gpu],
        subnets=tuple(options.subnets.split(",")) if options.subnets else (),
        machine_image=options.ami,
        image=options.image,
        setup=options.setup,
        size_gib=options.size,
        iops=options.iops,
        throughput=options.throughput,
        root_gib=options.root_size,
        filesystem=options.filesystem,
        fallback_minutes=options.fallback_minutes,
        rebalance=options.rebalance,
        strategy=options.strategy,
        nodes=options.nodes,
        shared=options.shared,
        slices=options.mig_slices,
        sweep=sweep_file.read(options.sweep) if options.sweep else "",
        gpu=not options.no_gpu,
        remote_shell=options.remote_shell,
        home=options.home,
        standby=options.standby,
        nvme=options.nvme,
    )
    return check_plan(plan)


def _prices_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prices",
        metavar="FILE",
        default="",
        help="prices that come before the kit's: lines of NAME DOLLARS YYYY-MM-DD. A name is a type of machine, or "
        f"{', '.join(EBS_PRICES)} (a month)",
    )


def _simulate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draw", type=int, default=100, help="trainings (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24, help="of steps (%(default)s)")
    parser.add_argument("--fallback-minutes", type=int, default=20)
    parser.add_argument("--spot-price", type=float, default=0.40, help="dollars an hour (%(default)s)")
    parser.add_argument("--type", default="g5.xlarge", help="whose on-demand price counts (%(default)s)")
    parser.add_argument("--on-demand-price", type=float, help="dollars an hour (that of --type)")
    _prices_option(parser)
    parser.add_argument(
        "--drought", type=float, default=0.2, help="share of losses after which spot is empty"
    )
    parser.add_argument("--drought-hours", type=float, default=8, help="the longest")
    parser.add_argument("--missed", type=float, default=0.05, help="share of losses without a notice")
    parser.add_argument("--zones", type=int, default=3)
    parser.add_argument(
        "--price-spread", type=float, default=1.5, help="the dearest pool to the cheapest (%(default)s)"
    )
    parser.add_argument(
        "--life-spread",
        type=float,
        default=4,
        help="lives in the deepest pool to the shallowest (%(default)s)",
    )
    parser.add_argument(
        "--recommended", type=float, default=0.6, help="share of machines with a rebalance recommendation"
    )
    parser.add_argument("--lead", type=float, default=20, help="minutes from that to the end (%(default)s)")


# Commands. Imports are here so that --help is quick.


def _up(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.checks import check
    from holdfast_aws.launch import up

    plan = _plan(options)
    if not options.image and not options.setup:
        raise UsageError(
            "where are the programs? --image IMAGE@sha256:…, or --setup COMMAND that installs them"
        )
    if not options.no_check:
        found = check(account, plan)
        for line in found.lines:
            account.say(line)
        if found.code != OK:
            raise CommandError(HUMAN, "nothing was created; --no-check goes on all the same")
    return up(account, plan, options.max_hours)


def _check(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.checks import check

    options.command = options.command or ("{run_dir}",)
    return check(account, _plan(options))


def _render(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws import instance_types
    from holdfast_aws.bucket import resolved
    from holdfast_aws.template import template
    from holdfast_aws.user_data import cloud_config

    plan = _plan(options)
    if plan.nodes > 1 or plan.nvme:  # a template without EFA, or drives that are not there, would say nothing
        plan = instance_types.resolved(account, plan)
    plan = resolved(account, plan)
    if options.user_data:
        return Answer({"user_data": cloud_config(plan)}, [cloud_config(plan)])
    made = plan.policy if options.policy else template(plan)
    return Answer(made, [json.dumps(made, indent=1)])


def _status(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.look import status
    from holdfast_aws.prices import with_file

    return status(account, options.run, with_file(options.prices))


def _logs(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.look import logs

    return logs(account, options.run, options.lines)


def _stop(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.steer import stop

    return stop(account, options.run, wait=not options.no_wait)


def _mode(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.steer import mode

    return mode(account, options.run, options.kind, now=options.now)


def _move(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.steer import move

    return move(account, options.run, options.zone)


def _gc(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.tidy import gc

    return gc(account, options.run, delete=options.delete)


def _down(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.tidy import down

    return down(account, options.run, options.delete_data)


def _rehearse(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.rehearse import rehearse

    return rehearse(account, options.run, options.fis_role, options.seconds)


def _simulate(account: Account, options: argparse.Namespace) -> Answer:
    from holdfast_aws.prices import with_file
    from holdfast_aws.simulate import Assumptions, compare
    from holdfast_aws.simulate_standby import beside

    if options.draw < 1 or options.zones < 1 or not 0 < options.hours <= 1000 or options.fallback_minutes < 1:
        raise UsageError(
            "simulate: --draw, --zones, --hours (1000 at most) and --fallback-minutes are above 0"
        )
    if not 1 <= options.price_spread <= 100 or not 1 <= options.life_spread <= 100:
        raise UsageError("simulate: --price-spread and --life-spread are 1 to 100")
    if not 0 <= options.recommended <= 1 or options.lead < 0:
        raise UsageError("simulate: --recommended is a share from 0 to 1, --lead a time in minutes")
    prices = with_file(options.prices)
    if options.on_demand_price is None and options.type not in prices:
        raise UsageError(
            f"simulate: what does {options.type} cost? --on-demand-price DOLLARS, or a line of --prices FILE"
        )
    given = Assumptions(
        work_hours=options.hours,
        spot_price=options.spot_price,
        on_demand_price=prices[options.type].dollars
        if options.on_demand_price is None
        else options.on_demand_price,
        missed=options.missed,
        drought=options.drought,
        drought_hours=options.drought_hours,
        zones=options.zones,
        price_spread=options.price_spread,
        life_spread=options.life_spread,
        recommended=options.recommended,
        lead=options.lead,
    )
    answer = compare(given, options.draw, options.seed, options.fallback_minutes)
    return beside(answer, given, options.draw, options.seed)
