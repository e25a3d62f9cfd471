"""`hf home up`: a run that has no volume. Its checkpoints are in S3, so a machine of any zone may go on with it.

The register /holdfast/RUN/home says where, once and for all: a machine that was launched for another place, or for a
volume, trains nothing. The bucket itself is not touched here: `holdfast supervise --mirror` claims and fetches.

Errors: StopError 78 when a person must decide, 75 when AWS does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast_aws.cloud import FINAL, Clock, Cloud, CloudError
from holdfast_aws.registers import Book, Registers
from holdfast_aws.stop import HUMAN, OK, RETRY, StopError

T = TypeVar("T")

TRIES = 5
PAUSE = 2.0  # seconds


def home_up(cloud: Cloud, clock: Clock, run: str, s3: str, say: Callable[[str], None] = print) -> int:
    """0 once the run's home is this one."""
    if not s3:
        raise StopError(HUMAN, "HF_S3 names no bucket: this machine was launched for a volume (hf volume up)")
    registers = Registers(cloud, run)
    home = f"s3://{s3}"
    _must_be(_call(clock, registers.read), run, home)
    _call(clock, lambda: registers.set_home(home))
    # Read back: another machine may have written first.
    book = _call(clock, registers.read)
    _must_be(book, run, home)
    if not book.home:
        raise StopError(RETRY, f"the register of {run}'s home was written, and is not shown yet")
    say(f"ready: the checkpoints of {run} are in {home}")
    return OK


def _must_be(book: Book, run: str, home: str) -> None:
    if book.generations or book.formatted:
        name = book.current.volume if book.current else "one that is being made"
        raise StopError(
            HUMAN, f"the run {run} has a volume ({name}), and this machine was launched for {home}: "
            f"hf-aws up {run} --home ebs …, or take another name for a new run"
        )  # fmt: skip
    if book.home and book.home != home:
        raise StopError(
            HUMAN, f"the checkpoints of {run} are in {book.home}, and this machine was launched for {home}: "
            f"hf-aws up {run} --home {book.home.rpartition('/')[0]} …"
        )  # fmt: skip


def _call(clock: Clock, call: Callable[[], T]) -> T:
    for attempt in range(TRIES):
        try:
            return call()
        except CloudError as error:
            if error.code in FINAL:
                raise StopError(HUMAN, f"the registers: {error}") from error
            if attempt == TRIES - 1:
                raise StopError(RETRY, f"AWS does not answer: {error}") from error
        clock.sleep(PAUSE * 2**attempt)
    raise AssertionError("unreachable")
