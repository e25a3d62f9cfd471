"""A machine of the run under a real systemd: process 1 of name spaces of its own, with the units of `hf-aws up`.

    with Box(tmp_path, plans.PLAIN) as box:
        box.boots()
        box.until("trains")
        box.trainer_ends(74)

The programs that the units start are doubles, which tell what they were asked in `box.told()`; `hf-ended` is real.
`faster` shortens times of a unit, and changes nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import time
import uuid
from pathlib import Path

from holdfast_aws import user_data
from holdfast_aws.plan import LaunchPlan

# `sh -c APART group COMMAND`: in name spaces of its own, and in a control group of its own, which `GROUP_GONE` removes.
# Boxes in one control group would take each other's services for their own.
GROUP = """set -eu
mount --make-rprivate /
mount -t cgroup2 cgroup2 /mnt
group=/mnt$(sed -n s/^0:://p /proc/self/cgroup)/$1
shift
"""
APART = (
    GROUP
    + """mkdir "$group"
echo $$ >"$group/cgroup.procs"
umount /mnt
exec unshare --mount --pid --cgroup --ipc --uts --fork --kill-child "$@"
"""
)
GROUP_GONE = (
    GROUP
    + """for _ in $(seq 100); do  # the killed end a little later
  find "$group" -depth -type d -exec rmdir {} + && break
  sleep 0.1
done
"""
)
SYSTEMD = Path("/lib/systemd/systemd")
PATIENCE = 240.0  # real seconds

# In the new name spaces: a root of its own, which shares /usr. Of the distribution's units it has none.
BOOT = """#!/bin/bash
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir -p usr proc sys/fs/cgroup dev run tmp old etc opt mnt/holdfast box
mount --rbind /usr usr
for link in bin sbin lib lib64; do ln -s "usr/$link" "$link"; done
mount -t tmpfs tmpfs usr/lib/systemd/system
mount -t tmpfs tmpfs usr/local/bin
mount -t proc proc proc
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
for device in null zero full random urandom; do touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"; done
mount --bind "$2" box
cp -a box/root/. .
cp box/doubles/* usr/local/bin/
echo 'root:x:0:0::/:/bin/sh' >etc/passwd
echo 'root:x:0:' >etc/group
echo 00000000000000000000000000000001 >etc/machine-id
touch etc/os-release
pivot_root . old
umount -l /old
exec env -i container=box PATH=/usr/local/bin:/usr/bin:/usr/sbin \
  /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=false
"""
# `hf WORDS`, and other programs of the machine: told, and answered as the test says.
DOUBLE = """#!/bin/bash
name="$(basename "$0") $*"
echo "${name% }" >>/box/told
[[ ! -e "/box/does/$name" ]] || . "/box/does/$name"
"""
# Ends with the code that the test writes; SIGTERM is a commit and 75.
TRAINER = """#!/bin/bash
trap 'echo "TERM with $HOLDFAST_TERM_GRACE" >>/box/told; exit 75' TERM
told="trains $*"
echo "${told% }" >>/box/told
until [[ -e "/box/end $*" ]]; do sleep 0.05; done
code=$(<"/box/end $*")
[[ -e /box/again ]] || rm "/box/end $*"
case $code in KILL) kill -KILL $$ ;; *) exit "$code" ;; esac
"""


class Box:
    def __init__(self, root: Path, plan: LaunchPlan) -> None:
        self.root = root
        for folder in ("root", "does", "doubles", "mount"):
            (root / folder).mkdir()
        config = json.loads(user_data.cloud_config(plan).removeprefix("#cloud-config\n"))
        for file in config["write_files"]:
            self.write(f"root{file['path']}", file["content"], int(file["permissions"], 8))
        for unit in ("basic", "sysinit", "timers", "network-online", "shutdown", "multi-user"):
            self.write(f"root/etc/systemd/system/{unit}.target", "[Unit]\nDefaultDependencies=no\n")
        for script in ("hf", "hf-setup", "hf-kit", "hf-shared", "hf-mig"):
            self.write(f"root/opt/holdfast/{script}", DOUBLE, 0o755)
        self.write("root/opt/holdfast/hf-run", TRAINER, 0o755)
        self.write("doubles/docker", DOUBLE, 0o755)
        self._services = [word for word in config["runcmd"][1] if word.startswith(("holdfast", "hf-mig"))]
        self._boot = self.write("boot", BOOT, 0o755)
        self._group = f"holdfast-box-{uuid.uuid4().hex}"
        self._program: subprocess.Popen[bytes] | None = None

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)
        return place

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        if self._program is not None:
            self._program.kill()  # its child is process 1: all the others die with it
            self._program.wait()
            subprocess.run(apart(GROUP_GONE, self._group), capture_output=True, check=False)

    def faster(self, unit: str, **times: str) -> None:
        """Before it boots."""
        section = "Unit" if "StartLimitIntervalSec" in times else "Service"
        lines = "".join(f"{name}={value}\n" for name, value in times.items())
        self.write(f"root/etc/systemd/system/{unit}.d/faster.conf", f"[{section}]\n{lines}")

    def plant(self, path: str, old: str, new: str) -> None:
        """A bug, before it boots."""
        file = self.root / "root" / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def does(self, words: str, script: str) -> None:
        """What the double does when it is called so, such as "hf finish --exit-code 0"."""
        self.write(f"does/{words}", script)

    def boots(self) -> None:
        with (self.root / "console").open("wb") as console:
            self._program = subprocess.Popen(
                apart(APART, self._group, self._boot, self.root / "mount", self.root),
                stdout=console,
                stderr=console,
            )
        self._until(lambda: self.systemctl("is-active", "multi-user.target") == "active", "systemd is up")
        self.systemctl("enable", *self._services)
        self.systemctl(
            "start", "--no-block", *(name for name in self._services if "setup" in name or "volume" in name)
        )

    def systemctl(self, *words: str) -> str:
        first = self._first()
        if first is None:
            return ""
        done = subprocess.run(
            ["nsenter", "--all", "--target", str(first), "systemctl", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def state(self, unit: str) -> str:
        return self.systemctl("show", "-P", "ActiveState", unit)

    def trainer_ends(self, code: int | str, name: str = "", *, always: bool = False) -> None:
        """Now; with `always` each that follows it, too."""
        if always:
            self.write("again", "")
        self.write("new", str(code)).rename(self.root / f"end {name}")

    def told(self) -> list[str]:
        told = self.root / "told"
        return told.read_text().splitlines() if told.exists() else []

    def until(self, line: str, times: int = 1) -> None:
        """The doubles have told it so often."""
        self._until(lambda: self.told().count(line) >= times, line)

    def until_begins(self, words: str) -> None:
        """A line begins so."""
        self._until(lambda: any(line.startswith(words) for line in self.told()), words)

    def settles(self) -> None:
        """Nothing begins or ends any more, but what sleeps."""
        self._until(
            lambda: "\n" not in self.systemctl("list-jobs", "--no-legend").strip("\n"), "no job is left"
        )

    def until_state(self, unit: str, *states: str) -> None:
        self._until(lambda: self.state(unit) in states, f"{unit} is {states}")

    def _first(self) -> int | None:
        with contextlib.suppress(OSError, IndexError, AttributeError):
            children = Path(f"/proc/{self._program.pid}/task/{self._program.pid}/children")  # type: ignore[union-attr]
            return int(children.read_text().split()[0])
        return None

    def _until(self, holds: object, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():  # type: ignore[operator]
            assert self._program is not None
            console = (self.root / "console").read_text(errors="replace")[-3000:]
            assert self._program.poll() is None, f"systemd ended: {console}"
            assert time.monotonic() < end, f"in vain: {what}\n{self.told()}\n{console}"
            time.sleep(0.05)


def apart(script: str, *words: object) -> list[str]:
    return ["unshare", "--mount", "sh", "-c", script, "apart", *map(str, words)]


@functools.lru_cache
def why_not() -> str:
    """ "" when a systemd can be process 1 here."""
    if not SYSTEMD.exists():
        return "there is no systemd here"
    if os.geteuid() != 0:
        return "systemd as process 1 of a name space needs root"
    trial = "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && mount -t cgroup2 cgroup2 /mnt"
    group = f"holdfast-box-{uuid.uuid4().hex}"
    done = subprocess.run(apart(APART, group, "sh", "-c", trial), capture_output=True, text=True, check=False)
    subprocess.run(apart(GROUP_GONE, group), capture_output=True, check=False)
    return "" if done.returncode == 0 else f"no name spaces with cgroups here: {done.stderr.strip()}"
