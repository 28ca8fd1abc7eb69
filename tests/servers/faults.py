"""What can go wrong at the model server, decided by a draw that a test can repeat."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class FaultPlan:
    """Shares of requests (0 to 1) that meet each fault, and the switches for the lasting ones.

    The draw depends on the seed, the request and how often that request has come, so a request
    that is tried again gets through in the end.
    """

    rate_limit: float = 0.0
    server_error: float = 0.0
    drop: float = 0.0
    stall: float = 0.0
    malformed: float = 0.0
    half: float = 0.0  # the connection drops in the middle of the body of a reply
    retry_after: float = 0.05
    stall_seconds: float = 3.0
    seed: int = 0
    quota_after: int | None = None  # so many answers, then the account is empty
    key: str | None = None  # any other key gets 401
    schema: str = "obey"  # obey, ignore, refuse (400 on json_schema), none (400 on any format)
    no_temperature: bool = False  # 400 on any temperature
    hold_after: int | None = None  # so many answers, then all wait until the plan is another one
    # full, input (tokens of the request alone), none, absurd (2 to the 63rd), apart (OpenAI's wire
    # format: reasoning is in the total alone)
    usage: str = "full"

    def fault(self, digest: str, occurrence: int) -> str:
        """Name of the fault that this request meets this time, or an empty string."""
        raw = hashlib.blake2b(f"{self.seed}|{digest}|{occurrence}".encode(), digest_size=8).digest()
        draw = int.from_bytes(raw, "big") / 2.0**64
        for name in ("rate_limit", "server_error", "drop", "stall", "malformed", "half"):
            share = float(getattr(self, name))
            if draw < share:
                return name
            draw -= share
        return ""

    def to_args(self) -> list[str]:
        """As command line arguments of the server."""
        args: list[str] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value == f.default:
                continue
            flag = f"--{f.name.replace('_', '-')}"
            args += [flag] if value is True else [flag, str(value)]
        return args


# The mix of the issue: a bad day at a provider.
BAD_DAY = FaultPlan(
    rate_limit=0.10, server_error=0.05, drop=0.02, stall=0.02, malformed=0.03, retry_after=0.05
)
