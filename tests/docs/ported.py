#!/usr/bin/python3
"""tests/docs/ported.py ROOT: writes the diffs of trainers in docs/ anew from tests/resume/trainers.
tests/docs/ported.py --before SOURCE FILE: writes a trainer as it was before the port.

A trainer's marks say what making it resumable changed:
  code  // holdfast       an added line
  // was: ORIGINAL        the next line replaces ORIGINAL
"""
import difflib
import re
import sys
from pathlib import Path

MOST_LINES = 20  # that a family may need: added or replaced
PAGE = "docs/ported_trainers.md"  # names every trainer that no page shows
ADDED = re.compile(r" *// holdfast$")
WAS = re.compile(r"^( *)// was: (.*)$")
FENCE = re.compile(r"(```diff trainer=(\w+)\n)(.*?)(```\n)", re.S)


def sides(source):
    """The trainer before and after, as lists of lines."""
    before, after, replaces = [], [], False
    for line in source.splitlines():
        if was := WAS.match(line):
            before.append(was[1] + was[2])
            replaces = True
            continue
        plain = ADDED.sub("", line)
        if plain == line and not replaces:
            before.append(line)
        after.append(plain)
        replaces = False
    return before, after


def changed(source):
    before, after = sides(source)
    return sum(line.startswith("+") for line in list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:])


def diff(source):
    before, after = sides(source)
    lines = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    return "".join(("" if line.startswith("@@") else line.rstrip()) + "\n" for line in lines[1:]).lstrip("\n")


def trainers(root):
    folder = Path(root) / "tests/resume/trainers"
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.cc")) if path.stem != "main"}


def pages(root):
    """The pages that show a trainer: their paths and texts."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(Path(root).glob("docs/*.md"))}
    return {path: text for path, text in texts.items() if FENCE.search(text)}


def check(root, page):
    """Yields what is wrong with the text of the pages, one after the other."""
    shown = {name: text for _, name, text, _ in FENCE.findall(page)}
    sources = trainers(root)
    for name in sorted(shown.keys() | sources.keys()):
        if name not in sources:
            yield f"docs: no trainer {name}"
            continue
        count = changed(sources[name])
        if count > MOST_LINES:
            yield f"tests/resume/trainers/{name}.cc: {count} changed lines, at most {MOST_LINES}"
        if name not in shown:
            if f"trainers/{name}.cc)" not in page:
                yield f"{PAGE}: neither ```diff trainer={name} nor a link to {name}.cc"
        elif shown[name] != diff(sources[name]):
            yield f"docs: the diff of {name} is another; tests/docs/ported.py . writes it anew"


def write(root):
    sources = trainers(root)
    for page, text in pages(root).items():
        anew = FENCE.sub(lambda fence: fence[1] + diff(sources[fence[2]]) + fence[4], text)
        page.write_text(anew, encoding="utf-8")
    for name, source in sources.items():
        print(f"{name}: {changed(source)} changed lines")


if __name__ == "__main__":
    if sys.argv[1] == "--before":
        before, _ = sides(Path(sys.argv[2]).read_text(encoding="utf-8"))
        Path(sys.argv[3]).write_text("\n".join(before) + "\n", encoding="utf-8")
    else:
        write(sys.argv[1])
