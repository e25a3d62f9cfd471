"""Carries out the state machine of volume.py: looks at the world, does one step, looks again.

    code = Executor(cloud, host, clock, settings, machine).up()

Each AWS call is tried five times when AWS is busy; an error is never read as "nothing there".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import singledispatchmethod
from typing import TypeVar

from holdfast_aws import cloud as aws
from holdfast_aws import world as w
from holdfast_aws.cloud import Clock, Cloud, CloudError, Volume, VolumeSpec
from holdfast_aws.host import Host
from holdfast_aws.registers import Book, Registers
from holdfast_aws.settings import Settings
from holdfast_aws.stop import HUMAN, OK, RETRY, StopError
from holdfast_aws.volume import next_step

T = TypeVar("T")

POLL = 5.0  # seconds
TRIES = 5
MOVES = 5  # of one machine that fail one after the other, before a person must look
NOT_YET = ("VolumeInUse", "IncorrectState", "IncorrectInstanceState", "InvalidVolume.NotFound")
DEVICES = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")


class Executor:
    def __init__(
        self,
        cloud: Cloud,
        host: Host,
        clock: Clock,
        settings: Settings,
        me: w.Machine,
        limits: w.Limits | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._cloud = cloud
        self._host = host
        self._clock = clock
        self._settings = settings
        self._me = me
        self._limits = limits or w.Limits()
        self._tell = say
        self._registers = Registers(cloud, settings.run)
        self._random = random.Random(me.instance)
        # Memory of this process.
        self._began = clock.now()
        self._first: Volume | None = None
        self._first_asked = 0.0
        self._move: w.Move | None = None
        self._local = w.Local()
        self._missing_since: float | None = None
        self._held_since: float | None = None
        self._device_since: float | None = None
        self._lease_since: float | None = None
        self._devices_taken = 0
        self._failed_moves = 0
        self._told = ""

    def up(self) -> int:
        """Until the run's volume is mounted: 0. Otherwise 75 or 78."""
        return self._exit_code_of(self._go_up)

    def _go_up(self) -> int:
        while True:
            action = next_step(self.look())
            if isinstance(action, w.Exit):
                raise StopError(action.code, action.message)
            self._do(action)

    def down(self) -> int:
        """Unmounts and detaches the run's volume, and waits until AWS has released it."""
        return self._exit_code_of(self._go_down)

    def _go_down(self) -> int:
        self._host.drop_lease()
        self._host.unmount()
        for turn in range(60):
            plugged = self._call(lambda: self._cloud.volumes(self._settings.run, self._me.instance))
            if not plugged:
                return OK
            for volume in plugged:
                if volume.attachment != "detaching":
                    self._detach(volume.id)
            self._clock.sleep(1 if turn < 10 else POLL)
        raise StopError(RETRY, f"{plugged[0].id} is still attached; whoever comes next waits for it")

    def _exit_code_of(self, work: Callable[[], int]) -> int:
        """What the work returns; when it ends before, its reason is said."""
        try:
            return work()
        except StopError as stop:
            self._say(stop.message)
            return stop.code
        except CloudError as error:
            self._say(f"AWS refused: {error}")
            return RETRY
        except OSError as error:  # a disk or a mount; another try of the same machine finds it as it is
            self._say(f"{error.filename or 'this machine'}: {error.strerror or error}")
            return HUMAN

    def status(self) -> int:
        """Prints what the registers say and where the volume is. Changes nothing."""
        world = self.look()
        current = world.book.current
        if current is None:
            self._tell(f"{world.run} has no volume yet")
            return OK
        shown = world.volume
        where = shown.state if shown else "not shown by EC2"
        if shown and shown.holder:
            where += f", held by {shown.holder}"
        self._tell(f"{world.run}: generation {current.number}, {current.volume} in {current.zone}: {where}")
        move = world.book.open
        if move is not None:
            self._tell(f"generation {move.number} is open, claimed by {move.claimed_by}")
        return OK

    # Look.

    def look(self) -> w.World:
        run, me = self._settings.run, self._me
        book = self._call(self._registers.read)
        tagged: tuple[str, ...] = ()
        if book.empty:
            tagged = self._tagged()
            if tagged:  # a machine that began meanwhile writes its claim before it makes a volume
                book = self._call(self._registers.read)
        self._forget_ended_move(book)
        self._take_up_move(book)
        self._failed_moves = book.failed_moves(me.instance)
        current, move = book.current, book.open
        if current is None:
            self._look_at_first()
        volume = None
        plugged: tuple[Volume, ...] = ()
        if current is not None:
            volume = self._current(str(current.volume))
            plugged = tuple(self._call(lambda: self._cloud.volumes(run, me.instance)))
            self._look_at_move()
            self._look_at_host()
        strangers = {
            volume.holder if volume else None,
            move.claimed_by if move else None,
            self._local.lease.instance if self._local.lease else None,
        } - {None, me.instance}
        names = sorted(str(name) for name in strangers)
        living = self._call(lambda: self._cloud.living(names)) if names else frozenset()
        finds: tuple[Volume, ...] = ()
        if current is None and move and move.claimed_by != me.instance and move.claimed_by not in living:
            finds = tuple(
                v
                for v in self._call(lambda: self._cloud.volumes(run))
                if v.tags.get(aws.GENERATION_TAG) == "1" and v.state in ("creating", "available")
            )
        now = self._clock.now()
        held = volume is not None and volume.state == "in-use" and volume.holder != me.instance
        self._held_since = (self._held_since or now) if held else None
        missing_for = None if self._missing_since is None else now - self._missing_since
        last_snapshot = ""
        if missing_for is not None and missing_for >= self._limits.missing:
            last_snapshot = self._last_snapshot()
        return w.World(
            run=run,
            me=me,
            book=book,
            volume=volume,
            missing_for=missing_for,
            tagged=tagged,
            finds=finds,
            plugged=plugged,
            living=living,
            last_snapshot=last_snapshot,
            first=self._first,
            move=self._move,
            local=self._local,
            elapsed=now - self._began,
            held_for=0 if self._held_since is None else now - self._held_since,
            limits=self._limits,
        )

    def _tagged(self) -> tuple[str, ...]:
        run = self._settings.run
        volumes = self._call(lambda: self._cloud.volumes(run))
        snapshots = self._call(lambda: self._cloud.snapshots(run))
        return tuple([volume.id for volume in volumes] + [snapshot.id for snapshot in snapshots])

    def _last_snapshot(self) -> str:
        snapshots = self._call(lambda: self._cloud.snapshots(self._settings.run))
        completed = [snapshot for snapshot in snapshots if snapshot.state == "completed"]
        return max(completed, key=lambda s: (s.started, s.id)).id if completed else ""

    def _forget_ended_move(self, book: Book) -> None:
        if self._move is not None and (book.open is None or book.open.number != self._move.generation):
            self._move = None

    def _take_up_move(self, book: Book) -> None:
        """What an earlier process of this machine began: the registers name what it has made. Nobody has had the
        source since then without ending the move first.
        """
        current, move = book.current, book.open
        if self._move is not None or current is None or move is None or move.claimed_by != self._me.instance:
            return
        made = {name.split("-")[0]: name for name, of in book.made.items() if of == move.number}
        if "snap" in made:
            source, now = str(current.volume), self._clock.now() - self._began
            snapshot = aws.Snapshot(made["snap"], source, "pending")
            copy = Volume(made["vol"], self._me.zone, "creating") if "vol" in made else None
            self._move = w.Move(move.number, source, now, snapshot, copy, volume_asked=now)

    def _look_at_first(self) -> None:
        first = self._first
        if first is None:
            return
        try:
            self._first = self._call(lambda: self._cloud.volume(first.id)) or first
        except CloudError as error:
            if error.code != "InvalidVolume.NotFound":
                raise StopError(RETRY, f"DescribeVolumes {first.id}: {error}") from error
            if self._clock.now() - self._first_asked >= self._limits.missing:
                self._first = replace(first, state="gone")

    def _current(self, volume_id: str) -> Volume | None:
        try:
            volume = self._call(lambda: self._cloud.volume(volume_id))
        except CloudError as error:
            if error.code != "InvalidVolume.NotFound":
                raise StopError(RETRY, f"DescribeVolumes {volume_id}: {error}") from error
            self._missing_since = self._missing_since or self._clock.now()
            return None
        self._missing_since = None
        return volume

    def _look_at_move(self) -> None:
        move = self._move
        if move is None:
            return
        snapshot, volume = move.snapshot, move.volume
        if snapshot is not None and snapshot.state == "pending":
            waited = snapshot
            snapshot = self._call(lambda: self._cloud.snapshot(waited.id)) or waited
        elif volume is not None:
            copy = volume
            try:
                volume = self._call(lambda: self._cloud.volume(copy.id)) or copy
            except CloudError as error:
                if error.code != "InvalidVolume.NotFound":
                    raise StopError(RETRY, f"DescribeVolumes {copy.id}: {error}") from error
        self._move = replace(move, snapshot=snapshot, volume=volume)

    def _look_at_host(self) -> None:
        mounted = self._host.mounted()
        lease = self._host.lease() if mounted is not None and not mounted.read_only else None
        now = self._clock.now()
        self._lease_since = (self._lease_since or now) if lease is not None else None
        self._local = replace(
            self._local,
            mounted=mounted,
            lease=lease,
            lease_waited=0 if self._lease_since is None else now - self._lease_since,
            searched=0 if self._device_since is None else now - self._device_since,
        )

    # Do.

    @singledispatchmethod
    def _do(self, action: w.Action) -> None:
        raise TypeError(f"no such action: {action}")

    @_do.register
    def _(self, action: w.Poll) -> None:
        self._say(action.why)
        self._wait()

    @_do.register
    def _(self, action: w.Claim) -> None:
        self._say(f"claiming generation {action.generation}")
        if not self._call(lambda: self._registers.claim(action.generation, self._me.instance)):
            self._wait()
        elif action.source is not None:
            self._move = w.Move(action.generation, action.source, self._clock.now() - self._began)

    @_do.register
    def _(self, action: w.CreateFirst) -> None:
        spec = self._spec(action.token, 1, self._settings.size_gib)
        try:
            name = self._call(lambda: self._cloud.create_volume(spec))
        except CloudError as error:
            raise StopError(RETRY, f"CreateVolume in {self._me.zone}: {error}") from error
        self._first = Volume(name, self._me.zone, "creating")
        self._first_asked = self._clock.now()
        self._say(f"created {name}")

    @_do.register
    def _(self, action: w.Commit) -> None:
        won = self._call(lambda: self._registers.commit(action.generation, action.volume, action.zone))
        self._say(f"generation {action.generation} is {action.volume}" if won else "another was first")
        if won and action.retires is not None:
            source = action.retires
            try:
                self._cloud.tag_retired(source, action.generation)
            except CloudError as error:  # people like to see it; `hf-aws gc` reads the registers
                self._say(f"{source} could not be tagged as retired: {error}")

    @_do.register
    def _(self, action: w.Cancel) -> None:
        self._say(f"cancelling generation {action.generation}: {action.why}")
        self._call(lambda: self._registers.cancel(action.generation, self._me.instance))
        if action.then is not None:
            raise self._stop_of_move(action.then.code, action.then.message)

    @_do.register
    def _(self, action: w.TakeSnapshot) -> None:
        tags = {aws.RUN_TAG: self._settings.run, aws.GENERATION_TAG: str(action.generation)}
        text = f"holdfast {self._settings.run}: move of {action.source} to {self._me.zone}"
        name = self._of_move(lambda: self._cloud.create_snapshot(action.source, tags, text), "CreateSnapshot")
        self._of_move(lambda: self._registers.mark_made(action.generation, "snapshot", name), "the registers")
        if self._move is not None:
            self._move = replace(self._move, snapshot=aws.Snapshot(name, action.source, "pending"))

    @_do.register
    def _(self, action: w.CreateCopy) -> None:
        # Not the run's name: EC2 takes 64 letters, and a token of an earlier run of that name gives its volume.
        token = f"{self._me.instance}-g{action.generation}"
        spec = self._spec(token, action.generation, action.size_gib, action.snapshot, action.source)
        name = self._of_move(lambda: self._cloud.create_volume(spec), "CreateVolume")
        self._of_move(lambda: self._registers.mark_made(action.generation, "copy", name), "the registers")
        if self._move is not None:
            elapsed = self._clock.now() - self._began
            copy = Volume(name, self._me.zone, "creating", size_gib=action.size_gib)
            self._move = replace(self._move, volume=copy, volume_asked=elapsed)

    @_do.register
    def _(self, action: w.Attach) -> None:
        if self._devices_taken >= len(DEVICES):
            raise self._fatal(HUMAN, f"no device name is free for {action.volume}: detach what is not needed")
        device = DEVICES[self._devices_taken]
        try:
            self._call(lambda: self._cloud.attach(action.volume, self._me.instance, device))
        except CloudError as error:
            if error.code in NOT_YET:
                self._say(f"{action.volume} is not free yet: {error.code}")
                self._wait()
            elif error.code == "InvalidParameterValue":
                self._devices_taken += 1
            else:
                code = HUMAN if error.code in aws.FINAL else RETRY
                raise self._fatal(code, f"AttachVolume {action.volume}: {error}") from error

    @_do.register
    def _(self, action: w.Detach) -> None:
        self._say(f"detaching: {action.why}")
        self._host.unmount()
        self._local = w.Local()
        self._detach(action.volume)

    @_do.register
    def _(self, action: w.FindDevice) -> None:
        if self._local.of != action.volume:
            self._local = w.Local(of=action.volume)
            self._device_since = self._clock.now()
        found = self._host.find_device(action.volume, action.label)
        self._local = replace(self._local, candidates=found)
        if not found:
            self._clock.sleep(1)

    @_do.register
    def _(self, action: w.Examine) -> None:
        self._local = replace(self._local, content=self._host.examine(action.device))

    @_do.register
    def _(self, action: w.MakeFilesystem) -> None:
        self._say(f"making a file system on {action.device}")
        self._local = replace(self._local, content=self._host.make_filesystem(action.device))

    @_do.register
    def _(self, action: w.MarkFormatted) -> None:
        self._call(lambda: self._registers.mark_formatted(action.volume))

    @_do.register
    def _(self, action: w.Check) -> None:
        self._local = replace(self._local, checked=self._host.check(action.device, action.content))

    @_do.register
    def _(self, action: w.Mount) -> None:
        self._host.mount(action.device, action.content, action.read_only)

    @_do.register
    def _(self, action: w.Unmount) -> None:
        self._host.unmount()

    @_do.register
    def _(self, action: w.Verify) -> None:
        self._local = replace(self._local, verdict=self._host.verify())
        self._say(f"the copy's newest checkpoint: {self._local.verdict}")

    @_do.register
    def _(self, action: w.TakeLease) -> None:
        self._host.take_lease()
        self._local = replace(self._local, leased=True)

    # Helpers.

    def _spec(
        self, token: str, generation: int, size_gib: int, snapshot: str = "", source: str = ""
    ) -> VolumeSpec:
        tags = {aws.RUN_TAG: self._settings.run, aws.GENERATION_TAG: str(generation)}
        if source:
            tags[aws.SOURCE_TAG] = source
        return VolumeSpec(
            zone=self._me.zone,
            size_gib=size_gib,
            iops=self._settings.iops,
            throughput=self._settings.throughput,
            token=token,
            tags=tags,
            snapshot=snapshot,
        )

    def _of_move(self, make: Callable[[], T], what: str) -> T:
        """A call of the move; when it fails for good the move ends, and its source is as it was."""
        try:
            return self._call(make)
        except CloudError as error:
            source = self._move.source if self._move else "its source"
            raise self._fatal(RETRY, f"{what}: {error}; {source} is untouched") from error
        except StopError as stop:
            raise self._fatal(stop.code, stop.message) from stop

    def _fatal(self, code: int, message: str) -> StopError:
        """Ends this process's move first, so that nobody waits for it."""
        if self._move is not None:
            generation = self._move.generation
            try:
                self._call(lambda: self._registers.cancel(generation, self._me.instance))
            except StopError as stop:  # the next process of this machine will
                self._say(stop.message)
        return self._stop_of_move(code, message)

    def _stop_of_move(self, code: int, message: str) -> StopError:
        """Each try leaves a snapshot and registers, and this machine is paid for."""
        if self._move is not None and self._failed_moves >= MOVES - 1:
            return StopError(HUMAN, f"{message}; so ended {MOVES} moves in a row: another would, too")
        return StopError(code, message)

    def _detach(self, volume: str) -> None:
        try:
            self._call(lambda: self._cloud.detach(volume, self._me.instance))
        except CloudError as error:
            if error.code not in ("IncorrectState", "InvalidAttachment.NotFound", "InvalidVolume.NotFound"):
                raise StopError(RETRY, f"DetachVolume {volume}: {error}") from error

    def _call(self, call: Callable[[], T]) -> T:
        """The call's answer; CloudError when AWS refuses it, Stop 75 when AWS does not answer."""
        for attempt in range(TRIES):
            try:
                return call()
            except CloudError as error:
                if error.code in aws.FORBIDDEN:
                    raise StopError(HUMAN, f"the instance's role does not allow it: {error}") from error
                if error.code not in aws.TRANSIENT | aws.CREDENTIALS:
                    raise
                if attempt == TRIES - 1:
                    raise StopError(RETRY, f"AWS does not answer: {error}") from error
                self._clock.sleep(2**attempt * self._random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

    def _wait(self) -> None:
        self._clock.sleep(POLL * self._random.uniform(0.8, 1.2))

    def _say(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._tell(text)
