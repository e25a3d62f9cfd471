"""Virtual time, and machines that take turns in it.

Each machine's program is a greenlet. It gives way where it sleeps, and before and after each call to AWS; the
one whose time comes first goes on. So a test sees every order of events that its seed gives, in no time.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable

import greenlet


class VirtualClock:
    """For tests with one machine: sleeping moves the time."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self.time = start

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += max(0.0, seconds)


class KilledError(BaseException):
    """kill -9, or the loss of the machine."""


class Turns(VirtualClock):
    """For tests with many: sleeping lets others go on."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        super().__init__(start)
        self._due: list[tuple[float, int, greenlet.greenlet]] = []
        self._order = itertools.count()
        self._main = greenlet.getcurrent()

    def spawn(self, program: Callable[[], None], after: float = 0) -> greenlet.greenlet:
        def guarded() -> None:
            with contextlib.suppress(KilledError):
                program()

        new = greenlet.greenlet(guarded, parent=self._main)
        self._push(new, after)
        return new

    def sleep(self, seconds: float) -> None:
        self._push(greenlet.getcurrent(), seconds)
        self._main.switch()

    def sleep_alone(self, seconds: float) -> None:
        """For the test itself: others go on until then."""
        self.run(self.time + seconds)

    def kill(self, program: greenlet.greenlet) -> None:
        """It never goes on. From inside itself: at once."""
        if program is greenlet.getcurrent():
            raise KilledError
        self._due = [entry for entry in self._due if entry[2] is not program]
        heapq.heapify(self._due)
        if program:  # it has begun, and has not ended
            program.parent = greenlet.getcurrent()
            program.throw(KilledError)

    def run(self, until: float = float("inf")) -> None:
        """Until nobody has anything to do, or that time."""
        while self._due and self._due[0][0] <= until:
            self.time, _, program = heapq.heappop(self._due)
            if not program.dead:
                program.switch()
        if until != float("inf"):
            self.time = max(self.time, until)

    def _push(self, program: greenlet.greenlet, seconds: float) -> None:
        heapq.heappush(self._due, (self.time + max(0.0, seconds), next(self._order), program))
