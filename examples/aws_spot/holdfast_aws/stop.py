"""How a command of the machine ends, and the one exception that ends it early.

Exit codes: 0 done; 75 try again later (systemd or the group starts it again); 78 a person must look.
"""

from __future__ import annotations

OK = 0
RETRY = 75
HUMAN = 78


class StopError(Exception):
    """Ends the command with this code. The message names the thing and the remedy."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
