"""A pytest plugin: one line a test, as tests/run counts them, and no way to the network."""

from __future__ import annotations

import functools
import socket
from typing import Any

import botocore.session

_connect = socket.socket.connect


def _connect_locally(self: socket.socket, address: Any) -> None:
    if self.family != socket.AF_UNIX and not str(address[0]).startswith(("127.", "::1", "localhost")):
        raise OSError(f"a test tried to reach {address}: tests never use the network")
    _connect(self, address)


def pytest_configure() -> None:
    socket.socket.connect = _connect_locally  # type: ignore[method-assign,assignment]
    # Reads the descriptions of AWS's services once, and not in each test: a third of what one with `hf-aws` takes.
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    items.sort(
        key=lambda item: "whole_life" not in item.nodeid
    )  # it waits for clocks: the others run beside it


def _name(report: Any) -> str:
    file, _, case = report.nodeid.partition("::")
    return f"{file.rsplit('/', 1)[-1].removesuffix('.py')}.{case.replace('::', '.').removeprefix('test_')}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    say = terminalreporter.write_line
    for report in terminalreporter.getreports("passed"):
        if report.when == "call":
            say(f"ok {_name(report)}")
    for report in terminalreporter.getreports("skipped"):
        say(f"left out: {_name(report)}: {report.longrepr[2].removeprefix('Skipped: ')}")
    for report in (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")):
        say(f"not ok {_name(report)}")
