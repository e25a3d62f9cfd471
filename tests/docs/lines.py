"""Runs the shell blocks of quick_start.md and the Python blocks of all pages, as a reader would."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON = "/usr/bin/python3"  # which has h5py by cmake/bootstrap --tests
LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "SLURM_STEP_NUM_TASKS")
SET_UP = {"cmake/bootstrap": 'mkdir -p "$root/.deps"; : >"$root/.deps/env"', "cmake/configure": "", "bin/ninja": ""}


def make_tree(root, build, tree):
    """A source tree whose set-up is done already: the script itself, and the programs of `build`."""
    for name, text in SET_UP.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"#!/usr/bin/env bash\nroot={tree}\n{text}\n")
        (tree / name).chmod(0o755)
    (tree / "examples/resnet50_cifar10").mkdir(parents=True)
    shutil.copy(root / "examples/resnet50_cifar10/run", tree / "examples/resnet50_cifar10/run")
    (tree / "build/release").mkdir(parents=True)
    (tree / "build/release/bin").symlink_to(build / "bin")


def environment(tree):
    variables = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    return {**variables, "PATH": f"{tree}/bin:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "",
            "HOLDFAST_SOURCES": "signal,file,deadline", "LC_ALL": "C.UTF-8"}


def missing(expected, output):
    """The first expected line that the output lacks behind those before it; … stands for any text."""
    rest = output.splitlines()
    for line in expected.splitlines():
        pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
        while rest and not re.search(pattern, rest[0]):
            rest.pop(0)
        if not rest:
            return line
        rest.pop(0)
    return None


def run_shell(page, tree):
    """Each block by itself; the block "text output" behind one says what it must print. Yields what is wrong."""
    shell = [block for block in page.blocks if block.language == "sh" or block.words == ["output"]]
    output = ""
    for block in shell:
        if block.language == "sh" and "norun" not in block.words:
            done = subprocess.run(["bash", "-c", block.text], cwd=tree, env=environment(tree), timeout=600, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            output = done.stdout
            if done.returncode != 0:
                yield f"{block.where}: ends with {done.returncode}: {output[-2000:]}"
        elif block.words == ["output"] and (line := missing(block.text, output)) is not None:
            yield f"{block.where}: nothing printed is like \"{line}\": {output[-2000:]}"


def has_h5py():
    return subprocess.run([PYTHON, "-c", "import h5py"], capture_output=True).returncode == 0


def run_python(block, checkpoint, lab):
    """The block's standard output, beside a checkpoint of the name that it opens; ends with the exit status."""
    name = re.search(r'"(step-[^"]*\.h5)"', block.text)[1]
    shutil.copy(checkpoint, lab / name)
    # The package where it is there, otherwise its double.
    path = os.pathsep.join([*sys.path, str(Path(__file__).resolve().parent / "doubles")])
    done = subprocess.run([PYTHON, "-B", "-c", block.text], cwd=lab, env={**os.environ, "PYTHONPATH": path}, timeout=60,
                          capture_output=True, text=True)
    return done.stdout + done.stderr + f"exit status {done.returncode}\n"
