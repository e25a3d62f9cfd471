"""The places of C++ sources that tests/mutations/run changes, and the build in which all mutants live.

Places are found in the text. What does not compile is left out: the compiler names its line.
"""
import concurrent.futures
import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent.parent
CORE = ROOT / "build/core"
HERE = ROOT / "build/mutations"
PLACES = ("lib/holdfast/planning/*.cc", "lib/holdfast/checkpoint/internal/*.cc")
# The first is asked first; with the modules that it is linked with.
PROGRAMS = {"simulation_test": ["simulation"], "planning_test": ["planning"], "checkpoint_test": ["planning", "checkpoint"]}
ORDER = {"<": "less", "<=": "most", ">": "more", ">=": "least"}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|^#(?:[^\n]*\\\n)*[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])+\''
                   r'|\d[\w\'.]*|[A-Za-z_]\w*'
                   r'|::|->|\+\+|--|&&|\|\||<<|>>|[=!<>+*/|&-]=|[^\s\w]', re.S | re.M)
STATEMENT = re.compile(r"\*?[A-Za-z_][\w:]*(?:(?:\.|->)\w+|\(\)|\[[^\]\n]*\])*(?:\(| = | \+= | -= |\+\+;)"
                       r"|(?:\+\+|--)[a-z_]\w*;")
KEYWORDS = {"return", "if", "for", "while", "switch", "case", "default", "break", "continue", "using", "static_assert",
            "throw", "delete", "do", "else", "try", "catch", "namespace", "template", "struct", "class", "enum", "sizeof"}
STOPS = {"?", ":", ",", ";", "=", "+=", "-=", "return", "(", ")", "[", "]", "{", "}", "||", "&&", "case", "else"}


def mutants_of(text):
    """Yields (kind, first, last, prefix, suffix, other replacements) for each place; prefix and suffix have %d."""
    found = (m for m in TOKEN.finditer(text) if not m.group().startswith(("//", "/*", "#")))
    tokens = [(m.group(), m.start(), m.end()) for m in found]
    words = [token[0] for token in tokens]
    match, inside, stack = {}, [], []
    for i, word in enumerate(words):
        if word in (")", "]", "}") and stack:
            match[i] = stack.pop()
            match[match[i]] = i
        inside.append(words[stack[-1]] if stack else "")
        if word in ("(", "[", "{"):
            stack.append(i)

    def operand(at, step, over=()):
        i = at + step
        opening = (")", "]", "}") if step < 0 else ("(", "[", "{")
        while 0 <= i < len(words):
            if words[i] in opening and i in match:
                i = match[i]
            elif words[i] in STOPS and words[i] not in over:
                break
            i += step
        return (tokens[i + 1][1], tokens[at - 1][2]) if step < 0 else (tokens[at + 1][1], tokens[i - 1][2])

    conditions, clauses = set(), set()
    for i, (word, start, end) in enumerate(tokens):
        before = words[i - 1] if i else ""
        if word == "if" and words[i + 1] == "(":
            first, last = tokens[i + 1][2], tokens[match[i + 1]][1]
            if not any(w in ("=", ";") for w in words[i + 2:match[i + 1]]):
                conditions.add((first, last))
                yield "negated", first, last, "(::mutant(%d) != static_cast<bool>(", "))", ()
        elif word in ("&&", "||") and text[start - 1] in " \n":
            over = ("&&",) if word == "||" else ()
            for first, last in (operand(i, -1, over), operand(i, 1, over)):
                if (first, last) not in clauses:
                    clauses.add((first, last))
                    yield "operand", first, last, "(::mutant(%d) || (" if word == "&&" else "(!::mutant(%d) && (", "))", ()
        elif word in ("==", "!=") and before != "operator":
            first, last = operand(i, -1)[0], operand(i, 1)[1]
            if (first, last) not in conditions:
                yield "equal", first, last, "(::mutant(%d) != (", "))", ()
        elif word in ORDER and text[start - 1] in " \n" and text[end] in " \n" and before not in ("operator", "template"):
            first, last = operand(i, -1)[0], operand(i, 1)[1]
            yield "order", first, last, f"::mutant_{ORDER[word]}(%d, ", ")", ((start, end, ","),)
        elif re.fullmatch(r"\d[\d']*", word):
            yield "number", start, end, "(", " + ::mutant(%d))", ()
        elif word in ("true", "false"):
            yield "flag", start, end, "(::mutant(%d) != ", ")", ()
        if inside[i] == "{" and word not in KEYWORDS and STATEMENT.match(text, start):
            after_if = before == ")" and words[match[i - 1] - 1] in ("if", "for", "while")
            after_case = before == ":" and re.search(r"\b(case [\w:]+|default):\s*$", text[:start])
            if before in (";", "{", "}", "else") or after_if or after_case:
                k = i
                while k < len(words) and words[k] not in (";", "{", "}"):
                    k = match[k] + 1 if words[k] in ("(", "[") and k in match else k + 1
                if k < len(words) and words[k] == ";":
                    yield "left out", start, tokens[k][2], "{ if (!::mutant(%d)) ", " }", ()


