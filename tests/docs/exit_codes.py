"""docs/interruptions.md against `holdfast help exit-codes`, which prints the one table in base/exit_code.cc."""
import re
import subprocess

PAGE = "docs/interruptions.md"


def printed(build):
    """Two lists of rows: codes that have an answer to "start again?", and signals."""
    text = subprocess.run([build / "bin/holdfast", "help", "exit-codes"], capture_output=True, text=True, check=True,
                          timeout=60).stdout
    codes, signals = text.split("\n\n")[:2]
    rows = [[re.split(r"  +", line.strip()) for line in table.splitlines()[1:]] for table in (codes, signals)]
    return [row for row in rows[0] if len(row) == 3], [row + [""] * (3 - len(row)) for row in rows[1]]


def rows_of(page, header):
    """The rows of the table with this first cell in its header."""
    lines = page.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(f"| {header} |")), None)
    if start is None:
        return []
    rows = []
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def check(page, build):
    codes, signals = printed(build)
    for header, wanted in (("code", codes), ("signal", signals)):
        found = rows_of(page, header)
        yield from (f"{PAGE}: the table by {header} lacks: | {' | '.join(row)} |" for row in wanted if row not in found)
        yield from (f"{PAGE}: the table by {header} has: | {' | '.join(row)} |" for row in found if row not in wanted)
