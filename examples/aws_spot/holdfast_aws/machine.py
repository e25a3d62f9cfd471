"""The commands of a machine of the run. Settings come from the environment, see settings.py.

    hf volume up | down | status    find, make or move the run's volume and mount it; give it back; look
    hf home up | down               the same for a run whose checkpoints are in S3: its register; nothing to give back
    hf finish --exit-code N         end the run if all of it is complete, and the trainer ended with 0
    hf park                         a person must look: wait half an hour, then stop the run
    hf health                       look at the worker; every 30 seconds
    hf sick                         report this instance as Unhealthy; the third in a row is parked
    hf nodes COUNT                  which of several nodes this is, in the words of `holdfast launch`
    hf standby                      hear notices, ask for a second machine, hand over; it does not end
    hf beacon                       one line on the console, for hf-aws status
    hf lead-snapshot                a snapshot ahead of a move

Exit codes: 0 done, 75 try again later, 78 a person must look, 64 wrong use.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast_aws.beacon import beacon, uptime
from holdfast_aws.cloud import Cloud, Group
from holdfast_aws.commands import run
from holdfast_aws.finish import finish, park
from holdfast_aws.health import Health, give_up
from holdfast_aws.metadata import Metadata
from holdfast_aws.services import TRAINER, busy, leaving
from holdfast_aws.settings import Settings, from_environment
from holdfast_aws.stop import HUMAN, OK, RETRY, StopError

WRONG_USE = 64
WAIT = 3 * 3600.0  # seconds that `hf volume up` may end with 75
WAITS = Path("/run/holdfast/waits-for-volume")


class SteadyClock:
    """Unix seconds that no correction of the time moves."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def say(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    command = " ".join(words[:2] if words[:1] in (["volume"], ["home"]) else words[:1])
    if command in ("-h", "--help"):
        print(__doc__ or "the commands are described in machine.py")
        return OK
    try:
        return _carry_out(command, words, from_environment(os.environ), SteadyClock())
    except StopError as stop:
        say(stop.message)
        return stop.code


def _carry_out(command: str, words: Sequence[str], settings: Settings, clock: SteadyClock) -> int:
    metadata = Metadata(clock, settings.imds)
    if command == "health":
        here = metadata.machine
        return Health(lambda: _aws(here().region), clock, settings, metadata, run, say=say).tick()
    if command == "beacon":
        return beacon(
            lambda: _aws(metadata.machine().region),
            clock,
            settings.run,
            settings.run_dirs,
            settings.volume_dirs,
            lambda text: Path("/dev/console").write_text(text, "ascii"),
            time.time() - uptime(),
            lambda: metadata.machine().instance,
        )
    if command == "home down":
        return OK
    me = metadata.machine()
    if command == "nodes":
        import boto3

        from holdfast_aws import nodes

        if len(words) != 2 or not words[1].isdigit():
            say("how many nodes? hf nodes COUNT")
            return WRONG_USE
        ec2 = boto3.client("ec2", region_name=me.region)
        print(*nodes.wait_for_all(lambda: nodes.of_run(ec2, settings.run), clock, me.instance, int(words[1])))
        return OK
    cloud = _aws(me.region)
    if command in ("volume up", "volume down", "volume status"):
        from holdfast_aws.executor import Executor
        from holdfast_aws.linux_host import LinuxHost

        executor = Executor(cloud, LinuxHost(settings, me.instance), clock, settings, me, say=say)
        code = {"up": executor.up, "down": executor.down, "status": executor.status}[words[1]]()
        return not_for_ever(code, time.time()) if words[1] == "up" else code
    if command == "home up":
        from holdfast_aws.home import home_up

        code = home_up(cloud, clock, settings.run, settings.s3, say)
        if code != OK or settings.standby == "never":
            return code
        from holdfast_aws.standby import Gate

        return Gate(cloud, clock, settings.run, me.instance, say).wait()
    if command == "standby":
        from holdfast_aws.standby import Watch

        return Watch(
            cloud, clock, settings.run, settings.standby, me.instance, metadata, run, say=say
        ).forever()
    if command == "finish":
        return finish(
            cloud,
            clock,
            settings.run,
            settings.run_dirs,
            _exit_code(words),
            say,
            two_tiers=settings.two_tiers,
            busy=lambda: busy(run),
        )
    if command == "park":

        def why_not() -> str:
            if leaving(metadata, say):
                return "the group terminates this machine"
            return f"{TRAINER} trains" if busy(run) else ""

        def beside() -> Group | None:
            if settings.standby == "never":
                return None
            from holdfast_aws.standby import where_another_trains

            return where_another_trains(cloud, settings.run, me.instance)

        return park(cloud, clock, settings.run, me.instance, say, why_not=why_not, beside=beside)
    if command == "sick":
        return give_up(cloud, settings, me.instance, run, say)
    if command == "lead-snapshot":
        from holdfast_aws.lead_snapshot import lead_snapshot

        return lead_snapshot(cloud, clock, settings.run, me.instance, say)
    say(f"unknown command {command!r} (hf --help)")
    return WRONG_USE


def not_for_ever(code: int, now: float, since: Path = WAITS) -> int:
    """75 becomes 78 when all tries have ended so for `WAIT`: the machine is paid for, and nobody is told.

    `since`: a file that is as old as the first of them.
    """
    if code != RETRY:
        since.unlink(missing_ok=True)
        return code
    if not since.exists():
        since.parent.mkdir(parents=True, exist_ok=True)
        since.touch()
        os.utime(since, (now, now))
    waited = now - since.stat().st_mtime
    if waited < WAIT:
        return RETRY
    since.unlink()
    say(
        f"this machine has waited for the run's volume for {waited / 3600:.1f} h, paid for: a person must look"
    )
    return HUMAN


def _aws(region: str) -> Cloud:
    from holdfast_aws.aws import Aws  # half a second, which a healthy tick does not need

    return Aws(region)


def _exit_code(words: Sequence[str]) -> int | None:
    """--exit-code N; None when nobody says it."""
    told = words[2] if words[1:2] == ["--exit-code"] and len(words) == 3 else ""
    return int(told) if told.isascii() and told.isdigit() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
