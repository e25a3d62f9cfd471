"""One Auto Scaling group and its machines, each with the real `hf home up` and `hf standby`, in virtual time.

    play = Play(FakeGroup, "on-notice")
    play.run(300)
    play.holder.notice(120)
    play.run(600)
    play.check_settled()

After each call, and each tick, at most one machine trains.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from virtual import KilledError, VirtualClock

from holdfast_aws.cloud import CloudError, Group
from holdfast_aws.commands import Done
from holdfast_aws.standby import ALWAYS, BASE, Gate, Watch

RUN = "r1"
TICK = 5.0
HEALTH = 30.0  # seconds between two looks of `hf health`
BOOT = 60.0  # seconds from a running instance to `hf home up`


class FakeGroup:
    """A group as Auto Scaling has it; test_standby.py plays the same on the strict double."""

    LAUNCH = 30.0
    NOTICES = 60.0  # seconds until the group knows that an instance is gone

    def __init__(self, clock: VirtualClock, most: int, name: str = "spot", desired: int = BASE) -> None:
        self.clock = clock
        self.name = name
        self.desired, self.most = desired, most
        self.room: int | None = None  # spot machines that there are; None: enough
        self.registers: set[str] = set()
        self.members: dict[str, str] = {}
        self.gone: dict[str, float] = {}  # instance -> when it went
        self._coming: list[float] = []
        self._numbers = itertools.count(1)

    def settle(self) -> None:
        now = self.clock.now()
        for name, at in list(self.gone.items()):
            if now >= at + self.NOTICES:
                self.members.pop(name, None)
        there = [name for name, state in self.members.items() if state == "InService"]
        missing = self.desired - len(there) - len(self._coming)
        self._coming += [now + self.LAUNCH] * missing
        for _ in range(-missing):
            if self._coming:
                self._coming.pop()
            else:
                self._end(there.pop())  # the newest
        for at in [at for at in self._coming if now >= at]:
            if self.room is None or len(self.members) - len(self.gone.keys() & self.members) < self.room:
                self._coming.remove(at)
                # Names in no order, as EC2's.
                number = next(self._numbers)
                self.members[f"i-{number * 7919 % 1000:03}{number:02}{self.name[0]}"] = "InService"

    def living(self) -> list[str]:
        return [name for name in self.members if name not in self.gone]

    def leaving(self, instance: str) -> bool:
        return self.members[instance] == "Terminating:Wait"

    def reclaim(self, instance: str) -> None:
        self.gone.setdefault(instance, self.clock.now())

    def complete(self, instance: str) -> None:
        """The machine lets its hook go."""
        del self.members[instance]

    def _end(self, instance: str) -> None:
        self.members[instance] = "Terminating:Wait"

    # Cloud.

    def put_once(self, name: str, value: str) -> bool:
        new = name not in self.registers
        self.registers.add(name)
        return new

    def marks(self, run: str, instances: Sequence[str]) -> dict[str, frozenset[str]]:
        return {
            each: frozenset(
                what
                for what in ("ready", "began", "over")
                if f"/holdfast/{run}/crew/{each}/{what}" in self.registers
            )
            for each in instances
        }

    def groups(self, run: str) -> list[Group]:
        return [Group(self.name, self.desired, self.most, dict(self.members))]

    def group_of(self, instance: str) -> str | None:
        return self.name if instance in self.members else None

    def set_desired(self, group: str, capacity: int) -> None:
        if not 0 <= capacity <= self.most:
            raise CloudError("ValidationError", f"New SetDesiredCapacity value {capacity} is out of range")
        self.desired = capacity
        self.settle()

    def leave(self, instance: str, *, fewer: bool) -> None:
        if self.members.get(instance) != "InService":
            raise CloudError("ValidationError", "Instance Id not found")
        if fewer:
            self.desired -= 1
        self._end(instance)
        self.settle()


class TwoGroups:
    """With --fallback-minutes; the test is the alarms. What is said of neither group is said of spot."""

    def __init__(self, clock: VirtualClock, most: int) -> None:
        self.spot = FakeGroup(clock, most)
        self.on_demand = FakeGroup(clock, BASE, "on-demand", 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spot, name)

    def settle(self) -> None:
        self.spot.settle()
        self.on_demand.settle()

    def living(self) -> list[str]:
        return self.spot.living() + self.on_demand.living()

    def groups(self, run: str) -> list[Group]:
        return self.spot.groups(run) + self.on_demand.groups(run)

    def _of(self, instance: str) -> FakeGroup:
        return self.on_demand if instance in self.on_demand.members else self.spot

    def leaving(self, instance: str) -> bool:
        return self._of(instance).leaving(instance)

    def reclaim(self, instance: str) -> None:
        self._of(instance).reclaim(instance)

    def complete(self, instance: str) -> None:
        self._of(instance).complete(instance)

    def group_of(self, instance: str) -> str | None:
        return self._of(instance).group_of(instance)

    def set_desired(self, group: str, capacity: int) -> None:
        (self.on_demand if group == self.on_demand.name else self.spot).set_desired(group, capacity)

    def leave(self, instance: str, *, fewer: bool) -> None:
        self._of(instance).leave(instance, fewer=fewer)


class Machine:
    def __init__(self, play: Play, name: str) -> None:
        self.play = play
        self.name = name
        self.boots = play.clock.now() + BOOT
        self._health = self.boots + HEALTH
        self.trains = self.stopped = False
        self.deadline: float | None = None
        self.at_risk = False
        self.memory = play.folder / name
        self._restart()

    def notice(self, seconds: float) -> None:
        self.deadline = self.play.clock.now() + seconds

    def tick(self) -> None:
        play = self.play
        if self.deadline is not None and play.clock.now() >= self.deadline:
            self.lose()
        elif play.group.leaving(self.name) and play.clock.now() >= self._health:
            self.trains = False
            play.group.complete(self.name)
        elif play.clock.now() >= self.boots:
            try:
                self._turn()
            except KilledError:
                if play.machine_dies:
                    self.lose()
                self._restart()
        if play.clock.now() >= self._health:
            self._health += HEALTH

    def lose(self) -> None:
        self.trains = False
        self.play.group.reclaim(self.name)

    def superseded(self) -> None:
        """Its trainer ends with 76, and hf-ended says so."""
        self.trains, self.stopped = False, True
        self.memory.parent.mkdir(parents=True, exist_ok=True)
        self.memory.touch()

    @property
    def waits(self) -> bool:
        return not self._passed and self.play.clock.now() >= self.boots

    def _turn(self) -> None:
        if not self._passed and self._gate.look() == 0:
            self._passed = True
            self.trains = not self.stopped
            self.play.check()
        self._watch.tick()

    def _restart(self) -> None:
        """Both processes; the trainer is one of its own."""
        play = self.play
        cloud: Any = Guarded(play)
        self._passed = False
        self._gate = Gate(cloud, play.clock, RUN, self.name, play.said.append)
        self._watch = Watch(
            cloud, play.clock, RUN, play.strategy, self.name, self, self._command, self.memory, play.said.append  # type: ignore[arg-type]
        )  # fmt: skip

    def get(self, path: str) -> str | None:
        """The metadata service."""
        if path == "spot/instance-action" and self.deadline is not None:
            at = datetime.datetime.fromtimestamp(self.deadline, datetime.timezone.utc)
            return json.dumps({"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")})
        return "{}" if path == "events/recommendations/rebalance" and self.at_risk else None

    def _command(self, words: Sequence[str], seconds: float) -> Done:
        if words[1] == "stop":
            self.trains, self.stopped = False, True
        return Done(0, f"ActiveState={'active' if self.trains else 'inactive'}")


class Guarded:
    """The group as a machine sees it: the process may die before and after each call."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def __getattr__(self, method: str) -> Callable[..., Any]:
        play = self._play
        real = getattr(play.group, method)

        def call(*arguments: Any, **named: Any) -> Any:
            play.point()
            play.log.append(method)
            answer = real(*arguments, **named)
            play.check()
            play.point()
            return answer

        return call


