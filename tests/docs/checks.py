"""What must hold of the pages' text alone. Each check yields lines "page:line: what is wrong"."""
import os
import re
from pathlib import Path

import pages as pages_of

MOST_LINES = {"README.md": 150, "tests/README.md": 120}
GENERATED = {"docs/command_line.md"}
MOST_WORDS = 28  # of a sentence; design.md asks for 25
RIDDLES = ("whoever", "whatever it", "in vain", "of then", "so long", "comes true", "none of its business")
FOLDERS = ("lib", "cmake", "examples", "bench", "tests")


def lengths(root, pages):
    for path, page in pages.items():
        most = MOST_LINES.get(path, 200)
        if path not in GENERATED and len(page.lines) > most:
            yield f"{path}: {len(page.lines)} lines, at most {most}"


def links(root, pages):
    root = Path(root)
    others = {str(path.relative_to(root)): None for path in root.glob("examples/*/README.md")}
    for path in [*pages, *others]:
        page = pages.get(path) or pages_of.read_page(root, path)
        for number, target in page.links:
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            linked_path = os.path.normpath(Path(path).parent / name) if name else path
            if not (root / linked_path).exists():
                yield f"{path}:{number}: there is no {target}"
            elif anchor and linked_path.endswith(".md"):
                linked = pages.get(linked_path) or pages_of.read_page(root, linked_path)
                if anchor not in linked.anchors:
                    yield f"{path}:{number}: {linked_path} has no heading #{anchor}"


def paths(root, pages):
    """Code spans that name a file of the source tree."""
    for path, page in pages.items():
        for number, span in page.spans:
            word = span.split()[0]
            ours = re.fullmatch(r"(tests|lib|docs|bench|examples|cmake)/[\w./-]*\w", word)
            if ours and not (Path(root) / word).exists():
                yield f"{path}:{number}: there is no {word}"


def variables(root, pages):
    text = "".join(file.read_text(encoding="utf-8", errors="replace") for folder in FOLDERS
                   for file in sorted((Path(root) / folder).rglob("*"))
                   if file.is_file() and file.suffix in (".h", ".cc", ".cmake", ".txt", ".py", ""))
    known = set(re.findall(r"\bHOLDFAST_[A-Z0-9_]+", text))
    for path, page in pages.items():
        for number, line in enumerate(page.lines, 1):
            for name in re.findall(r"\bHOLDFAST_[A-Z0-9_]+", line):
                if name not in known:
                    yield f"{path}:{number}: nothing reads {name}"


def sentences(root, pages):
    """Plain technical English, as far as it can be counted: rule 11 of docs/design.md."""
    for path, page in pages.items():
        if path in GENERATED:
            continue
        for number, line in page.prose:
            yield from (f"{path}:{number}: \"{riddle}\"" for riddle in RIDDLES if riddle in line.lower())
        prose = "\n".join("" if line.startswith(("#", "|")) else re.sub(r"^(\s*[-*]|\d+\.) ", "\n", line)
                          for _, line in page.prose)
        for paragraph in re.split(r"\n\s*\n", prose):
            for sentence in re.split(r"(?<=[.!?:;])\s", " ".join(paragraph.split())):
                words = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", sentence)).split()
                if len(words) > MOST_WORDS:
                    yield f"{path}: {len(words)} words: {sentence}"


def folders(root, pages):
    """Every module stands in the table of docs/design.md, and nothing else."""
    here = {path.parent.name for path in (Path(root) / "lib/holdfast").glob("*/CMakeLists.txt")}
    text = "\n".join(pages["docs/design.md"].lines)
    named = set(re.findall(r"^\| `(\w+)` \| (?:core|Torch) \|", text, re.MULTILINE))
    for name in sorted(here ^ named):
        yield f"docs/design.md: {name} is {'a module without' if name in here else 'no module, but has'} a row"


ALL = {check.__name__: check for check in (lengths, links, paths, variables, sentences, folders)}
