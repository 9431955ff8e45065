"""Finding and opening files the way pip would; servers that name files of this machine, trickle or are busy."""

import base64
import os
import re
import shutil
import ssl
import subprocess
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import count
from types import SimpleNamespace

import pytest

from fastattn.errors import DownloadError
from fastattn.weights.download import package_index, transport
from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import PipSettings
from fastattn.weights.download.transport import TransportError, without_password
from tests.weights.download.index_server import ANCHOR, FILE, JSON, IndexServer, failures_of, fetch, find, listing

pytestmark = pytest.mark.usefixtures("isolated")


def reason(server, answer, **settings):
    """Why nothing is found in an index that answers so: one line, behind the listing's address."""
    server.answers["/tiny-model/"] = answer
    (failure,) = failures_of(index_url=server.url, **settings)
    assert failure.startswith(f"{server.url}/tiny-model/: ") and "\n" not in failure
    return failure.removeprefix(f"{server.url}/tiny-model/: ")


def refuses(url, **settings):
    """Why it cannot be fetched."""
    with pytest.raises(TransportError) as raised:
        fetch(url, **settings)
    return str(raised.value)


def test_html_listing(server):
    page = f"""<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.1"></head><body>
        <a name="no address">x</a><a href="http://[bad">bad</a>
        <a href="../../files/tiny_model-0.9.tar.gz#sha256=00">tiny_model-0.9.tar.gz</a><br/>
        <A HREF="../../files/a%20b/{FILE}?x=1&amp;y=2#egg=tiny&amp;sha256=ABCD" data-requires-python="&gt;=3.8"
           data-yanked="bad" data-dist-info-metadata="sha256=12">anything</A></body></html>"""
    server.answers["/simple/tiny-model/"] = ("text/html; charset=utf-8", page.encode())
    (link,) = find(index_url=f"{server.url}/simple/")
    assert link.url == f"{server.url}/files/a%20b/{FILE}?x=1&y=2"
    assert link.sha256 == "abcd"
    assert "json" in server.requests[0][1]["Accept"] and "html" in server.requests[0][1]["Accept"]
    # Of another address, with an escaped name.
    page = '<base href="/elsewhere/"><a href="tiny%2B1.whl">x</a>'
    server.answers["/tiny-model/"] = ("application/vnd.pypi.simple.v1+html", page.encode())
    (link,) = find(index_url=server.url, file="tiny+1.whl")
    assert (link.url, link.sha256) == (f"{server.url}/elsewhere/tiny%2B1.whl", None)


def test_json_listing(server):
    files = [
        {"filename": "other.whl", "url": "other.whl", "hashes": {}},
        {"filename": FILE, "url": "../files/1.bin#x", "hashes": {"sha256": "AB"}, "requires-python": ">=3.8"},
        {"filename": FILE, "url": "https://b.invalid/2", "hashes": {"md5": "x"}, "yanked": True},
    ]
    server.answers["/simple/tiny-model/"] = (JSON, listing(*files))
    first, second = find(index_url=f"{server.url}/simple")
    assert (first.url, first.sha256) == (f"{server.url}/simple/files/1.bin", "ab")
    assert (second.url, second.sha256) == ("https://b.invalid/2", None)


BAD = [
    *((JSON, body, "not the simple API's JSON") for body in (b"{", b"[]", listing({"filename": "x"}), b"[" * 100_000)),
    (JSON, listing(version="2.0"), "expected version 1 of the simple API, got 2.0"),
    ("image/png", b"x", "expected a listing in HTML or JSON, got image/png"),
    ("text/html; charset=klingon", b"x", "unknown encoding, klingon"),
    ("text/html", b"\xff\x00<a href=", "no such file there"), ("text/html", b"x" * 200_001, "more than 200000 bytes"),
]  # fmt: skip


def test_bad_listings_are_one_line_each(server, monkeypatch):
    monkeypatch.setattr(package_index, "LISTING_LIMIT", 200_000)
    for content_type, body, said in BAD:
        assert said in reason(server, (content_type, body))
    assert len(reason(server, lambda handler: handler.send_error(404, "x" * 5000))) < 350


