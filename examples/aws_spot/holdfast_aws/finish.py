"""The end of a run: `hf finish` sets the run's groups to 0 when, and only when, all of it is complete.

`hf park` does the same for a run that a person must look at, half an hour later; its state is kept. It looks before
it waits, meanwhile and before it acts: a trainer that runs again, a machine that leaves, or `hf-aws up` need no end.
Neither deletes anything or powers the machine off (the group would start another).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from holdfast_aws.cloud import Clock, Cloud, CloudError, Group
from holdfast_aws.registers import END, Registers
from holdfast_aws.run_state import is_home, read_state
from holdfast_aws.stop import HUMAN, OK, RETRY

TRIES = 10
PAUSE = 30.0  # seconds
PARKED = 1800.0  # seconds that a machine stays for a look

Say = Callable[[str], None]


def finish(
    cloud: Cloud,
    clock: Clock,
    run: str,
    directories: Sequence[Path],
    code: int | None,
    say: Say = print,
    *,
    two_tiers: bool = False,
    busy: Callable[[], bool] = bool,
) -> int:
    """0 when the run has ended, or goes on here; 75 when its groups could not be set to 0; 78 when it is not
    complete, and nothing trains here any more.

    `code` is the trainer's exit code; None: unknown, which ends nothing. With `two_tiers` the directories die with
    this machine: it may not go before their newest checkpoint is home. `busy`: the trainer runs here.
    """
    if code != 0:
        say(f"not at its end: the trainer ended with {code}")
        return OK
    for attempt in range(TRIES):
        if attempt:
            clock.sleep(PAUSE)
        missing = _missing(directories, two_tiers)
        if not missing:
            return _set_to_zero(cloud, clock, run, "finish_failed", say)
        if not attempt:
            say(f"not at its end: {missing}")
        if busy():
            return OK
        # Another node, whose rank writes the state, may not have written it yet.
    say(f"the trainer ended with 0, but {missing}: a person must look")
    return HUMAN


def _missing(directories: Sequence[Path], two_tiers: bool) -> str:
    """What keeps the run from being complete; "" when nothing does."""
    for directory in directories:
        state = read_state(directory)
        if state is None or state.phase != "complete" or state.exit_code != 0:
            return f"{directory} is {state.phase if state else 'without a state'}"
        if two_tiers and not is_home(directory):
            # `supervise` waits for it, but not beyond the grace period of a SIGTERM.
            return f"the last checkpoint of {directory} is not home"
    return ""


def park(
    cloud: Cloud,
    clock: Clock,
    run: str,
    instance: str,
    say: Say = print,
    *,
    why_not: Callable[[], str] = str,
    stay: float = PARKED,
    beside: Callable[[], Group | None] = lambda: None,
) -> int:
    """Asks for a person, waits `stay` seconds, then sets this machine's group to 0; all state is kept.

    The other group has machines of another kind, which may train; one that cannot is parked, too. `beside`: this
    machine's group, where another one of it trains; then this one leaves alone. 0 when that is done, or not needed; 75
    when AWS did not do it. `why_not`: why this machine need not be parked; "" when it must. A trainer that ends in
    the moment when it was seen finds this command still at work, so it looks once more before it ends.
    """
    registers = Registers(cloud, run)
    said = "not parked"
    while not (reason := why_not()):
        if not _is_over(registers, instance):
            _ask_for_a_person(cloud, clock, registers, run, instance, stay, say)
            until = clock.now() + stay
            while not (reason := why_not()) and clock.now() < until:
                clock.sleep(min(PAUSE, until - clock.now()))
        if not reason:
            return _end(cloud, clock, registers, run, instance, beside, say)
        said = "not parked any more"
        try:
            registers.cancel_parking(instance)
        except CloudError as error:  # hf-aws status and hf-aws up take it for parked, then
            say(f"the register of the parked machine could not be written: {error}")
    say(f"{said}: {reason}")
    return OK


def _is_over(registers: Registers, instance: str) -> bool:
    """An earlier process of this command has waited; what it did then may have failed."""
    try:
        return registers.read().parked.get(instance) == END
    except CloudError:
        return False


def _ask_for_a_person(
    cloud: Cloud, clock: Clock, registers: Registers, run: str, instance: str, stay: float, say: Say
) -> None:
    _count(cloud, run, "needs_human", say)
    try:
        registers.park(
            instance, datetime.fromtimestamp(clock.now(), timezone.utc).isoformat(timespec="seconds")
        )
    except CloudError as error:  # hf-aws status does not show it, then
        say(f"the register of the parked machine could not be written: {error}")
    say(
        f"a person must look: this machine stays for {stay / 60:.0f} min, then the run stops; "
        f"nothing is deleted. hf-aws up {run} goes on with another machine"
    )


def _end(
    cloud: Cloud,
    clock: Clock,
    registers: Registers,
    run: str,
    instance: str,
    beside: Callable[[], Group | None],
    say: Say,
) -> int:
    for attempt in range(TRIES):
        try:
            if not registers.end_parking(instance):
                say("hf-aws up replaces this machine; the run goes on")
                return OK
            group = beside()
            if group is None:
                return _set_to_zero(cloud, clock, run, "park_failed", say, instance)
            cloud.leave(instance, fewer=group.desired > 1)
            say(f"another machine of {group.name} trains: this one leaves, and the run goes on")
            return OK
        except CloudError as error:
            say(f"AWS does not answer, or refuses: {error}")
        if attempt < TRIES - 1:
            clock.sleep(PAUSE)
    return RETRY


def _set_to_zero(cloud: Cloud, clock: Clock, run: str, failed: str, say: Say, instance: str = "") -> int:
    """All groups of the run, or that of the instance; believed only when read back."""
    why = ""
    for attempt in range(TRIES):
        if attempt:
            clock.sleep(PAUSE)
        try:
            own = cloud.group_of(instance) if instance else None
            groups = [group for group in cloud.groups(run) if own in (None, group.name)]
            names = [group.name for group in groups]
            for group in groups:
                if group.desired != 0:
                    cloud.set_desired(group.name, 0)
            left = [group.name for group in cloud.groups(run) if group.desired != 0 and group.name in names]
        except CloudError as error:
            why = str(error)
            continue
        if groups and not left:
            say(f"the run's machines end: {', '.join(group.name for group in groups)} set to 0")
            return OK
        why = (
            f"{', '.join(left)} still wants machines" if left else f"no group has the tag holdfast:run={run}"
        )
    _count(cloud, run, failed, say)
    say(
        f"the groups of {run} could not be set to 0, this machine stays and costs money: {why}. "
        f"By hand: hf-aws stop {run}"
    )
    return RETRY


def _count(cloud: Cloud, run: str, name: str, say: Say) -> None:
    try:
        cloud.metric(run, name)
    except CloudError as error:
        say(f"the metric {name} could not be written: {error}")