def mutated(text, mutants):
    edits = []  # (position, order, text, length that is replaced): what ends there, innermost first; then what begins
    for number, (_, first, last, prefix, suffix, others) in mutants.items():
        name = (lambda t, n=number: t.replace("%d", str(n)))
        edits.append((first, (1, -last, number), name(prefix), 0))
        edits.append((last, (0, -first, -number), name(suffix), 0))
        edits += [(start, (2, 0, 0), new, end - start) for start, end, new in others]
        line = text.rfind("\n", 0, first) + 1
        constant = text.find("constexpr ", line, first)
        if constant >= 0 and text.startswith("constexpr", line):
            edits.append((constant, (2, 0, 0), "const ", 10))
    out, at = [], 0
    for position, _, new, length in sorted(set(edits)):
        out += [text[at:position], new]
        at = position + length
    return "".join(out) + text[at:]


def newer(target, sources):
    return target.exists() and all(target.stat().st_mtime > source.stat().st_mtime for source in sources)


def build(jobs):
    (HERE / "src").mkdir(parents=True, exist_ok=True)
    # Each file by itself, by the command of one of its library: build/core compiles some in batches.
    commands = {}
    for entry in json.loads((CORE / "compile_commands.json").read_text()):
        simulates = "-DHOLDFAST_PLANT_BUGS" in entry["command"]
        library = "simulation" if simulates else Path(entry["file"]).relative_to(ROOT).parts[2]
        if entry["file"].startswith(f"{ROOT}/lib/holdfast/"):
            commands.setdefault(library, shlex.split(entry["command"]))
    every, number, tasks = {}, 0, []
    paths = sorted([*ROOT.glob("lib/holdfast/planning/*.cc"), *ROOT.glob("lib/holdfast/checkpoint/**/*.cc")])
    sources = hashlib.sha256(b"".join(path.read_bytes() for path in [*paths, TOOLS / "mutants.py"])).hexdigest()
    known = json.loads((HERE / "mutants.json").read_text()) if (HERE / "mutants.json").exists() else {}
    known = known if known.get("sources") == sources else {}
    for path in paths:
        text = path.read_text()
        mine = {}
        changed = any(path.relative_to(ROOT).match(place) for place in PLACES)
        for found in mutants_of(text) if changed else ():
            if "planted(" not in text[found[1]:found[2]] or found[0] == "left out":
                number += 1
                if not known or str(number) in known["places"]:
                    mine[number] = found
        tasks.append((path, text, mine))

    headers = [*ROOT.glob("lib/**/*.h"), TOOLS / "mutant.h"]

    def compiled(task):
        path, text, mine = task
        source = HERE / "src" / f"{path.parent.name}_{path.name}"
        module = path.relative_to(ROOT).parts[2]
        for command in [commands[module]] + [commands["simulation"]] * (module == "planning"):
            target = source.with_suffix(".simulation.o" if command is commands["simulation"] else f".{module}.o")
            output, given = command.index("-o"), command.index("-c")
            call = [*command[:output], "-w", "-include", TOOLS / "mutant.h", "-iquote", path.parent, "-o", target, "-c",
                    source, *command[given + 2:]]
            while True:
                new = mutated(text, mine)
                if not source.exists() or source.read_text() != new:
                    source.write_text(new)
                if newer(target, [source, *headers]):
                    break
                done = subprocess.run(call, cwd=CORE, capture_output=True, text=True)
                if done.returncode == 0:
                    break
                target.unlink(missing_ok=True)
                lines = {int(n) for n in re.findall(re.escape(str(source)) + r":(\d+):", done.stderr)}
                span = {n: (text.count("\n", 0, m[1]) + 1, text.count("\n", 0, m[2]) + 1) for n, m in mine.items()}
                bad = [n for n, (a, b) in span.items() if a in lines]
                bad = bad or [n for n, (a, b) in span.items() if any(a <= line <= b for line in lines)]
                bad = bad or [n for n, m in mine.items() if "constexpr" in text[text.rfind("\n", 0, m[1]):m[1]]]
                if not bad:
                    sys.exit(f"tests/mutations/run: {source} does not compile\n{done.stderr[:2000]}")
                for n in bad:
                    del mine[n]
        return path, text, mine

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, text, mine in pool.map(compiled, tasks):
            for n, m in mine.items():
                every[n] = {"file": str(path.relative_to(ROOT)), "line": text.count("\n", 0, m[1]) + 1, "kind": m[0],
                            "text": " ".join(text[m[1]:m[2]].split())[:100]}
    runtime = HERE / "mutant.o"
    if not newer(runtime, [TOOLS / "mutant.cc", TOOLS / "mutant.h"]):
        subprocess.run(["c++", "-std=c++20", "-O2", "-c", TOOLS / "mutant.cc", "-o", runtime], check=True)
    for program, modules in PROGRAMS.items():
        said = subprocess.check_output(["ninja", "-C", CORE, "-t", "commands", "-s", f"tests/{program}"], text=True)
        link = re.search(r"\S*c\+\+ .* -o .*", said.splitlines()[-1]).group().split(" && ")[0]
        own = [runtime, *(target for module in modules for target in (HERE / "src").glob(f"*.{module}.o"))]
        if newer(HERE / program, [*own, CORE / "tests" / program]):
            continue
        link = re.sub(r"-o \S+", f"-o {HERE / program} {' '.join(map(str, own))}", link, count=1)
        for module in modules:
            link = link.replace(f"lib/holdfast/{module}/libholdfast_{module}.a", "")
        subprocess.run(["sh", "-c", link], cwd=CORE, check=True)
    if not known:
        (HERE / "results.jsonl").unlink(missing_ok=True)  # of other mutants
        (HERE / "mutants.json").write_text(json.dumps({"sources": sources, "places": every}, indent=0))
    return every