def test_every_place_is_tried_in_order_and_only_when_needed(server, tmp_path):
    (tmp_path / FILE).write_bytes(b"local")
    server.answers["/b/tiny-model/"] = server.answers["/c/tiny-model/"] = ("text/html", ANCHOR)
    others, failures = (f"{server.url}/b", f"{server.url}/c"), []
    settings = PipSettings(index_url=f"{server.url}/a", extra_index_urls=others, find_links=(str(tmp_path),))
    links = PackageIndex(settings).find("tiny-model", FILE, failures)
    assert next(links).url == (tmp_path / FILE).as_uri()
    assert server.paths == []
    assert next(links).url == f"{server.url}/b/tiny-model/{FILE}"
    assert server.paths == ["/a/tiny-model/", "/b/tiny-model/"]
    assert failures == [f"{server.url}/a/tiny-model/: HTTP 404 Not Found"]
    assert next(links).url == f"{server.url}/c/tiny-model/{FILE}"


def test_find_links_of_every_kind(server, tmp_path):
    folder = tmp_path / os.fsdecode("wheels é".encode())
    folder.mkdir()
    (folder / FILE).write_bytes(b"x")
    (folder / "page.html").write_text(f'<a href="sub/{FILE}#sha256=12">x</a>')
    server.answers["/links.html"] = ("text/html", ANCHOR)
    here, inside = (folder / FILE).as_uri(), (folder / "sub" / FILE).as_uri()
    cases = dict.fromkeys((str(folder), folder.as_uri()), [here, inside])
    cases |= {str(folder / FILE): [here], here: [here], str(folder / "page.html"): [inside]}
    cases |= {f"{server.url}/links.html": [f"{server.url}/{FILE}"]}
    cases |= {f"{server.url}/direct/{FILE}#sha256=12": [f"{server.url}/direct/{FILE}"]}
    for place, expected in cases.items():
        assert sorted(link.url for link in find(no_index=True, find_links=(place,))) == sorted(expected), place
    assert fetch(here) == b"x"


def test_a_file_index_and_a_relative_one(tmp_path, monkeypatch):
    project = tmp_path / "simple" / "tiny-model"
    project.mkdir(parents=True)
    (project / "index.html").write_text(f'<a href="../../files/{FILE}#sha256=AB">x</a>')
    expected = (tmp_path / "files" / FILE).as_uri()
    monkeypatch.chdir(tmp_path)
    for index in ((tmp_path / "simple").as_uri(), "simple", str(tmp_path / "simple")):
        (link,) = find(index_url=index)
        assert (link.url, link.sha256) == (expected, "ab")
    failures = failures_of(index_url="file:///no/such/index")
    assert "No such file" in failures[0]
    assert find(failures, index_url="file://elsewhere.invalid/simple") == []
    assert "another machine" in failures[1]


def test_no_index_leaves_only_find_links(server, tmp_path):
    assert find(index_url=server.url, no_index=True, find_links=(str(tmp_path),)) == []
    assert server.paths == []
    with pytest.raises(DownloadError, match="no-index and no find-links"):
        find(no_index=True)
    with pytest.raises(DownloadError, match="set PIP_INDEX_URL"):
        find(index_url=None)


def test_malformed_urls_are_failures_without_their_password(server):
    for place in ("http://user:secret@[bad/x", "http://user:secret@host.invalid:port/", "http://127.0.0.1:1\x00/"):
        (failure,) = failures_of(index_url=place)
        assert "secret" not in failure and "\n" not in failure
    assert without_password("https://a:b@host/x@y") == "https://host/x@y"
    assert without_password("/some/path@x") == "/some/path@x"


def test_redirects(server, tmp_path):
    """Links of a listing are relative to the end; none leads to a local file, and a circle ends."""
    server.answers["/tiny-model/"] = lambda handler: handler.redirect("/moved/here/")
    server.answers["/moved/here/"] = ("text/html", ANCHOR)
    (link,) = find(index_url=server.url)
    assert link.url == f"{server.url}/moved/here/{FILE}"
    (tmp_path / "secret").write_bytes(b"secret")
    server.answers["/file"] = lambda handler: handler.redirect((tmp_path / "secret").as_uri())
    server.answers["/round"] = lambda handler: handler.redirect("/round")
    for path in ("/file", "/round"):
        said = refuses(server.url + path)
        assert said.startswith("HTTP 302") and "\n" not in said


