#!/usr/bin/python3
"""tests/docs/command_line.py [BUILD]: writes docs/command_line.md from what the programs of BUILD print."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INTRODUCTION = """# Command line

What the programs print with `--help`. `tests/docs/command_line.py build/release` writes this page anew; a test compares
it. On a machine with a GPU some defaults differ, and `--cuda`, `--no-cuda` are options.

"""


def help_of(program, *words):
    # No device: defaults depend on it.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([program, *words, "--help"], env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(f"{program} {' '.join(words)} --help ends with {done.returncode}: {done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines()) + "\n"


def commands_of(text):
    commands = text[text.index("Subcommands:"):].split("\n\n")[0]
    return re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE)


def section(title, level, text):
    return f"{'#' * level} {title}\n\n```text\n{text}```\n\n"


def page(build):
    tool = build / "bin/holdfast"
    text = help_of(tool)
    page = INTRODUCTION + section("holdfast", 2, text)
    for command in commands_of(text):
        page += section(f"holdfast {command}", 3, help_of(tool, command))
    example = help_of(build / "bin/resnet50_cifar10")
    options, environment = example.split("\nEnvironment:\n")
    variables, codes = environment.split("\n\n", 1)
    page += section("resnet50_cifar10", 2, options.rstrip() + "\n\n" + codes)
    page += "## Environment variables\n\n| variable | meaning |\n|---|---|\n"
    for line in variables.splitlines():
        name, meaning = line.split(maxsplit=1)
        page += f"| `{name}` | {re.sub('([|<])', lambda match: chr(92) + match[0], meaning)} |\n"
    return page


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
    (ROOT / "docs/command_line.md").write_text(page(build), encoding="utf-8")


if __name__ == "__main__":
    main()
