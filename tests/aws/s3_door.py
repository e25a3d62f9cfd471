"""A door to moto's S3 for programs that are not Python: an HTTP proxy on loopback, with a machine's rights alone.

    with S3Door(policy) as door:        # within moto's mock
        subprocess.run(["rclone", …], env=door.environment())

What moto is too kind for is refused here as S3 does: calls that the policy has no word for (403), a question for an
object that does not exist by somebody who may not list (403 and not 404), an ACL where the bucket has none (400).
"""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests
from policy_eval import Call, Resource, allows

REFUSED = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
HOST = "s3.test"
NO_VERSION = ("x-amz-version-id", "null")  # of a bucket without versions, S3 sends none
NO_PROXY = {"http": "", "https": ""}
OWN_ACL = "bucket-owner-full-control"
HOP = ("connection", "transfer-encoding", "content-length", "content-encoding", "date", "server")


Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, body


@dataclass(frozen=True)
class Request:
    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def arn(self) -> str:
        return f"arn:aws:s3:::{self.bucket}" + (f"/{self.key}" if self.key else "")

    def calls(self) -> list[Call]:
        """The rights that S3 asks for; none: a call that nobody here has a right to."""
        if not self.key:
            if self.method == "GET" and set(self.query) <= LISTING:
                context = {"s3:prefix": self.query["prefix"]} if "prefix" in self.query else {}
                return [Call("s3:ListBucket", [Resource(self.arn)], None, context)]
            return []
        action = self._action()
        if action is None:
            return []
        calls = [Call(action, [Resource(self.arn)])]
        acl = self.headers.get("x-amz-acl")
        if acl is not None:
            calls.append(Call("s3:PutObjectAcl", [Resource(self.arn)], None, {"s3:x-amz-acl": acl}))
        return calls

    def _action(self) -> str | None:
        if self.method in ("GET", "HEAD"):
            return "s3:GetObjectVersion" if "versionId" in self.query else "s3:GetObject"
        if self.method == "PUT" and "x-amz-copy-source" not in self.headers:
            return "s3:PutObject"
        if self.method == "POST" and ("uploads" in self.query or "uploadId" in self.query):
            return "s3:PutObject"
        if self.method == "DELETE":
            return "s3:AbortMultipartUpload" if "uploadId" in self.query else "s3:DeleteObject"
        return None


LISTING = {
    "prefix",
    "delimiter",
    "max-keys",
    "list-type",
    "encoding-type",
    "marker",
    "continuation-token",
    "fetch-owner",
}


class S3Door:
    def __init__(self, policy: Mapping[str, Any]) -> None:
        self.policy = policy
        self.asked: set[str] = set()  # actions that were allowed
        self.refused: list[str] = []
        self.fault: Callable[[Request], int | None] = lambda _: None  # a status instead of an answer
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                door._serve(self, body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._one = threading.Lock()

    def __enter__(self) -> S3Door:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """Beside what the machine's run.env says of the remote "holdfast"."""
        return {
            "RCLONE_CONFIG_HOLDFAST_ENDPOINT": f"http://{HOST}",
            # What newer ones send to AWS needs TLS, which the door has not.
            "RCLONE_CONFIG_HOLDFAST_USE_UNSIGNED_PAYLOAD": "true",
            "RCLONE_CONFIG_HOLDFAST_USE_DATA_INTEGRITY_PROTECTIONS": "false",
            "HTTP_PROXY": self.url,
            "http_proxy": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }

    def _serve(self, http: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urllib.parse.urlsplit(http.path)
        # The bucket is the host's first word: so rclone calls AWS, whatever it is told.
        bucket, key = (
            parts.netloc.removesuffix(HOST).rstrip("."),
            urllib.parse.unquote(parts.path).lstrip("/"),
        )
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in http.headers.items()}
        asked = Request(http.command, bucket, key, query, headers)
        with self._one:
            status, answer, content = self._answer(asked, parts, body)
        http.send_response(status)
        for name, value in answer.items():
            if name.lower() not in HOP and (name.lower(), value) != NO_VERSION:
                http.send_header(name, value)
        length = answer.get("Content-Length") if http.command == "HEAD" and status == 200 else None
        http.send_header("Content-Length", length or str(len(content)))
        http.end_headers()
        if http.command != "HEAD":
            http.wfile.write(content)

    def _answer(
        self, asked: Request, parts: urllib.parse.SplitResult, body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        broken = self.fault(asked)
        if broken is not None:
            return broken, {}, REFUSED.format(code="SlowDown").encode()
        calls = asked.calls()
        if not calls or not all(allows(self.policy, call) for call in calls):
            self.refused.append(f"{asked.method} {parts.geturl()}")
            return 403, {}, REFUSED.format(code="AccessDenied").encode()
        if asked.headers.get("x-amz-acl", OWN_ACL) != OWN_ACL:
            return 400, {}, REFUSED.format(code="AccessControlListNotSupported").encode()
        self.asked |= {call.action for call in calls}
        sent = {n: v for n, v in asked.headers.items() if n not in ("host", "connection", "content-length")}
        sent["host"] = f"{asked.bucket}.s3.amazonaws.com"
        there = parts._replace(scheme="https", netloc=sent["host"]).geturl()
        done = requests.request(
            asked.method, there, headers=sent, data=body, timeout=60, proxies=NO_PROXY, stream=True
        )
        if done.status_code == 404 and asked.key and not self._may_list(asked.bucket):
            return 403, {}, REFUSED.format(code="AccessDenied").encode()
        return done.status_code, done.headers, b"" if asked.method == "HEAD" else done.content

    def _may_list(self, bucket: str) -> bool:
        return allows(self.policy, Call("s3:ListBucket", [Resource(f"arn:aws:s3:::{bucket}")]))
