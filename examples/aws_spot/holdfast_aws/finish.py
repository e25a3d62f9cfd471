"""The end of a run: `hf finish` sets the run's groups to 0 when, and only when, all of it is complete.

`hf park` does the same for a run that a person must look at, half an hour later; its state is kept. Neither
deletes anything, terminates an instance or powers the machine off (the group would start another).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast_aws.cloud import Clock, Cloud, CloudError
from holdfast_aws.run_state import is_home, read_state
from holdfast_aws.stop import OK, RETRY

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
) -> int:
    """0 when the run has ended, or is not at its end; 75 when its groups could not be set to 0.

    `code` is the trainer's exit code; None: unknown, which ends nothing. With `two_tiers` the directories die with
    this machine: it may not go before their newest checkpoint is home.
    """
    if code != 0:
        say(f"not at its end: the trainer ended with {code}")
        return OK
    for directory in directories:
        state = read_state(directory)
        if state is None or state.phase != "complete" or state.exit_code != 0:
            say(f"not at its end: {directory} is {state.phase if state else 'without a state'}")
            return OK
        if two_tiers and not is_home(directory):
            # `supervise` waits for it, but not beyond the grace period of a SIGTERM. The next machine trains these
            # steps again, and ends the run.
            say(f"not at its end: the last checkpoint of {directory} is not home")
            return OK
    return _set_to_zero(cloud, clock, run, "finish_failed", say)


def park(cloud: Cloud, clock: Clock, run: str, stay: float = PARKED, say: Say = print) -> int:
    """Asks for a person, waits `stay` seconds, then stops the run with all its state."""
    _count(cloud, run, "needs_human", say)
    say(
        f"a person must look: this machine stays for {stay / 60:.0f} min, then the run stops; "
        "nothing is deleted"
    )
    clock.sleep(stay)
    return _set_to_zero(cloud, clock, run, "park_failed", say)


def _set_to_zero(cloud: Cloud, clock: Clock, run: str, failed: str, say: Say) -> int:
    """All groups of the run; believed only when read back."""
    why = ""
    for attempt in range(TRIES):
        if attempt:
            clock.sleep(PAUSE)
        try:
            groups = cloud.groups(run)
            for group in groups:
                if group.desired != 0:
                    cloud.set_desired(group.name, 0)
            left = [group.name for group in cloud.groups(run) if group.desired != 0]
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
