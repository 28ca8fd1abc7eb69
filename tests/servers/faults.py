"""Faults of the model server, decided by a reproducible draw."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class FaultPlan:
    """Shares of requests (0 to 1) that get each fault, and switches for permanent faults.

    The draw depends on the seed, the request and the number of times it was received, so a retried
    request succeeds eventually.
    """

    rate_limit: float = 0.0
    server_error: float = 0.0
    error_status: int = 500  # of a server error
    drop: float = 0.0
    stall: float = 0.0
    malformed: float = 0.0
    half: float = 0.0  # the connection drops in the middle of the body of a reply
    retry_after: float = 0.05
    stall_seconds: float = 3.0
    seed: int = 0
    quota_after: int | None = None  # number of answers before the account is empty
    key: str | None = None  # any other key gets 401
    schema: str = "obey"  # obey, ignore, refuse (400 on json_schema), none (400 on any format)
    no_temperature: bool = False  # 400 on any temperature
    hold_after: int | None = None  # number of answers before all wait for another plan
    # full, input (only tokens of the request), none, absurd (2 to the 63rd), apart (OpenAI's wire
    # format: reasoning tokens are only in the total)
    usage: str = "full"

    def fault(self, digest: str, occurrence: int) -> str:
        """Return the name of the fault that this request gets this time, or an empty string."""
        raw = hashlib.blake2b(f"{self.seed}|{digest}|{occurrence}".encode(), digest_size=8).digest()
        draw = int.from_bytes(raw, "big") / 2.0**64
        for name in ("rate_limit", "server_error", "drop", "stall", "malformed", "half"):
            share = float(getattr(self, name))
            if draw < share:
                return name
            draw -= share
        return ""

    def to_args(self) -> list[str]:
        """Return the plan as command line arguments of the server."""
        args: list[str] = []
        for plan_field in fields(self):
            value = getattr(self, plan_field.name)
            if value == plan_field.default:
                continue
            flag = f"--{plan_field.name.replace('_', '-')}"
            args += [flag] if value is True else [flag, str(value)]
        return args


# A mix of faults as on a bad day of a vendor.
BAD_DAY = FaultPlan(
    rate_limit=0.10, server_error=0.05, drop=0.02, stall=0.02, malformed=0.03, retry_after=0.05
)
