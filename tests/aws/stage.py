"""One run on stage: an account with its group, one machine at a time, and on it the kit's own scripts, the real
`holdfast supervise`, and the real trainer on a volume whose bytes are real.

The stage plays what lies between them: systemd, the metadata service, EC2's axe. AWS's time is virtual, the
trainer's is not: AWS's passes only in `Kernel.sleep`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import boto3
import plans
from disks import Kernel
from rights import Rights
from strict import REGION
from test_metadata import Service

from holdfast_aws import launch, machine, rehearse, steer
from holdfast_aws.account import Account
from holdfast_aws.commands import Done
from holdfast_aws.plan import LaunchPlan
from holdfast_aws.registers import Book, parse, path_of
from holdfast_aws.run_state import RunState, checkpoints, ledger, newest_attempt, read_state

KIT = Path(__file__).resolve().parents[2] / "examples" / "aws_spot"
BIN = Path(os.environ["HOLDFAST_BUILD"]) / "bin"
RUN = "r1"
PATIENCE = 120.0  # real seconds

# `hf` as the machine's scripts call it: asks the test, which has the double of AWS, and waits for the exit code.
HF = """#!/bin/bash
ask=$(mktemp {asked}/XXXXXXXX)
printf '%s\\n' "$@" >"$ask"
mv "$ask" "$ask.ask"
until [[ -e $ask.answer ]]; do sleep 0.05; done
exit "$(<"$ask.answer")"
"""

# systemd, for what follows the trainer's end: it starts a unit, or says whether a job stops this one.
SYSTEMCTL = """#!/bin/bash
case "$*" in
  "start --no-block hf-finish.service") exec {root}/home/hf finish --exit-code 0 ;;
  "start --no-block hf-park.service") exec {root}/home/hf park ;;
  "show -P Job holdfast.service") cat {root}/job ;;