def token(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def authorizations(server):
    return [headers.get("Authorization") for _, headers in server.requests]


def test_credentials_of_the_url_serve_its_host_and_no_other(server):
    with IndexServer() as other:
        server.answers["/away"] = lambda handler: handler.redirect(f"{other.url}/file")
        server.answers["/tiny-model/"] = ("text/html", ANCHOR)
        server.answers[f"/tiny-model/{FILE}"] = lambda handler: handler.redirect("/file")
        with_user = server.url.replace("://", "://us%40er:p%3Aw@")
        (link,) = find(index_url=with_user)
        assert "@" not in link.url
        for url in (link.url, f"{server.url}/away"):
            assert fetch(url, index_url=with_user) == b"ok"
        assert authorizations(server) == [token("us@er", "p:w")] * 4 and authorizations(other) == [None]
    server.requests.clear()
    first, second = (server.url.replace("://", f"://{name}:x@") for name in ("a", "b"))
    for url in (server.url, second):  # of two its first index's
        assert fetch(f"{url}/file", index_url=first, extra_index_urls=(second,)) == b"ok"
    assert authorizations(server) == [token("a", "x"), token("b", "x")]


def test_netrc(server, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password word\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert fetch(f"{server.url}/file") == b"ok"
    assert fetch(server.url.replace("://", "://you:own@") + "/file") == b"ok"
    (tmp_path / "netrc").write_text("machine")
    assert fetch(f"{server.url}/file") == b"ok"
    assert authorizations(server) == [token("me", "word"), token("you", "own"), None]


def test_plain_http_needs_a_trusted_host_and_a_proxy_is_used(server, monkeypatch):
    index = "http://packages.invalid/simple"
    server.answers[f"{index}/tiny-model/"] = ("text/html", ANCHOR)
    for trusted in ((), ("packages.invalid:8080",), ("invalid",)):
        failures = failures_of(index_url=index, proxy=server.url, trusted_hosts=trusted)
        assert "trusted-host" in failures[0]
    assert server.paths == []
    monkeypatch.setenv("http_proxy", server.url)
    for proxy in (server.url, None):
        (link,) = find(index_url=index, proxy=proxy, trusted_hosts=("packages.invalid",))
        assert link.url == f"{index}/tiny-model/{FILE}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a self-signed certificate for 127.0.0.1 and its key."""
    openssl, folder = shutil.which("openssl"), tmp_path_factory.mktemp("certificate")
    if openssl is None:
        pytest.skip("no openssl program to make a certificate with")
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=127.0.0.1 -days 2"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout both.pem -out both.pem"
    made = subprocess.run([openssl, *command.split()], cwd=folder, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"openssl makes no certificate: {made.stderr.strip()[-200:]}")
    return str(folder / "both.pem")


def test_certificates(certificate, tmp_path, monkeypatch):
    context, absent = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), str(tmp_path / "absent.pem")
    context.load_cert_chain(certificate)
    with IndexServer(context) as server:
        url, port = f"{server.url}/file", server.server_address[1]
        for settings in ({}, {"trusted_hosts": ("127.0.0.1:1",)}):
            assert "certificate" in refuses(url, **settings).lower()
        assert refuses(url, cert=absent) == f"the certificates of {absent}: No such file or directory"
        assert fetch(url, cert=certificate) == b"ok"
        for trusted in ("127.0.0.1", f"127.0.0.1:{port}"):
            assert fetch(url, trusted_hosts=(trusted,)) == b"ok"
        with monkeypatch.context() as patched:
            patched.setenv("REQUESTS_CA_BUNDLE", certificate)
            assert fetch(url) == b"ok"
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with IndexServer(context) as server:
        url = f"{server.url}/file"
        assert fetch(url, cert=certificate, client_cert=certificate) == b"ok" and refuses(url, cert=certificate)
        assert refuses(url, cert=certificate, client_cert=absent) == f"client-cert {absent}: No such file or directory"


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
    links = {"no_index": True, "find_links": (f"{server.url}/links.html",)}
    for settings in (*({"index_url": f"{server.url}/{kind}"} for kind in ("html", "json")), links):
        failures = []
        assert [link.url for link in find(failures, **settings)] == [good]
        assert any("a link to file:, expected http: or https:" in failure for failure in failures)
        assert not any(str(tmp_path) in failure for failure in failures)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_fifo_is_no_file(tmp_path):
    """Nor waits anything for somebody to write into it."""
    project, links = tmp_path / "simple" / "tiny-model", tmp_path / "links"
    for folder in (project, links):
        folder.mkdir(parents=True)
    for path in (project / "index.html", links / "page.html", links / FILE):
        os.mkfifo(path)
    failures = failures_of(index_url=str(tmp_path / "simple"), find_links=(str(links),))
    assert "no such file there" in failures[0] and "not a regular file" in failures[1]
    assert refuses((links / FILE).as_uri()) == "not a regular file"


def trickle(head, part, times=1000):
    """An answer that goes on for too long: ``head``, then ``part`` again and again."""

    def answer(handler):
        handler.wfile.write(head)
        for _ in range(times):
            handler.wfile.write(part)
            if handler.server.released.wait(0.01):
                return

    return answer


STARTED, CONTINUE = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"
PAGE = STARTED + b"Content-Type: text/html\r\n"
LONG = PAGE + b"Content-Length: 1000000\r\n\r\n"
CHUNKED = PAGE + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "head, part", [(LONG, b"x"), (CHUNKED, b"1\r\nx\r\n"), (STARTED, b"X"), (STARTED, b"X: y\r\n"), (b"", CONTINUE)]
)
def test_what_trickles_in_is_given_up(server, slow_clock, head, part):
    """Each byte comes well before the timeout of one wait."""
    said = reason(server, trickle(head, part), timeout=10)
    assert re.fullmatch(r"stalled: \d+ bytes in 11 seconds|got more than 100 headers", said)


