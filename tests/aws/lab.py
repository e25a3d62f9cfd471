"""A run's machines on one double of AWS, and the rules that must hold after every call.

    lab = Lab(FakeCloud)
    machine = lab.machine("us-east-1a")
    assert machine.boot() == 0
    machine.train(5)
    machine.lose()
    lab.machine("us-east-1b").boot()

The rules: a register never changes, but the list of lead snapshots; nothing is deleted; at most one machine writes; the
one that begins to write holds the committed volume and the newest data.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import greenlet
from fake_cloud import FakeCloud, Times
from fake_host import FakeHost
from virtual import KilledError, Turns

from holdfast_aws.cloud import CloudError
from holdfast_aws.executor import Executor
from holdfast_aws.registers import Book, parse, path_of
from holdfast_aws.settings import Settings
from holdfast_aws.world import Limits
from holdfast_aws.world import Machine as Me

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
RUN = "r1"
READS = frozenset({"parameters", "volume", "volumes", "snapshots", "snapshot", "living", "groups"})


class Lab:
    def __init__(
        self,
        double: Callable[..., Any] = FakeCloud,
        times: Times | None = None,
        limits: Limits | None = None,
        seed: int = 0,
    ) -> None:
        self.turns = Turns()
        self.double = double(self.turns, times or Times())
        self.limits = limits or Limits()
        self.random = random.Random(seed)
        self.machines: list[Machine] = []
        self.log: list[str] = []  # "instance method arguments" of every call
        self.said: list[str] = []
        self.newest = 0  # step that was acknowledged last
        self.latency: Callable[[], float] | None = None
        self.fault: Callable[[str], str | None] | None = None  # method -> "before:Code", "after:Code"
        self._registers: dict[str, str] = {}
        self._things: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())

    def machine(self, zone: str, **settings: Any) -> Machine:
        machine = Machine(self, zone, settings)
        self.machines.append(machine)
        return machine

    def book(self) -> Book:
        return parse(RUN, self.double.parameters(path_of(RUN)))

    def calls(self, method: str) -> list[str]:
        return [line for line in self.log if line.split()[1] == method]

    def methods(self) -> list[str]:
        return [line.split()[1] for line in self.log]

    def check(self, method: str = "") -> None:
        """The rules that hold after every call."""
        writers = [machine.me.instance for machine in self.machines if machine.writing]
        assert len(writers) <= 1, f"two writers: {writers}"
        assert len(self.log) < 20_000, "it never ends"
        if method in READS:
            return
        registers = self.double.parameters(path_of(RUN))
        assert len(registers) < 100, "it never ends"
        for name, value in self._registers.items():
            assert name.endswith("/leads") or registers.get(name) == value, (
                f"{name} was {value}, is {registers.get(name)}"
            )
        self._registers = dict(registers)
        things = self.double.ids()
        for before, now in zip(self._things, things):
            assert before <= now, f"deleted: {before - now}"
        self._things = things

    def settle(self, zone: str) -> Machine:
        """A machine that nothing happens to gets the newest data."""
        self.fault = self.latency = None
        for machine in self.machines:
            machine.lose()
        last = self.machine(zone)
        for _ in range(8):
            code = last.boot()
            if code == 0:
                break
            assert code == 75, f"ended with {code}: {self.said[-1]}"
            self.turns.sleep_alone(60)
        assert code == 0, f"never came up: {self.said[-5:]}"
        assert last.writing
        self.check()
        return last


class Machine:
    """An instance. `boot` runs `hf-volume up` to its end while time passes for it alone."""

    def __init__(self, lab: Lab, zone: str, settings: dict[str, Any]) -> None:
        self.lab = lab
        self.me = Me(lab.double.launch(zone), zone, zone[:-1])
        self.host = FakeHost(lab.double, self.me.instance)
        self.settings = Settings(RUN, **settings)
        self.alive = True
        self.writing = False
        self.code: int | None = None
        self.points = 0  # before and after calls
        self.kill_at: int | None = None
        self.kill_after: str | None = None  # a method
        self.program: greenlet.greenlet | None = None

    def executor(self) -> Executor:
        lab = self.lab
        executor = Executor(
            GuardedCloud(self), self.host, lab.turns, self.settings, self.me, lab.limits, lab.said.append
        )
        executor._random = random.Random(lab.machines.index(self))  # not the name: moto draws names
        return executor

    def boot(self) -> int | None:
        """None: it was killed."""
        self.start()
        self.lab.turns.run()
        return self.code

    def start(self, after: float = 0, then: Callable[[], None] | None = None) -> None:
        """The same beside others; `Turns.run` moves them all."""
        self.code = None
        self.end_process()

        def life() -> None:
            self.code = self.executor().up()
            if self.code == 0:
                self.write()
            if then is not None:
                then()

        self.program = self.lab.turns.spawn(life, after)

    def write(self) -> None:
        """The trainer begins."""
        assert self.alive
        current = self.lab.book().current
        assert current is not None
        assert self.host.mount_of == (current.volume, False), f"{self.host.mount_of}, but {current}"
        content = self.host.content()
        assert content.step == self.lab.newest, f"resumes at {content.step}, newest is {self.lab.newest}"
        self.writing = True
        self.lab.check()

    def train(self, steps: int = 1) -> None:
        assert self.writing
        content = self.host.content()
        content.expected = True
        content.step += steps
        self.lab.newest = content.step

    def down(self) -> int:
        self.writing = False
        return self.executor().down()

    def end_process(self) -> None:
        self.writing = False
        if self.program is not None and self.program is not greenlet.getcurrent():
            self.lab.turns.kill(self.program)

    def lose(self) -> None:
        """The axe."""
        if self.alive:
            self.alive = False
            self.end_process()
            self.lab.double.terminate(self.me.instance)

    def point(self) -> None:
        """Between two calls: time passes, and the axe may fall."""
        if self.lab.latency is not None:
            self.lab.turns.sleep(self.lab.latency())
        self.points += 1
        if self.points == self.kill_at:
            raise KilledError

    def after(self, method: str) -> None:
        if method == self.kill_after:
            raise KilledError


class GuardedCloud:
    """The double as one machine sees it: a call is logged, may fail or be the last, and is checked."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getattr__(self, method: str) -> Callable[..., Any]:
        machine, lab = self._machine, self._machine.lab
        real = getattr(lab.double, method)

        def call(*arguments: Any) -> Any:
            machine.point()
            lab.log.append(f"{machine.me.instance} {method} {' '.join(str(a) for a in arguments)}")
            fault = lab.fault(method) if lab.fault is not None else None
            if fault is not None and fault.startswith("before:"):
                raise CloudError(fault[7:], "injected")
            answer = real(*arguments)
            lab.check(method)
            machine.after(method)
            machine.point()
            if fault is not None:
                raise CloudError(fault[6:], "injected; the call had its effect")
            return answer

        return call
