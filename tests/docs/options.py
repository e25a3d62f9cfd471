"""Which options commands in the documents name, against what the programs' --help knows."""
import re
import shlex
import subprocess
from pathlib import Path

SCRIPTS = {"examples/resnet50_cifar10/run", "tests/run", "tests/scoreboard", "cmake/bootstrap", "bench/recipe94",
           "bench/gpu_pack", "bench/gpu_session"}
# Of other people's tools, named in prose; and one that the example had once.
FOREIGN = {"--time", "--stop-timeout", "--signal", "--http-put-response-hop-limit", "--accumulate", "--help",
           "--preserve-status", "--kill-after", "--rdzv-conf", "--array", "--num-jobs"}


class Programs:
    def __init__(self, root, build):
        self.root, self.build = Path(root), Path(build)
        self.helps = {}

    def path(self, word):
        """Of a program of ours that was built, or a script; None for any other word."""
        if word in SCRIPTS:
            return self.root / word
        name = word.rsplit("/", 1)[-1]
        built = word == name or word.startswith("build/release/bin/")
        program = self.build / "bin" / name
        return program if built and program.is_file() and name == program.name else None

    def options(self, word, command=None):
        key = (word, command)
        if key not in self.helps:
            words = [str(self.path(word)), *([command] if command else []), "--help"]
            text = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=self.root).stdout
            if "\nOptions:" in text and word not in SCRIPTS:  # CLI11's: what defines an option begins its line
                text = "\n".join(line.split()[0] for line in text.splitlines() if re.match(r" +-", line))
            self.helps[key] = set(re.findall(r"--[a-z0-9][a-z0-9-]*", text))
        return self.helps[key]

    def unknown(self, line):
        """Options of one command that its program does not know; a command behind `--` is one more."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            return
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        while words and words[0] in ("timeout", "exec", "sudo"):
            words.pop(0)
        if not words or self.path(words[0]) is None:
            return
        program, command, known = words[0], None, None
        for position, word in enumerate(words[1:], 1):
            if word == "--":
                yield from self.unknown(shlex.join(words[position + 1:]))
                return
            if program.endswith("holdfast") and command is None and not word.startswith("-"):
                command = word
            match = re.match(r"(--[a-z][a-z0-9-]*)", word)
            if match:
                known = self.options(program, command) if known is None else known
                if match[1] not in known | {"--help"}:
                    yield f"{Path(program).name}{' ' + command if command else ''} has no {match[1]}"


def commands_of(block):
    """(line number, command) of a shell block; pipes and lists are split, long lines joined."""
    text, number, start = "", block.line, block.line
    for line in block.text.splitlines():
        text += line.rstrip("\\") + " "
        if not line.endswith("\\"):
            for command in re.split(r"&&|\|\||[|;&]", re.sub(r"(^|\s)#.*", "", text)):
                yield start, command.strip()
            text, start = "", number + 1
        number += 1


def check(root, pages, build):
    programs = Programs(root, build)
    every = set(FOREIGN)
    for name in sorted((Path(build) / "bin").glob("*")):
        if name.name in ("resnet50_cifar10", "bench_precision_table", "bench_checkpoint"):
            every |= programs.options(name.name)
    holdfast = subprocess.run([Path(build) / "bin/holdfast", "--help"], capture_output=True, text=True).stdout
    for command in re.findall(r"^  ([a-z]+) ", holdfast[holdfast.index("Subcommands:"):], re.MULTILINE):
        every |= programs.options("holdfast", command)
    for script in sorted(SCRIPTS):
        every |= programs.options(script)
    for path, page in pages.items():
        for block in page.blocks:
            if block.language == "sh":
                for number, command in commands_of(block):
                    yield from (f"{path}:{number}: {wrong}" for wrong in programs.unknown(command))
        for number, span in page.spans:
            if match := re.match(r"--[a-z][a-z0-9-]*", span):
                if match[0] not in every:
                    yield f"{path}:{number}: no program has {match[0]}"
            else:
                yield from (f"{path}:{number}: {wrong}" for wrong in programs.unknown(span))