def test_what_comes_steadily_is_not_and_what_came_at_first_does_not_count_later(server, slow_clock, monkeypatch):
    server.answers["/file"] = trickle(STARTED + b"Content-Length: 1000\r\n\r\n", b"x" * 50, 20)
    monkeypatch.setattr(transport, "STALL_BYTES", 10)
    assert fetch(f"{server.url}/file", timeout=10) == b"x" * 1000
    monkeypatch.setattr(transport, "STALL_BYTES", 1000)
    said = reason(server, trickle(LONG + bytes(5000), b"x"), timeout=10)
    assert re.fullmatch(r"stalled: \d\d? bytes in 11 seconds", said)


def test_endless_interim_responses_and_none_are_refused(server, monkeypatch):
    assert reason(server, lambda handler: handler.server.released.wait(20), timeout=0.2) == "timed out"
    monkeypatch.setattr(transport, "LONGEST_HEAD", 5000)
    assert reason(server, trickle(b"", CONTINUE * 100)) == "more than 5000 bytes of headers"


def busy(*answers):
    """Answers with these statuses and Retry-After headers in turn, then as a listing does."""
    left = list(answers)

    def answer(handler):
        if left:
            status, after = left.pop(0)
            handler.head(status, {"Content-Length": 0} | ({"Retry-After": after} if after else {}))
        else:
            handler.reply(ANCHOR, "text/html")

    return answer


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(server, monkeypatch, status):
    waits = []
    monkeypatch.setattr(transport, "time", SimpleNamespace(**vars(time) | {"sleep": waits.append}))
    server.answers["/tiny-model/"] = busy((status, None), (status, "7"), (status, "nonsense"))
    assert len(find(index_url=server.url)) == 1
    assert waits == [0.5, 7, 2] and len(server.paths) == 4
    assert f"HTTP {status} " in reason(server, busy(*[(status, None)] * 9)) and len(server.paths) == 8


@pytest.mark.parametrize("status, after", [(503, "31"), (503, "9" * 5000), (500, None), (404, "1"), (403, None)])
def test_one_that_is_not_or_wants_too_long_a_wait_is_asked_once(server, monkeypatch, status, after):
    monkeypatch.setattr(transport, "time", SimpleNamespace(time=time.time, monotonic=time.monotonic))  # no sleep
    server.answers["/tiny-model/"] = busy((status, after))
    assert find(index_url=server.url) == [] and len(server.paths) == 1


def test_a_retry_after_may_be_a_date():
    now = datetime.now(timezone.utc)
    soon, past, late = (format_datetime(now + timedelta(seconds=seconds)) for seconds in (20, -20, 90))
    wait = transport.seconds_to_retry(0, 503, soon)
    assert wait is not None and 10 < wait <= 20
    assert transport.seconds_to_retry(1, 503, past) == 1
    assert transport.seconds_to_retry(0, 503, late) is None
    assert transport.seconds_to_retry(0, 503, "30") == 30 and transport.seconds_to_retry(0, 200, "1") is None
