#!/usr/bin/python3
"""tests/docs/blocks.py ROOT FILE: writes one C++ source of all C++ blocks of ROOT's README.md and docs/*.md.

A fence ```cpp preamble=NAME puts its block in the place of "// BLOCK" in preambles/NAME.cc; of ```diff preamble=NAME it
is the newer side; ```diff trainer=NAME is ported.py's. #include lines move to the top. Each block has a namespace, and errors name the page's line.
"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import pages

HERE = Path(__file__).resolve().parent


def lines_of(block):
    lines = block.text.splitlines()
    if block.language == "diff":  # a line that is gone leaves an empty one, so that numbers hold
        lines = ["" if line.startswith("-") else line[1:] for line in lines]
    return lines


def source(root, only=None, usual=(HERE / "preambles/includes.h").read_text(encoding="utf-8")):
    blocks = [block for path, page in pages.documents(root).items() for block in page.blocks
              if block.language in ("cpp", "diff") and block.value("trainer") is None and (only is None or path in only)]
    includes, bodies = [], []
    for block in blocks:
        name = block.value("preamble")
        preamble = HERE / f"preambles/{name}.cc"
        if name is None or not preamble.exists():
            raise SystemExit(f"{block.where}: a C++ block says preamble=NAME, one of tests/docs/preambles")
        before, after = preamble.read_text(encoding="utf-8").split("// BLOCK\n")
        lines = lines_of(block)
        includes += [line for line in lines if line.startswith("#include")]
        lines = ["" if line.startswith("#include") else line for line in lines]
        space = f"block_{block.page.replace('/', '_').replace('.', '_')}_{block.line}"
        bodies.append(f"namespace {space} {{\n{before}#line {block.line} \"{block.page}\"\n"
                      + "\n".join(lines) + f"\n#line 1 \"behind {block.where}\"\n{after}}}  // namespace {space}\n")
    quiet = "".join(f'#pragma GCC diagnostic ignored "-W{name}"\n'
                    for name in ("unused", "unused-parameter", "missing-field-initializers"))
    return (quiet + usual + "".join(line + "\n" for line in dict.fromkeys(includes)) + "\n".join(bodies))


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(source(Path(sys.argv[1])), encoding="utf-8")
