#!/usr/bin/python3
"""Carries out a Dockerfile without a container tool: mmdebstrap makes the root file systems, unshare the walls.

    sudo tests/aws/image.py WORK_FOLDER [NAME=VALUE…]        such as CUDA=--no-cuda

Needs root, mmdebstrap, a Debian mirror and PyPI, and takes as long as a build: no part of tests/aws/run. It knows the
instructions that examples/aws_spot/Dockerfile uses. PIP_CERT names the authority of an intercepting proxy. At the end
it runs the last stage's programs as its user.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "examples" / "aws_spot" / "Dockerfile"


class Stage:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = "/"
        self.user = "root"

    def run(self, command: str) -> None:
        inside = f"cd {self.folder} && {command}"
        into = ["chroot", "--userspec", self.user, str(self.root), "/bin/sh", "-ec", inside]
        walls = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.root}/proc"]
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp"}
        if "PIP_CERT" in os.environ:
            shutil.copy(os.environ["PIP_CERT"], self.root / "etc/pip-cert.pem")
            environment["PIP_CERT"] = "/etc/pip-cert.pem"
        subprocess.run([*walls, *into], check=True, env=environment)


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def base(work: Path, image: str, name: str) -> Path:
    suite = {"debian:12-slim": "bookworm", "debian:12": "bookworm"}[image]
    kept = work / f"{suite}.tar"
    if not kept.exists():
        subprocess.run(["mmdebstrap", "--variant=apt", suite, str(kept)], check=True)
    root = work / name
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(kept), "-C", str(root)], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    return root


def main(work: Path, given: dict[str, str]) -> None:
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage = Stage(work)
    for word, rest in instructions():
        rest = re.sub(r"\$\{(DEBIAN|CUDA)\}", lambda match: arguments[match[1]], rest)
        print(f"== {word} {rest}", flush=True)
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = given.get(name, value)
        elif word == "FROM":
            image, _, name = rest.partition(" AS ")
            stage = Stage(base(work, image, name or "last"))
            stages[name or "last"] = stage
        elif word == "WORKDIR":
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            stage.folder = rest
        elif word == "COPY" and rest == ". .":
            ignore = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().split()
            ignored = [f"--exclude=./{name}" for name in ignore]
            target = f"{stage.root}{stage.folder}"
            pack = subprocess.Popen(
                ["tar", "-C", str(ROOT), *ignored, "-cf", "-", "."], stdout=subprocess.PIPE
            )
            subprocess.run(["tar", "-C", target, "-xf", "-"], stdin=pack.stdout, check=True)
        elif word == "COPY":
            origin, source, place = rest.split()
            shutil.copytree(
                f"{stages[origin.removeprefix('--from=')].root}{source}",
                f"{stage.root}{place}",
                dirs_exist_ok=True,
            )
        elif word == "RUN":
            stage.run(rest)
        elif word == "USER":
            stage.user = rest
        elif word not in ("STOPSIGNAL", "ENTRYPOINT", "HEALTHCHECK"):
            raise SystemExit(f"image.py does not know {word}")
    stage.run("holdfast --version && holdfast supervise -- sh -c 'test $(id -u) = 1000'")
    stage.run("cd /tmp && resnet50_cifar10 --data synthetic --width 8 --steps 2 --checkpoint-dir /tmp/run")
    print("the image's programs run as its user")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), dict(word.split("=", 1) for word in sys.argv[2:]))