class Play:
    def __init__(
        self, group: Callable[[VirtualClock, int], Any], strategy: str, folder: Path, most: int = BASE + 1
    ) -> None:
        self.tick = TICK
        self.clock = VirtualClock()
        self.group = group(self.clock, most)
        self.strategy = strategy
        self.folder = folder
        self.machines: dict[str, Machine] = {}
        self.log: list[str] = []
        self.said: list[str] = []
        self.points = 0
        self.kill_at: int | None = None
        self.machine_dies = False

    @property
    def holder(self) -> Machine:
        (found,) = [one for one in self.living() if one.trains]
        return found

    @property
    def standbys(self) -> list[Machine]:
        return [one for one in self.living() if not one.trains]

    def living(self) -> list[Machine]:
        self.group.settle()
        return [self.machines.setdefault(name, Machine(self, name)) for name in self.group.living()]

    def run(self, seconds: float, until: Callable[[], bool] = bool) -> None:
        end = self.clock.now() + seconds
        while self.clock.now() < end and not until():
            self.clock.sleep(self.tick)
            for machine in self.living():
                machine.tick()
                self.check()

    def check(self) -> None:
        writers = [one.name for one in self.machines.values() if one.trains]
        assert len(writers) <= 1, f"{writers} train"
        assert len(self.log) < 20_000, "it never ends"

    def point(self) -> None:
        self.points += 1
        if self.points == self.kill_at:
            raise KilledError

    def settled(self) -> bool:
        """One machine trains, the capacity is as before, and nobody else is paid for but who stands by."""
        wanted = BASE + (self.strategy == ALWAYS)
        return (
            self.group.groups(RUN)[0].desired == wanted
            and len(self.living()) == wanted
            and sum(one.trains for one in self.living()) == 1
            and all(one.waits for one in self.standbys)
        )

    def check_settled(self) -> None:
        """Nothing is announced any more."""
        self.group.room = None
        for machine in self.living():
            machine.deadline, machine.at_risk = None, False
        for _ in range(3):
            self.run(3000, self.settled)
            assert self.settled(), f"{self.said}: {self.group.groups(RUN)}"
            self.run(150)
            if self.settled():
                return
        raise AssertionError(f"no rest: {self.said}")
