"""The metadata service as `hf` asks it: the kit page's scenario 34."""

from __future__ import annotations

import http.server
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from virtual import VirtualClock

from holdfast_aws.metadata import Metadata
from holdfast_aws.stop import StopError


class Service(http.server.ThreadingHTTPServer):
    """IMDSv2. `answers` has the body, or a status, of each path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, str | int] = {
            "instance-id": "i-0123",
            "placement/availability-zone": "us-east-1a",
            "placement/region": "us-east-1",
        }
        self.tokens = 0
        self.token_status = 200
        self.expire_after = 0  # requests; 0: never
        self.asked: list[str] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # whoever asked was killed
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_PUT(self) -> None:
        self.server.tokens += 1
        good = (
            self.path == "/latest/api/token"
            and self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
        )
        self._answer(self.server.token_status if good else 400, f"token-{self.server.tokens}")

    def do_GET(self) -> None:
        service = self.server
        service.asked.append(self.path)
        if self.headers["X-aws-ec2-metadata-token"] != f"token-{service.tokens}":
            return self._answer(401, "")
        if service.expire_after and len(service.asked) == service.expire_after:
            service.tokens += 1  # the token that the client has is no longer good
            return self._answer(401, "")
        told = service.answers.get(self.path.replace("/latest/meta-data/", "", 1), 404)
        return self._answer(told, "") if isinstance(told, int) else self._answer(200, told)

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/latest/meta-data/instance-id")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def test_who_and_where(service: Service) -> None:
    me = Metadata(VirtualClock(), service.url).machine()
    assert (me.instance, me.zone, me.region) == ("i-0123", "us-east-1a", "us-east-1")
    assert service.tokens == 1


def test_a_token_that_ended_is_renewed(service: Service) -> None:
    service.expire_after = 2
    assert Metadata(VirtualClock(), service.url).machine().zone == "us-east-1a"
    assert service.tokens > 1


def test_404_is_nothing(service: Service) -> None:
    assert Metadata(VirtualClock(), service.url).get("autoscaling/target-lifecycle-state") is None


@pytest.mark.parametrize("status", [500, 503, 302])
def test_five_tries_then_75(service: Service, status: int) -> None:
    service.answers["instance-id"] = status
    clock = VirtualClock()
    with pytest.raises(StopError, match=f"status {status}") as stop:
        Metadata(clock, service.url).machine()
    assert stop.value.code == 75
    assert len(service.asked) == 5
    assert clock.now() - VirtualClock().now() == 1 + 2 + 4 + 8


def test_403_is_not_asked_again(service: Service) -> None:
    service.token_status = 403
    with pytest.raises(StopError, match="modify-instance-metadata-options"):
        Metadata(VirtualClock(), service.url).machine()
    assert service.tokens == 1


def test_silence_gives_the_hint_of_the_hop_limit() -> None:
    with pytest.raises(StopError, match="HttpPutResponseHopLimit") as stop:
        Metadata(VirtualClock(), "http://127.0.0.1:1").machine()
    assert stop.value.code == 75


def test_no_proxy_is_used(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Metadata(VirtualClock(), service.url).machine().instance == "i-0123"
