"""A second machine of the run that boots before the first one ends: `hf-aws up --standby`, with --home s3.

    hf home up     a machine waits here while another trains: it stands by; all but the trainer's own start is done
    hf standby     on each machine, all the time: hears notices, asks for the second machine, hands over, tidies up

Who may write is not decided here: the claim in S3 and the library's fencing do that. What goes wrong here costs time.

Registers, written once by each machine: crew/INSTANCE/ready (it stands by, or is the first), began (its trainer may
start), over (its trainer has ended, and starts no more).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast_aws.cloud import Clock, Cloud, CloudError, Group
from holdfast_aws.commands import Runner
from holdfast_aws.metadata import Metadata
from holdfast_aws.services import TRAINER, busy
from holdfast_aws.stop import OK, RETRY, StopError

NEVER, ON_NOTICE, ON_REBALANCE, ALWAYS = "never", "on-notice", "on-rebalance", "always"
STRATEGIES = (NEVER, ON_NOTICE, ON_REBALANCE, ALWAYS)
READY, BEGAN, OVER = "ready", "began", "over"

BASE = 1  # machines of a run without a standby
POLL = 5.0  # seconds
LOOK = 60.0  # seconds between two looks at the group while nothing is announced
LAST = 20.0  # seconds before the announced end: the trainer has made its last commit
PATIENCE = 3000.0  # seconds of `hf home up`; the unit has an hour
TRIES = 5
HANDING_OVER = Path("/run/holdfast/handing-over")  # hf-ended makes it, too: a newer attempt trains (76)
REMAINS = ("InService", "Pending")

Say = Callable[[str], None]
Marks = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class World:
    """What a machine sees."""

    strategy: str
    me: str
    group: Group | None  # mine; None: it has let this machine go
    marks: Marks  # of all members
    trains: bool
    handing_over: bool = False
    deadline: float | None = None  # Unix seconds; None: no end is announced
    at_risk: bool = False
    now: float = 0.0


# What a machine does next.
NOTHING, RAISE, GIVE_BACK, STOP, MARK = "nothing", "raise", "give back", "stop", "mark"
LEAVE, REPLACE = "leave with its place", "leave its place to another"


def next_step(world: World) -> str:
    """A pure function. Only the machine that trains acts, and the one that has handed over."""
    group, marks = world.group, world.marks
    if group is None:
        return NOTHING
    two = group.desired > BASE
    # `hf-aws stop` and --max-hours (0 machines) have the last word; a machine that its group ends asks for none.
    stays = group.desired > 0 and group.members[world.me].startswith(REMAINS)
    more = RAISE if stays and not two and group.most > BASE else NOTHING
    if world.handing_over or (OVER in marks[world.me] and not world.trains):
        if world.trains:
            return STOP
        if OVER not in marks[world.me]:
            return MARK
        # It never trains again. A group whose only machine idles looks well, and starts none.
        return (LEAVE if two and world.strategy != ALWAYS else REPLACE) if stays else NOTHING
    if not world.trains:
        return NOTHING
    others = [name for name in group.members if name != world.me and group.members[name].startswith(REMAINS)]
    if world.deadline is not None or (world.at_risk and world.strategy == ON_REBALANCE):
        if any(READY in marks[name] and not marks[name] & {BEGAN, OVER} for name in others):
            return STOP
        if world.deadline is not None and world.now >= world.deadline - LAST:
            return STOP
        return more
    if world.strategy == ALWAYS:
        return more
    # The notice was withdrawn, or the machine before this one went before it could say so. One that has handed over
    # and is still here takes its place with it.
    if two and not any(marks[name] & {BEGAN, OVER} for name in others):
        return GIVE_BACK
    return NOTHING


class Watch:
    """`hf standby`."""

    def __init__(
        self,
        cloud: Cloud,
        clock: Clock,
        run: str,
        strategy: str,
        me: str,
        metadata: Metadata,
        runner: Runner,
        memory: Path = HANDING_OVER,
        say: Say = print,
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._run = run
        self._strategy = strategy
        self._me = me
        self._metadata = metadata
        self._runner = runner
        self._memory = memory
        self._say = say
        self._looked = float("-inf")
        self._told = ""

    def forever(self) -> int:
        while True:
            self.tick()
            self._clock.sleep(POLL)

    def tick(self) -> None:
        """As many steps as there are now. What fails is tried again at the next tick."""
        try:
            deadline, at_risk = self._announced()
            quiet = deadline is None and not at_risk and not self._memory.exists()
            if quiet and self._clock.now() - self._looked < LOOK:
                return
            self._looked = self._clock.now()
            while True:
                step = next_step(self._look(deadline, at_risk))
                if step == NOTHING:
                    return
                self._do(step)
                if step in (RAISE, GIVE_BACK, LEAVE, REPLACE):
                    return
        except CloudError as error:
            self._tell(f"AWS did not do it, tried again: {error}")
        except StopError as stop:
            self._tell(stop.message)

    def _announced(self) -> tuple[float | None, bool]:
        told = self._metadata.get("spot/instance-action")
        risk = self._metadata.get("events/recommendations/rebalance") is not None
        return (None if told is None else end_of(told)), risk

    def _look(self, deadline: float | None, at_risk: bool) -> World:
        group = next((g for g in self._cloud.groups(self._run) if self._me in g.members), None)
        return World(
            strategy=self._strategy,
            me=self._me,
            group=group,
            marks=self._cloud.marks(self._run, sorted(group.members)) if group else {},
            trains=busy(self._runner),
            handing_over=self._memory.exists(),
            deadline=deadline,
            at_risk=at_risk,
            now=self._clock.now(),
        )

    def _do(self, step: str) -> None:
        cloud = self._cloud
        if step == STOP:
            self._tell("the trainer commits and ends; the next machine goes on")
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.touch()
            self._runner(["systemctl", "stop", TRAINER], 300)
        elif step == MARK:
            mark(cloud, self._run, self._me, OVER)
        elif step in (LEAVE, REPLACE):
            self._tell("this machine's turn is over, and it leaves its group")
            cloud.leave(self._me, fewer=step == LEAVE)
        else:
            group = cloud.group_of(self._me)
            wanted = BASE + 1 if step == RAISE else BASE
            if group is not None:
                self._tell(f"{group}: {wanted} machines are wanted now")
                cloud.set_desired(group, wanted)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._say(text)
        self._told = text


def end_of(action: str) -> float | None:
    """The moment that EC2's word names; None for what ends no machine, such as hibernate."""
    try:
        told = json.loads(action)
        if told["action"] not in ("terminate", "stop"):
            return None
        return datetime.fromisoformat(str(told["time"]).replace("Z", "+00:00")).timestamp()
    except (ValueError, KeyError, TypeError):
        return None


