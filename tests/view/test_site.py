"""Access to pages: host names, tokens, methods and the content security policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from folkmoot.errors import InputError
from folkmoot.view.pages import serve_reader
from folkmoot.view.site import Guard, is_loopback, own_names
from tests.servers.pages import PageServer
from tests.view.conftest import create_viewer_server

STATIC = Path(__file__).parents[2] / "src" / "folkmoot" / "view" / "static"


def test_a_request_with_another_host_name_is_refused(page_server: PageServer) -> None:
    # DNS rebinding: evil.example points to 127.0.0.1.
    for host in ("evil.example", f"evil.example:{page_server.port}", "127.0.0.1.evil.example", ""):
        assert page_server.get("/", Host=host).status == 421, host
    for host in (
        "localhost",
        f"localhost:{page_server.port}",
        "127.0.0.1",
        f"[::1]:{page_server.port}",
    ):
        assert page_server.get("/", Host=host).status == 200, host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_are_read_only(page_server: PageServer, method: str) -> None:
    assert page_server.get("/run/town_hall/-/", method).status == 405


def test_every_response_has_the_policy_and_no_inline_script_or_style(
    page_server: PageServer,
) -> None:
    for path in ("/", "/run/town_hall/-/", "/no/such/page", "/static/view.js"):
        response = page_server.get(path)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        if path.startswith("/static"):
            continue
        assert not re.search(
            r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:", response.text
        )
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", response.text)


def test_a_page_without_its_token_is_refused(outputs: Path) -> None:
    with create_viewer_server(outputs, Guard(token="a long secret")) as server:
        for path in ("/", "/run/town_hall/-/", "/?token=", "/?token=a", "/static/view.css"):
            response = server.get(path)
            assert response.status == 401 and "town_hall" not in response.text
        entered = server.get("/run/town_hall/-/?token=a+long+secret&x=1")
        assert entered.status == 303 and entered.headers["Location"] == "/run/town_hall/-/?x=1"
        cookie = entered.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie
        inside = server.get("/", Cookie=cookie.split(";")[0])
        assert inside.status == 200 and "town_hall" in inside.text


@pytest.mark.parametrize("foreign", ['prefs={"theme": "dark"}', "x=Mon Nov 29", "flag", "a/b=1"])
def test_cookies_of_other_programs_do_not_lock_out(outputs: Path, foreign: str) -> None:
    with create_viewer_server(outputs, Guard(token="secret")) as server:
        own = server.get("/?token=secret").headers["Set-Cookie"].split(";")[0]
        for cookies in (f"{foreign}; {own}", f"{own}; {foreign}"):
            assert server.get("/", Cookie=cookies).status == 200
        assert server.get("/", Cookie=foreign).status == 401


def test_two_servers_of_one_machine_keep_their_tokens_apart(outputs: Path) -> None:
    with (
        create_viewer_server(outputs, Guard(token="a")) as first,
        create_viewer_server(outputs, Guard(token="b")) as second,
    ):
        cookies = [
            server.get(f"/?token={token}").headers["Set-Cookie"].split(";")[0]
            for server, token in ((first, "a"), (second, "b"))
        ]
        # A browser sends both cookies to both servers: cookies ignore the port.
        for server in (first, second):
            assert server.get("/", Cookie="; ".join(cookies)).status == 200
            assert server.get("/", Cookie=cookies[server is first]).status == 401


def test_the_redirect_after_a_token_stays_on_this_site(outputs: Path) -> None:
    with create_viewer_server(outputs, Guard(token="secret")) as server:
        location = server.get("//evil.example/?token=secret").headers["Location"]
        assert location.startswith("/") and not location.startswith("//")


def test_a_server_reachable_from_other_machines_requires_a_token(
    outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    for host, token in (("127.0.0.1", False), ("0.0.0.0", False), ("127.0.0.1", True)):
        serve_reader(outputs, host, 0, token=token, tell=addresses.append)
    assert ["?token=" in address for address in addresses] == [False, True, True]
    assert len(addresses[1].split("?token=")[1]) >= 32
    assert addresses[1].split("token=")[1] != addresses[2].split("token=")[1]


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        serve_reader(tmp_path / "none", "127.0.0.1", 0, token=False, tell=print)


def test_loopback_is_recognised_by_its_address() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))


def test_numeric_addresses_are_accepted_as_host_names() -> None:
    guard = Guard(own_names("Lab.example"))
    assert guard.accepts_host("LAB.example.:80") and guard.accepts_host("192.168.0.7:4270")
    assert not guard.accepts_host("lab.example.org") and not guard.accepts_host("1.2.3.4.example")


def test_vendored_files_come_with_their_licences() -> None:
    assert {p.stem for p in STATIC.glob("*.min.js")} == {"htmx.min"}
    assert "LICENSE.htmx.txt" in {p.name for p in STATIC.iterdir()}
    htmx = (STATIC / "htmx.min.js").read_text("utf-8")
    assert 'version:"2.' in htmx.replace(" ", "")
