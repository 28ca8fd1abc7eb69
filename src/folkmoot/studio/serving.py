"""Serve the studio until Ctrl-C."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from folkmoot.errors import InputError
from folkmoot.studio.pages import Studio
from folkmoot.view.site import (
    LOOPBACK,
    READING,
    Guard,
    create_app,
    is_loopback,
    own_names,
    serve_app,
)

# An upload is read into memory as a whole, so its size is bounded.
MAX_UPLOAD_BYTES = 30_000_000


def studio_guard(token: str) -> Guard:
    """Return the access control of the studio."""
    # A request is accepted if it holds the token and is addressed to a host name of this machine.
    methods = READING | {"POST"}
    return Guard(own_names(LOOPBACK), token, methods, max_form_bytes=MAX_UPLOAD_BYTES)


def serve_studio(folder: Path, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve the studies of a folder on this machine. A folder that does not exist is created.

    Raises InputError if the folder cannot be created, or if the address is in use or not local.
    """
    # `tell` receives the address with its token.
    if not is_loopback(host):
        raise InputError(
            f"--host {host}: the studio starts runs, so only this machine may reach it"
        )
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise InputError(f"{folder}: no folder {folder.parent} to create it in") from None
    except OSError as problem:
        reason = problem.strerror
        raise InputError(f"{folder}: cannot be the folder of your studies: {reason}") from None
    token = secrets.token_urlsafe(24)
    serve_app(create_app(Studio(folder).routes(), studio_guard(token)), host, port, token, tell)