def mark(cloud: Cloud, run: str, instance: str, what: str) -> None:
    cloud.put_once(f"/holdfast/{run}/crew/{instance}/{what}", "1")


def where_another_trains(cloud: Cloud, run: str, me: str) -> Group | None:
    """My group, if another machine of it has its turn, and I have not. For `hf park`."""
    group = next((group for group in cloud.groups(run) if me in group.members), None)
    if group is None:
        return None
    marks = cloud.marks(run, sorted(group.members))
    turn = {
        name
        for name, state in group.members.items()
        if state.startswith(REMAINS) and BEGAN in marks[name] and OVER not in marks[name]
    }
    return group if turn and me not in turn else None


class Gate:
    """The end of `hf home up`: 0 when this machine's trainer may start; 75 when it waits for too long, or never may."""

    def __init__(self, cloud: Cloud, clock: Clock, run: str, me: str, say: Say = print) -> None:
        self._cloud = cloud
        self._clock = clock
        self._run = run
        self._me = me
        self._say = say
        self._marked = False
        self._waits_for: list[str] = []

    def wait(self) -> int:
        until, failures = self._clock.now() + PATIENCE, 0
        while self._clock.now() < until and failures < TRIES:
            try:
                code = self.look()
                failures = 0
            except CloudError as error:
                self._say(f"AWS does not answer: {error}")
                code, failures = None, failures + 1
            if code is not None:
                return code
            self._clock.sleep(POLL)
        return RETRY

    def look(self) -> int | None:
        """None: not yet."""
        if not self._marked:
            mark(self._cloud, self._run, self._me, READY)
            self._marked = True
        groups = self._cloud.groups(self._run)
        names = sorted({self._me}.union(*(group.members for group in groups)))
        marks = self._cloud.marks(self._run, names)
        if OVER in marks[self._me]:
            self._say("this machine has handed the run over, and trains no more")
            return RETRY
        if BEGAN in marks[self._me]:
            return OK
        # Of two that stand by, the one with the smaller name goes on.
        ahead = [
            name
            for name in names
            if name != self._me
            and OVER not in marks[name]
            and (BEGAN in marks[name] or (READY in marks[name] and name < self._me))
        ]
        if ahead:
            if ahead != self._waits_for:
                self._say(f"stands by for {', '.join(ahead)}")
            self._waits_for = ahead
            return None
        mark(self._cloud, self._run, self._me, BEGAN)
        return OK
