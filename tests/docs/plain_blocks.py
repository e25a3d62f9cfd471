"""The blocks that no compiler sees: each is read by the program that a user gives it to (json, py, ini, sh, cmake).

CMake's blocks are configured against a package that has the project's version and lib's targets.
"""
import ast
import configparser
import json
import re
import subprocess
import tempfile
from pathlib import Path

COMPILED = {"cpp", "diff", "python", "text"}  # blocks.py, ported.py and lines.py look at them; text is output


def read_json(root, block):
    json.loads(block.text)


def read_py(root, block):
    ast.parse(block.text)


def read_ini(root, block):
    text = block.text if block.text.lstrip().startswith("[") else "[program:train]\n" + block.text
    configparser.RawConfigParser(strict=True).read_string(text)


def read_sh(root, block):
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise ValueError(done.stderr.strip())


def configure(root, block):
    root = Path(root)
    version = re.search(r"^project\(holdfast VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text(), re.M)[1]
    aliases = "".join(path.read_text(encoding="utf-8") for path in root.glob("lib/**/CMakeLists.txt"))
    targets = re.findall(r"^ *add_library\(holdfast::(\w+) ALIAS", aliases, re.M)
    with tempfile.TemporaryDirectory() as lab:
        lab = Path(lab)
        package = lab / "prefix/lib/cmake/holdfast"
        package.mkdir(parents=True)
        (package / "holdfastConfig.cmake").write_text(
            "".join(f"add_library(holdfast::{name} INTERFACE IMPORTED)\n" for name in targets))
        (lab / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(train LANGUAGES CXX)\ninclude(CMakePackageConfigHelpers)\n"
            f"write_basic_package_version_file({package}/holdfastConfigVersion.cmake VERSION {version}\n"
            "  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)\n"
            "add_executable(train main.cc)\n" + block.text)
        (lab / "main.cc").write_text("int main() {}\n")
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", lab, "-B", lab / "build", f"-DCMAKE_PREFIX_PATH={lab / 'prefix'}",
                               "-DCMAKE_CXX_COMPILER_FORCED=ON"], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip())


READERS = {"json": read_json, "py": read_py, "ini": read_ini, "sh": read_sh, "cmake": configure}


def check(root, pages):
    for page in pages.values():
        for block in page.blocks:
            if block.language in COMPILED:
                continue
            if block.language not in READERS:
                yield f"{block.where}: no test reads a block of \"{block.language}\""
                continue
            try:
                READERS[block.language](root, block)
            except (ValueError, SyntaxError, configparser.Error) as error:
                yield f"{block.where}: {error}"
