"""Who may ask for a page, and what a browser may do with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from folkmoot.errors import InputError
from folkmoot.view.pages import serve_reader
from folkmoot.view.site import Guard, is_loopback, own_names
from tests.servers.pages import PageServer
from tests.view.conftest import reader

STATIC = Path(__file__).parents[2] / "src" / "folkmoot" / "view" / "static"


def test_another_sites_name_is_turned_away(served: PageServer) -> None:
    # DNS rebinding: evil.example was made to point to 127.0.0.1.
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1.evil.example", ""):
        assert served.get("/", Host=host).status == 421, host
    for host in ("localhost", f"localhost:{served.port}", "127.0.0.1", f"[::1]:{served.port}"):
        assert served.get("/", Host=host).status == 200, host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_are_read_only(served: PageServer, method: str) -> None:
    assert served.get("/run/town_hall/-/", method).status == 405


def test_every_answer_has_the_policy_and_no_inline_script_or_style(served: PageServer) -> None:
    for path in ("/", "/run/town_hall/-/", "/no/such/page", "/static/view.js"):
        got = served.get(path)
        policy = got.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        if path.startswith("/static"):
            continue
        assert not re.search(
            r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:", got.text
        )
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", got.text)


def test_without_its_token_a_page_says_nothing(outputs: Path) -> None:
    with reader(outputs, Guard(token="a long secret")) as server:
        for path in ("/", "/run/town_hall/-/", "/?token=", "/?token=a", "/static/view.css"):
            got = server.get(path)
            assert got.status == 401 and "town_hall" not in got.text
        entered = server.get("/run/town_hall/-/?token=a+long+secret&x=1")
        assert entered.status == 303 and entered.headers["Location"] == "/run/town_hall/-/?x=1"
        cookie = entered.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie
        inside = server.get("/", Cookie=cookie.split(";")[0])
        assert inside.status == 200 and "town_hall" in inside.text


def test_two_servers_of_one_machine_keep_their_tokens_apart(outputs: Path) -> None:
    with reader(outputs, Guard(token="a")) as one, reader(outputs, Guard(token="b")) as two:
        cookies = [
            s.get(f"/?token={t}").headers["Set-Cookie"].split(";")[0]
            for s, t in ((one, "a"), (two, "b"))
        ]
        for server in (one, two):  # a browser sends both to both: it does not tell ports apart
            assert server.get("/", Cookie="; ".join(cookies)).status == 200
            assert server.get("/", Cookie=cookies[server is one]).status == 401


def test_a_token_leads_nowhere_else(outputs: Path) -> None:
    with reader(outputs, Guard(token="secret")) as server:
        away = server.get("//evil.example/?token=secret").headers["Location"]
        assert away.startswith("/") and not away.startswith("//")


def test_beyond_this_machine_a_token_is_demanded(
    outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    for host, token in (("127.0.0.1", False), ("0.0.0.0", False), ("127.0.0.1", True)):
        serve_reader(outputs, host, 0, token=token, tell=told.append)
    assert ["?token=" in address for address in told] == [False, True, True]
    assert len(told[1].split("?token=")[1]) >= 32
    assert told[1].split("token=")[1] != told[2].split("token=")[1]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        serve_reader(tmp_path / "none", "127.0.0.1", 0, token=False, tell=print)


def test_loopback_is_known_by_its_address() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))


def test_figures_are_no_name_of_another_site() -> None:
    guard = Guard(own_names("Lab.example"))
    assert guard.accepts_host("LAB.example.:80") and guard.accepts_host("192.168.0.7:4270")
    assert not guard.accepts_host("lab.example.org") and not guard.accepts_host("1.2.3.4.example")


def test_vendored_files_come_with_their_licences() -> None:
    assert {p.stem for p in STATIC.glob("*.min.js")} == {"htmx.min"}
    assert "LICENSE.htmx.txt" in {p.name for p in STATIC.iterdir()}
    htmx = (STATIC / "htmx.min.js").read_text("utf-8")
    assert 'version:"2.' in htmx.replace(" ", "")
