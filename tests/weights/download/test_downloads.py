"""Servers that name files of this machine, trickle, are busy or talk too much; places that are no files."""

import os
import re
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import count
from types import SimpleNamespace

import pytest

from fastattn.weights.download import transport
from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import PipSettings
from fastattn.weights.download.transport import TransportError
from tests.weights.download.index_server import ANCHOR, FILE, JSON, failures_of, fetch, find, listing

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.fixture
def slow_clock(monkeypatch):
    """Every wait for bytes seems to take a second, however short it was: a busy machine makes none too long."""
    monkeypatch.setattr(transport, "STALL_SECONDS", 1.0)
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=count().__next__))


def test_a_server_names_no_file_of_this_machine(server, tmp_path):
    (tmp_path / FILE).write_bytes(b"secret")
    local = (tmp_path / FILE).as_uri()
    good = f"{server.url}/{FILE}"
    addresses = [local, f"ftp://host/{FILE}", f"data:,{FILE}", f"file:{FILE}", good]
    page = "".join(f'<a href="{address}">x</a>' for address in addresses).encode()
    server.answers["/html/tiny-model/"] = server.answers["/links.html"] = ("text/html", page)
    files = [{"filename": FILE, "url": address} for address in addresses]
    server.answers["/json/tiny-model/"] = (JSON, listing(*files))
    for settings in (
        {"index_url": f"{server.url}/html"},
        {"index_url": f"{server.url}/json"},
        {"no_index": True, "find_links": (f"{server.url}/links.html",)},
    ):
        failures: list[str] = []
        assert [link.url for link in find(failures, **settings)] == [good]
        assert any("a link to file:, expected http: or https:" in failure for failure in failures)
        assert not any(str(tmp_path) in failure for failure in failures)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_fifo_is_no_file(tmp_path):
    """Nor waits anything for somebody to write into it."""
    project = tmp_path / "simple" / "tiny-model"
    project.mkdir(parents=True)
    links = tmp_path / "links"
    links.mkdir()
    for path in (project / "index.html", links / "page.html", links / FILE):
        os.mkfifo(path)
    failures = failures_of(index_url=str(tmp_path / "simple"), find_links=(str(links),))
    assert "no such file there" in failures[0] and "not a regular file" in failures[1]
    with pytest.raises(TransportError, match="^not a regular file$"):
        fetch((links / FILE).as_uri())


def trickle(head, part, pause=0.01):
    """An answer that goes on for too long: ``head``, then ``part`` again and again."""

    def answer(handler):
        handler.wfile.write(head)
        for _ in range(1000):
            handler.wfile.write(part)
            if handler.server.released.wait(pause):
                return

    return answer


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_what_trickles_in_is_given_up(server, slow_clock, head, part):
    """Each byte comes well before the timeout of one wait."""
    server.answers["/tiny-model/"] = trickle(head, part)
    failures = failures_of(index_url=server.url, timeout=10)
    assert re.fullmatch(
        rf"{server.url}/tiny-model/: (stalled: \d+ bytes in 11 seconds|got more than 100 headers)", failures[0]
    )


def test_what_comes_steadily_is_not(server, slow_clock, monkeypatch):
    monkeypatch.setattr(transport, "STALL_BYTES", 10)

    def answer(handler):
        handler.reply(b"", length=2000)
        for _ in range(20):
            handler.wfile.write(b"x" * 100)
            handler.server.released.wait(0.01)

    server.answers["/file"] = answer
    with PackageIndex(PipSettings(timeout=10)).transport.open(f"{server.url}/file") as response:
        assert response.read(2000) == b"x" * 2000


def test_what_comes_at_first_does_not_count_later(server, slow_clock, monkeypatch):
    monkeypatch.setattr(transport, "STALL_BYTES", 1000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000000\r\n\r\n"
    server.answers["/tiny-model/"] = trickle(head + bytes(5000), b"x")
    failures = failures_of(index_url=server.url, timeout=10)
    assert re.fullmatch(rf"{server.url}/tiny-model/: stalled: \d\d? bytes in 11 seconds", failures[0])


def test_endless_interim_responses_are_refused(server, monkeypatch):
    monkeypatch.setattr(transport, "LONGEST_HEAD", 5000)
    server.answers["/tiny-model/"] = trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
    failures = failures_of(index_url=server.url)
    assert failures == [f"{server.url}/tiny-model/: more than 5000 bytes of headers"]


def busy(*answers):
    """Answers with these statuses and Retry-After headers in turn, then as a listing does."""
    left = list(answers)

    def answer(handler):
        if not left:
            handler.reply(ANCHOR, "text/html")
            return
        status, after = left.pop(0)
        handler.send_response(status)
        if after is not None:
            handler.send_header("Retry-After", after)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(server, monkeypatch, status):
    server.requests.clear()
    waits: list[float] = []
    monkeypatch.setattr("fastattn.weights.download.transport.time.sleep", waits.append)
    server.answers["/tiny-model/"] = busy((status, None), (status, "7"), (status, "nonsense"))
    assert len(find(index_url=server.url)) == 1
    assert waits == [0.5, 7, 2] and len(server.paths) == 4
    server.answers["/tiny-model/"] = busy(*[(status, None)] * 9)
    failures = failures_of(index_url=server.url)
    assert len(server.paths) == 8 and f"HTTP {status} " in failures[0]


@pytest.mark.parametrize("status, after", [(503, "31"), (503, "9" * 5000), (500, None), (404, "1"), (403, None)])
def test_one_that_is_not_or_wants_too_long_a_wait_is_asked_once(server, monkeypatch, status, after):
    server.requests.clear()
    monkeypatch.setattr("fastattn.weights.download.transport.time.sleep", lambda seconds: pytest.fail("waited"))
    server.answers["/tiny-model/"] = busy((status, after))
    assert find(index_url=server.url) == [] and len(server.paths) == 1


def test_a_retry_after_may_be_a_date():
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=20))
    past = format_datetime(datetime.now(timezone.utc) - timedelta(seconds=20))
    late = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=90))
    wait = transport.wait_before(0, 503, soon)
    assert wait is not None and 10 < wait <= 20
    assert transport.wait_before(1, 503, past) == 1
    assert transport.wait_before(0, 503, late) is None
    assert transport.wait_before(0, 503, "30") == 30 and transport.wait_before(0, 503, "31") is None
    assert transport.wait_before(3, 503, None) is None and transport.wait_before(0, 200, "1") is None


def test_a_servers_reason_is_cut(server):
    def answer(handler):
        handler.send_response(404, "x" * 5000)
        handler.end_headers()

    server.answers["/tiny-model/"] = answer
    failures = failures_of(index_url=server.url)
    assert len(failures[0]) < 400
