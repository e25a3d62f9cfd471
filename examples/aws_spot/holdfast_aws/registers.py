"""The registers that decide which volume is the run's: SSM parameters that are created once. Only `leads` changes.

    /holdfast/RUN/gen/N/claim      i-…                     who makes generation N
    /holdfast/RUN/gen/N/outcome    commit:vol-…:zone       N is the run's volume
                                   cancel:i-…              N will never be
    /holdfast/RUN/gen/N/proved     vol-…                   a machine has committed a checkpoint on it (hf-aws gc)
    /holdfast/RUN/gen/N/snapshot   snap-…                  what the move to N has made …
    /holdfast/RUN/gen/N/copy       vol-…                   … and only then may `hf-aws gc` delete it
    /holdfast/RUN/leads            snap-… snap-…           snapshots ahead of time that exist
    /holdfast/RUN/formatted        vol-…                   the run has a file system: never make another
    /holdfast/RUN/home             s3://…                  the run has no volume: its checkpoints are there
    /holdfast/RUN/given-up/N       i-…                     a machine that was given up, the N-th
                                   trains:i-… or up        since then one has committed, or a person has acted
    /holdfast/RUN/parked/I/since   2026-…                  machine I waits for a person
    /holdfast/RUN/parked/I/outcome end                     it waited in vain: the run stops
                                   up                      `hf-aws up` was first: the machine is replaced
                                   trains                  it need not wait any more
    /holdfast/RUN/parked/I/N/…                             when it waits again, for the N-th time

AWS lets only the first writer of a parameter win, so all machines agree on each of them. The run's volume is
the one of the highest N with a commit. A claim without an outcome is a move in progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_aws.cloud import Cloud
from holdfast_aws.stop import HUMAN, StopError

_COMMIT = re.compile(r"commit:(vol-[0-9a-z]+):([a-z0-9-]+)")
_CANCEL = re.compile(r"cancel:(i-[0-9a-z]+)")
_GENERATION = re.compile(r"gen/([1-9][0-9]{0,8})/(claim|outcome|snapshot|copy)")
_GIVEN_UP = re.compile(r"given-up/([1-9][0-9]{0,8})")
_PARKED = re.compile(r"parked/(i-[0-9a-z]+)(?:/([1-9][0-9]{0,8}))?/(since|outcome)")
END, UP, TRAINS = "end", "up", "trains"  # outcomes of a parked machine


@dataclass(frozen=True)
class Generation:
    """One generation of the run's volume. `volume` is None unless it was committed."""

    number: int
    claimed_by: str | None = None
    volume: str | None = None
    zone: str | None = None
    cancelled_by: str | None = None

    @property
    def open(self) -> bool:
        return self.volume is None and self.cancelled_by is None


@dataclass(frozen=True)
class Book:
    """All registers of a run at one moment."""

    generations: Mapping[int, Generation] = field(default_factory=dict)
    formatted: bool = False
    home: str = ""  # s3://…; "" for a run with a volume
    made: Mapping[str, int] = field(default_factory=dict)  # volume or snapshot -> its generation
    leads: tuple[str, ...] = ()
    given_up: Mapping[int, str] = field(default_factory=dict)
    parked: Mapping[str, str] = field(default_factory=dict)  # instance -> newest outcome; "": it waits
    times: Mapping[str, int] = field(default_factory=dict)  # parked instance -> how often it was

    @property
    def empty(self) -> bool:
        return not self.generations and not self.formatted and not self.home

    @property
    def top(self) -> int:
        return max(self.generations, default=0)

    @property
    def current(self) -> Generation | None:
        """The run's volume; None before the first commit."""
        committed = [g for g in self.generations.values() if g.volume is not None]
        return max(committed, key=lambda g: g.number, default=None)

    @property
    def given_up_in_a_row(self) -> tuple[str, ...]:
        """Machines that were given up since one has committed a checkpoint, or a person has called `hf-aws up`."""
        row: list[str] = []
        for _, word in sorted(self.given_up.items()):
            row = [*row, word] if word.startswith("i-") else []
        return tuple(row)

    @property
    def open(self) -> Generation | None:
        """The newest generation when nobody has ended it yet: a first volume or a move in progress."""
        newest = self.generations.get(self.top)
        return newest if newest is not None and newest.open else None

    def failed_moves(self, instance: str) -> int:
        """Of this machine, one after the other, since the newest commit."""
        failed = 0
        for _, move in sorted(self.generations.items(), reverse=True):
            if not move.open and not move.claimed_by == move.cancelled_by == instance:
                break
            failed += not move.open
        return failed


def path_of(run: str) -> str:
    return f"/holdfast/{run}"


