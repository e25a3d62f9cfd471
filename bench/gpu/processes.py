"""Runs one command with a time limit, and leaves none of its processes behind, not even those that left its group."""
import collections
import ctypes
import os
import signal
import subprocess
import time

Ended = collections.namedtuple("Ended", "code over")
PR_SET_CHILD_SUBREAPER = 36
GRACE = 10  # seconds between TERM and KILL


def adopt_orphans():
    """Processes whose parent ends become this one's children, so that they can be found."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it ended meanwhile
            if state != "Z":
                parents[int(entry)] = int(parent)
    found, front = set(), {os.getpid()}
    while front:
        front = {one for one, parent in parents.items() if parent in front} - found
        found |= front
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end():
    """TERM to all of them, KILL to those that stay."""
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        until = time.monotonic() + seconds
        told = set()
        while (here := descendants()) and time.monotonic() < until:
            for one in here - told:
                try:
                    os.kill(one, number)
                except ProcessLookupError:
                    pass
            told |= here
            time.sleep(0.02)
        if not here:
            break
    reap()


def run(command, log, limit, variables):
    """`log` gets its output. However this call ends, none of its processes is left."""
    adopt_orphans()
    until = time.monotonic() + limit
    with open(log, "wb") as out:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=variables,
                                       start_new_session=True)
            while process.poll() is None:
                if time.monotonic() > until:
                    return Ended(124, True)
                time.sleep(0.05)
            return Ended(process.returncode, False)
        except OSError as error:
            out.write(f"{command[0]}: {error.strerror}\n".encode())
            return Ended(127, False)
        finally:
            end()