esac
"""


class Stage:
    place = "volume"  # `hf volume up` is what holdfast-volume.service runs

    def __init__(self, root: Path, kernel: Kernel, service: Service) -> None:
        self.root = root
        self.kernel = kernel
        self.service = service
        self.mount = root / "mount"
        self.run_dir = self.mount / "run"
        self.scripts = KIT / "machine"
        self.instance = ""
        self.trainer: subprocess.Popen[bytes] | None = None
        self.acknowledged = -1  # newest step that the trainer has told durable, in any life
        self.zones: list[str] = []
        self.attempts: list[int] = []  # the first of each life
        self.hooks: list[str] = []
        self.rights = Rights(kernel.aws, RUN)
        for folder in ("home", "etc", "asked", "runtime", "bin"):
            (root / folder).mkdir()
        for program, text in (("home/hf", HF), ("bin/systemctl", SYSTEMCTL)):
            (root / program).write_text(text.format(asked=root / "asked", root=root))
            (root / program).chmod(0o755)
        (root / "job").touch()

    # The user.

    def account(self) -> Account:
        return Account(
            lambda name: boto3.client(name, region_name=REGION),  # type: ignore[call-overload]
            say=lambda _: None,
            sleep=self.kernel.sleep,
            now=self.kernel.now,
        )

    def plan(self, command: Sequence[str]) -> LaunchPlan:
        return plans.plan(
            machine_image="ami-12345678", vpc="", subnets=(), image="", setup="true", command=tuple(command)
        )

    def up(self, command: Sequence[str]) -> None:
        launch.up(self.account(), self.plan(command))

    def move(self, zone: str) -> None:
        steer.move(self.account(), RUN, zone)

    def rehearse(self, seconds: int) -> None:
        """`hf-aws rehearse`: the session manager runs its commands on the machine."""
        stage = self

        class Manager:
            def send_command(self, InstanceIds: list[str], **asked: Any) -> None:  # noqa: N803
                assert InstanceIds == [stage.instance]
                here = str(stage.root / "runtime" / "notice")
                script = "\n".join(asked["Parameters"]["commands"]).replace(rehearse.NOTICE_FILE, here)
                subprocess.Popen(["bash", "-c", script], env=stage._environment())

        account = self.account()
        real = account.client
        account.client = lambda name: Manager() if name == "ssm" else real(name)  # type: ignore[method-assign]
        rehearse.rehearse(account, RUN, seconds=seconds)

    def desired(self) -> int:
        return sum(group["DesiredCapacity"] for group in self.account().groups(RUN))

    def machines(self) -> list[Any]:
        return [m for m in self.account().machines(RUN) if m["State"]["Name"] == "running"]

    def book(self) -> Book:
        return parse(RUN, self.account().parameters(path_of(RUN)))

    # The machine.

    def boots_in(self, zone: str, command: Sequence[str]) -> None:
        """The group launches a machine where there is capacity; its units start."""
        self.kernel.aws.groups.capacity = {zone: 1}
        until = self.kernel.now() + 900
        while not (found := self.machines()):
            assert self.kernel.now() < until, "the group launches no machine"
            self.kernel.sleep(10)
        self.instance = found[0]["InstanceId"]
        assert found[0]["Placement"]["AvailabilityZone"] == zone
        self.zones.append(zone)
        self.service.answers = {
            "instance-id": self.instance,
            "placement/availability-zone": zone,
            "placement/region": REGION,
        }
        (self.root / "runtime" / "notice").unlink(missing_ok=True)
        (self.root / "etc" / "command").write_text("".join(f"{word}\n" for word in command))
        for _ in range(3):  # systemd starts it again after 75
            code = self.hf(self.place, "up")
            if code != 75:
                break
            self.kernel.sleep(30)
        assert code == 0
        newest = self.newest_checkpoint()
        assert newest >= self.acknowledged, f"step {self.acknowledged} was acknowledged, {newest} is there"
        before = newest_attempt(self.run_dir)
        self.log = self.root / f"log-{len(self.zones)}"
        with self.log.open("wb") as log:
            self.trainer = subprocess.Popen(
                [str(self.scripts / "hf-run")], env=self._environment(), stdout=log, stderr=log
            )
        self.until(lambda: newest_attempt(self.run_dir) > before, "the trainer begins an attempt")
        self.attempts.append(before + 1)
        self.until(lambda: bool(self.events("start")), "the trainer tells where it goes on")
        begins = self.events("start")[0]["step"]
        assert begins >= self.acknowledged, f"{self.acknowledged} was acknowledged, it goes on at {begins}"

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}:{BIN}:/usr/bin:/bin",
            "HF_HOME": str(self.root / "home"),
            "HF_ETC": str(self.root / "etc"),
            "HF_MOUNT": str(self.mount),
            "HF_RUNTIME": str(self.root / "runtime"),
            "HOLDFAST_SOURCES": "signal,file,deadline,ec2",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.service.url,
            "OMP_NUM_THREADS": "1",
        }

    def hf(self, *words: str) -> int:
        """A command of the machine, with the machine's rights and no other."""
        before, self.kernel.aws.authorize = self.kernel.aws.authorize, self.rights.allow
        try:
            return machine.main(list(words))
        finally:
            self.kernel.aws.authorize = before

    def until(self, holds: Callable[[], Any], what: str) -> None:
        """Answers the hooks meanwhile. The trainer's supervisor must live."""
        end = time.monotonic() + PATIENCE
        while not holds():
            self._answer()
            assert self.trainer is not None
            assert self.trainer.poll() is None, f"it ended before {what}: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < end, f"in vain: {what}: {self.log.read_text()[-2000:]}"
            time.sleep(0.02)

    def ends(self) -> int:
        """The trainer's service, with what systemd runs after it."""
        assert self.trainer is not None
        end = time.monotonic() + PATIENCE
        while self.trainer.poll() is None:
            self._answer()
            assert time.monotonic() < end, self.log.read_text()[-2000:]
            time.sleep(0.02)
        code = self.trainer.returncode
        self._remember()
        after = subprocess.Popen(
            [str(self.scripts / "hf-ended"), "holdfast.service"],
            env={**self._environment(), "EXIT_CODE": "exited", "EXIT_STATUS": str(code)},
        )
        while after.poll() is None:
            self._answer()
            time.sleep(0.02)
        assert after.returncode == 0
        return code

    def systemctl(self, command: Sequence[str], limit: float = 0) -> Done:
        if list(command) == ["systemctl", "stop", "holdfast.service"]:
            assert self.trainer is not None
            (self.root / "job").write_text("17\n")
            self.trainer.send_signal(signal.SIGTERM)  # KillMode=mixed: to the supervisor alone
            ended = Done(0, f"ended with {self.ends()}")
            (self.root / "job").write_text("")
            return ended
        if list(command)[:2] == ["systemctl", "show"]:
            return Done(0, "ActiveState=inactive")
        assert list(command) == ["systemctl", "stop", "holdfast-volume.service"], command
        return Done(self.hf(self.place, "down"), "")

    def _answer(self) -> None:
        for ask in (self.root / "asked").glob("*.ask"):
            words = ask.read_text().splitlines()
            ask.unlink()
            self.hooks.append(" ".join(words))
            answer = self.hf(*words)
            new = ask.with_suffix(".new")
            new.write_text(f"{answer}\n")
            new.rename(ask.with_suffix(".answer"))

    # What the volume says.

    def newest_checkpoint(self) -> int:
        files = checkpoints(self.run_dir)
        return int(files[0].name.split("-")[1]) if files else -1

    def state(self) -> RunState | None:
        return read_state(self.run_dir)

    def durable(self) -> int:
        state = self.state()
        return state.durable_step if state else -1

    def events(self, name: str) -> list[Any]:
        """Of the newest attempt."""
        path = ledger(self.run_dir, newest_attempt(self.run_dir))
        lines = path.read_text().splitlines() if path.exists() else []
        told = []
        for line in lines:
            with contextlib.suppress(ValueError):
                told.append(json.loads(line))
        return [line for line in told if line.get("event") == name]

    def trains(self, steps: int) -> None:
        """So many more steps are durable."""
        goal = max(self.durable(), self.acknowledged) + steps
        self.until(lambda: self.durable() >= goal, f"step {goal} is durable")

    # EC2.

    def announce(self, seconds: int) -> None:
        """A spot interruption, as the metadata service tells it."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
        self.service.answers["spot/instance-action"] = json.dumps({"action": "terminate", "time": at})

    def axe(self) -> None:
        """The machine is gone with all its processes; what it had not written is lost."""
        self._remember()
        self.kernel.disks.cut(self.mount)
        self.end_processes()
        self.kernel.disks.unplug(self.mount)
        boto3.client("ec2", region_name=REGION).terminate_instances(InstanceIds=[self.instance])
        self.kernel.sleep(1)

    def _remember(self) -> None:
        self.acknowledged = max(self.acknowledged, self.durable())

    def pids(self, program: str = "") -> list[int]:
        """The machine's processes: those that have its HF_HOME."""
        mark, found = f"HF_HOME={self.root / 'home'}\0".encode(), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (
                    entry.name.isdigit()
                    and mark in (entry / "environ").read_bytes()
                    and (entry / "exe").readlink().name.startswith(program)
                ):
                    found.append(int(entry.name))
        return found

    def end_processes(self) -> None:
        while left := self.pids():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.trainer is not None:
                self.trainer.wait()
            time.sleep(0.01)