def parking(instance: str, time: int) -> str:
    return f"parked/{instance}" if time == 1 else f"parked/{instance}/{time}"


def parse(run: str, parameters: Mapping[str, str]) -> Book:
    """Stop 78 for a value that the kit never writes: somebody changed the registers by hand."""
    generations: dict[int, Generation] = {}
    formatted, home = False, ""
    leads: tuple[str, ...] = ()
    made: dict[str, int] = {}
    given_up: dict[int, str] = {}
    parked: dict[str, str] = {}
    times: dict[str, int] = {}
    for name, value in sorted(parameters.items()):
        below = name[len(path_of(run)) + 1 :]
        if below == "formatted":
            formatted = True
            continue
        if below == "home":
            home = value
            continue
        if below == "leads":
            leads = tuple(value.split())
            continue
        if given := _GIVEN_UP.fullmatch(below):
            given_up[int(given[1])] = value
        if stands := _PARKED.fullmatch(below):
            instance, time = stands[1], int(stands[2] or 1)
            if time > times.get(instance, 0):
                times[instance], parked[instance] = time, ""
            if time == times[instance] and stands[3] == "outcome":
                parked[instance] = value
        place = _GENERATION.fullmatch(below)
        if place is None:
            continue
        if place[2] in ("snapshot", "copy"):
            made[value] = int(place[1])
            continue
        number = int(place[1])
        known = generations.get(number, Generation(number))
        if place[2] == "claim":
            known = Generation(number, value, known.volume, known.zone, known.cancelled_by)
        elif commit := _COMMIT.fullmatch(value):
            known = Generation(number, known.claimed_by, commit[1], commit[2])
            made[commit[1]] = number
        elif cancel := _CANCEL.fullmatch(value):
            known = Generation(number, known.claimed_by, cancelled_by=cancel[1])
        else:
            raise StopError(
                HUMAN, f"the register {name} says {value!r}, which is no outcome: mend it by hand"
            )
        generations[number] = known
    return Book(generations, formatted, home, made, leads, given_up, parked, times)


class Registers:
    """The registers of one run. Every write is create-once: False means that somebody was first."""

    def __init__(self, cloud: Cloud, run: str) -> None:
        self._cloud = cloud
        self._run = run

    def read(self) -> Book:
        return parse(self._run, self._cloud.parameters(path_of(self._run)))

    def claim(self, number: int, instance: str) -> bool:
        return self._put(f"gen/{number}/claim", instance)

    def commit(self, number: int, volume: str, zone: str) -> bool:
        return self._put(f"gen/{number}/outcome", f"commit:{volume}:{zone}")

    def cancel(self, number: int, instance: str) -> bool:
        return self._put(f"gen/{number}/outcome", f"cancel:{instance}")

    def mark_made(self, number: int, what: str, thing: str) -> bool:
        """`what`: snapshot or copy."""
        return self._put(f"gen/{number}/{what}", thing)

    def set_leads(self, snapshots: Iterable[str]) -> None:
        self._cloud.put(f"{path_of(self._run)}/leads", " ".join(snapshots))

    def give_up(self, instance: str) -> int:
        """Writes down that this machine was given up; how many were, in a row."""
        while True:
            book = self.read()
            row = book.given_up_in_a_row
            if instance in row:
                return len(row)
            self._put(f"given-up/{max(book.given_up, default=0) + 1}", instance)

    def forgive(self, why: str) -> None:
        """The next machine that is given up is the first."""
        book = self.read()
        if book.given_up_in_a_row:
            self._put(f"given-up/{max(book.given_up) + 1}", why)

    def park(self, instance: str, since: str) -> bool:
        book = self.read()
        time = book.times.get(instance, 1) + (book.parked.get(instance) == TRAINS)
        return self._put(f"{parking(instance, time)}/since", since)

    def end_parking(self, instance: str) -> bool:
        """False: `hf-aws up` was first, and replaces the machine."""
        self._outcome(instance, END)
        return self.read().parked.get(instance) != UP

    def cancel_parking(self, instance: str) -> None:
        self._outcome(instance, TRAINS)

    def _outcome(self, instance: str, word: str) -> None:
        self._put(f"{parking(instance, self.read().times.get(instance, 1))}/outcome", word)

    def mark_formatted(self, volume: str) -> bool:
        return self._put("formatted", volume)

    def set_home(self, home: str) -> bool:
        return self._put("home", home)

    def mark_proved(self, number: int, volume: str) -> bool:
        return self._put(f"gen/{number}/proved", volume)

    def _put(self, name: str, value: str) -> bool:
        return self._cloud.put_once(f"{path_of(self._run)}/{name}", value)
