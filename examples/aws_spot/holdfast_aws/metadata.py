"""The instance metadata service, version 2 only.

Errors: StopError 75 when it does not answer, with the usual reasons.
"""

from __future__ import annotations

import urllib.error
import urllib.request

from holdfast_aws.cloud import Clock
from holdfast_aws.settings import IMDS
from holdfast_aws.stop import RETRY, StopError
from holdfast_aws.world import Machine

TRIES = 5
TIMEOUT = 2.0  # seconds for one request
LIFETIME = "21600"  # seconds of a token
LONGEST = 16 << 10  # bytes

HINT = (
    "in a container set the launch template's HttpPutResponseHopLimit to 2 or use the host's network; "
    "on the machine switch the service on: aws ec2 modify-instance-metadata-options --http-endpoint enabled"
)


class Metadata:
    def __init__(self, clock: Clock, endpoint: str = IMDS) -> None:
        self._clock = clock
        self._endpoint = endpoint
        self._token = ""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def machine(self) -> Machine:
        """Who and where this machine is."""
        values = [
            self._must("instance-id"),
            self._must("placement/availability-zone"),
            self._must("placement/region"),
        ]
        return Machine(*values)

    def get(self, path: str) -> str | None:
        """None: 404, there is nothing of the kind."""
        failure = ""
        for attempt in range(TRIES):
            if attempt:
                self._clock.sleep(2 ** (attempt - 1))
            try:
                return self._once(path)
            except urllib.error.HTTPError as error:
                failure = f"status {error.code}"
                if error.code == 401:  # the token has ended
                    self._token = ""
                elif error.code == 403:
                    break
            except (urllib.error.URLError, OSError) as error:
                failure = str(getattr(error, "reason", error))
        raise StopError(RETRY, f"EC2's metadata service does not answer for {path} ({failure}): {HINT}")

    def _must(self, path: str) -> str:
        value = self.get(path)
        if not value:
            raise StopError(RETRY, f"EC2's metadata service knows no {path}: {HINT}")
        return value

    def _once(self, path: str) -> str | None:
        if not self._token:
            wanted = {"X-aws-ec2-metadata-token-ttl-seconds": LIFETIME}
            self._token = self._ask("PUT", "/latest/api/token", wanted)
        try:
            return self._ask("GET", f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(self._endpoint + path, headers=headers, method=method)
        with self._opener.open(request, timeout=TIMEOUT) as answer:
            body: bytes = answer.read(LONGEST)
        return body.decode("utf-8", "replace").strip()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None
