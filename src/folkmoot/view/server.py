"""Serve the reader until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette

from folkmoot.errors import InputError
from folkmoot.view.connections import BACKLOG, PageServer
from folkmoot.view.pages import Reader
from folkmoot.view.run_list import Shelf
from folkmoot.view.site import TOKEN, Guard, create_app, is_loopback, own_names


def serve_reader(
    folder: Path, host: str, port: int, *, token: bool, tell: Callable[[str], None]
) -> None:
    """Serve the runs of a folder and pass the address to open to `tell`.

    Raises InputError if the folder does not exist or the address is not available.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name the one that holds your runs")
    # Other machines can reach an address that is not loopback, so the pages then need a token.
    secret = secrets.token_urlsafe(24) if token or not is_loopback(host) else ""
    guard = Guard(own_names(host), secret)
    serve_app(create_app(Reader(Shelf(folder)).page_routes(), guard), host, port, secret, tell)


def serve_app(
    app: Starlette, host: str, port: int, secret: str, tell: Callable[[str], None]
) -> None:
    """Serve an app at an address until Ctrl-C. Port 0 means any free port.

    Raises InputError if the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(f"{host}:{port} cannot be had: {why}; name another --port") from error
    with listening:
        anywhere = host in ("0.0.0.0", "::")
        shown = socket.gethostname() if anywhere else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        tell(address + (f"?{TOKEN}={secret}" if secret else ""))
        PageServer(app).run(sockets=[listening])
