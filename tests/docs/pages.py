"""The documents as data: their blocks, headings, links and code spans."""
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Block:
    page: str          # relative to the root, "docs/own_loop.md"
    line: int          # of its first line, from 1 on
    language: str
    words: list        # of the fence, behind the language: "norun", "preamble=loop"
    text: str

    def value(self, name):
        """What `name=…` on the fence says; None without it."""
        return next((word.split("=", 1)[1] for word in self.words if word.startswith(name + "=")), None)

    @property
    def where(self):
        return f"{self.page}:{self.line}"


@dataclass
class Page:
    path: str
    lines: list
    blocks: list = field(default_factory=list)
    prose: list = field(default_factory=list)  # (line number, text) outside of blocks

    @property
    def anchors(self):
        """Of its headings, as GitHub makes them."""
        seen, anchors = {}, set()
        for _, line in self.prose:
            if match := re.match(r"#+ +(.*)", line):
                title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
                slug = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
                number = seen.get(slug, 0)
                seen[slug] = number + 1
                anchors.add(f"{slug}-{number}" if number else slug)
        return anchors

    @property
    def links(self):
        return [(number, target) for number, line in self.prose
                for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line))]

    @property
    def spans(self):
        """Code spans; one that goes over a line's end is joined."""
        text = "\n".join(line for _, line in self.prose)
        numbers = [number for number, _ in self.prose]
        return [(numbers[text.count("\n", 0, match.start())], " ".join(match[1].split()))
                for match in re.finditer(r"`([^`]+)`", text)]


def read_page(root, path):
    page = Page(path, (Path(root) / path).read_text(encoding="utf-8").splitlines())
    block = None
    for number, line in enumerate(page.lines, 1):
        if match := re.match(r" *```(.*)$", line):
            if block is None:
                language, *words = match[1].split() or [""]
                block = Block(path, number + 1, language, words, "")
            else:
                page.blocks.append(block)
                block = None
        elif block is not None:
            block.text += line + "\n"
        else:
            page.prose.append((number, line))
    if block is not None:
        raise SystemExit(f"{block.where}: a block that does not end")
    return page


def documents(root):
    """README, that of the tests, and the pages of docs/, by path."""
    paths = ["README.md", "tests/README.md"] + sorted(f"docs/{path.name}" for path in (Path(root) / "docs").glob("*.md"))
    return {path: read_page(root, path) for path in paths}
