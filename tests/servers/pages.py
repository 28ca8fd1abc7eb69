"""Pages served on the loopback address in a thread of the test process, and a simple client."""

from __future__ import annotations

import http.client
import socket
import threading
from typing import NamedTuple, Self

from starlette.applications import Starlette

from folkmoot.view import connections
from folkmoot.view.connections import ConnectionLimits
from tests.waiting import wait_until


class PageResponse(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str


class PageServer:
    """Serve an app at `url`. Use as a context manager."""

    def __init__(self, app: Starlette, limits: ConnectionLimits | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=connections.BACKLOG)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = connections.PageServer(app, limits)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    def get(self, path: str, method: str = "GET", **headers: str) -> PageResponse:
        """Send a request and return the response. The path is sent unchanged."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        page_response = PageResponse(
            response.status, response.headers, response.read().decode("utf-8", "replace")
        )
        connection.close()
        return page_response
