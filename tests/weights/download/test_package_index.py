"""Finding and opening files the way pip would: listings, directories, redirects, credentials, certificates, proxy."""

import base64
import os
import shutil
import ssl
import subprocess

import pytest

from fastattn.errors import DownloadError
from fastattn.weights.download import package_index
from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import PipSettings, read_settings
from fastattn.weights.download.transport import TransportError, without_password
from tests.weights.download.index_server import ANCHOR, FILE, JSON, IndexServer, failures_of, fetch, find, listing

pytestmark = pytest.mark.usefixtures("isolated")


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


def test_html_base_and_escaped_file_name(server):
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


@pytest.mark.parametrize(
    "content_type, body, reason",
    [
        (JSON, b"{", "not the simple API's JSON"),
        (JSON, b"[]", "not the simple API's JSON"),
        (JSON, b'{"meta": {"api-version": "1.0"}, "files": [{"filename": "x"}]}', "not the simple API's JSON"),
        (JSON, b"[" * 100_000, "not the simple API's JSON"),
        (JSON, listing(version="2.0"), "expected version 1 of the simple API, got 2.0"),
        ("image/png", b"x", "expected a listing in HTML or JSON, got image/png"),
        ("text/html; charset=klingon", b"x", "unknown encoding, klingon"),
        ("text/html", b"\xff\x00<a href=", "no such file there"),
        ("text/html", b"", "no such file there"),
    ],
)
def test_bad_listings_are_one_line_each(server, content_type, body, reason):
    server.answers["/tiny-model/"] = (content_type, body)
    failures = failures_of(index_url=server.url)
    (failure,) = failures
    assert failure.startswith(f"{server.url}/tiny-model/: ") and reason in failure and "\n" not in failure


def test_an_endless_listing_is_refused(server, monkeypatch):
    monkeypatch.setattr(package_index, "LISTING_LIMIT", 1000)
    server.answers["/tiny-model/"] = ("text/html", b"x" * 1001)
    failures = failures_of(index_url=server.url)
    assert "more than 1000 bytes" in failures[0]


def test_every_place_is_tried_in_order_and_only_when_needed(server, tmp_path):
    (tmp_path / FILE).write_bytes(b"local")
    server.answers["/b/tiny-model/"] = server.answers["/c/tiny-model/"] = ("text/html", ANCHOR)
    settings = PipSettings(
        index_url=f"{server.url}/a",
        extra_index_urls=(f"{server.url}/b", f"{server.url}/c"),
        find_links=(str(tmp_path),),
    )
    failures: list[str] = []
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
    here = (folder / FILE).as_uri()
    inside = (folder / "sub" / FILE).as_uri()
    cases = {
        str(folder): [here, inside],
        folder.as_uri(): [here, inside],
        str(folder / FILE): [here],
        here: [here],
        str(folder / "page.html"): [inside],
        f"{server.url}/links.html": [f"{server.url}/{FILE}"],
        f"{server.url}/direct/{FILE}#sha256=12": [f"{server.url}/direct/{FILE}"],
    }
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
        failures = failures_of(index_url=place)
        assert len(failures) == 1 and "secret" not in failures[0] and "\n" not in failures[0]


def test_redirects_are_followed_and_listing_links_are_relative_to_the_end(server):
    server.answers["/tiny-model/"] = lambda handler: handler.redirect("/moved/here/")
    server.answers["/moved/here/"] = ("text/html", ANCHOR)
    (link,) = find(index_url=server.url)
    assert link.url == f"{server.url}/moved/here/{FILE}"


def test_a_redirect_leads_to_no_local_file_and_ends_when_circular(server, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    server.answers["/file"] = lambda handler: handler.redirect((tmp_path / "secret").as_uri())
    server.answers["/round"] = lambda handler: handler.redirect("/round")
    for path in ("/file", "/round"):
        with pytest.raises(TransportError, match="HTTP 302") as raised:
            fetch(server.url + path)
        assert "\n" not in str(raised.value)


def token(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_credentials_of_the_url_serve_its_host_and_no_other(server):
    with IndexServer() as other:
        other.answers["/file"] = ("application/octet-stream", b"ok")
        server.answers["/away"] = lambda handler: handler.redirect(f"{other.url}/file")
        server.answers["/tiny-model/"] = ("text/html", ANCHOR)
        server.answers[f"/tiny-model/{FILE}"] = lambda handler: handler.redirect("/file")
        server.answers["/file"] = ("application/octet-stream", b"ok")
        with_user = server.url.replace("://", "://us%40er:p%3Aw@")
        index = PackageIndex(PipSettings(index_url=with_user))
        (link,) = index.find("tiny-model", FILE, [])
        assert "@" not in link.url
        for url in (link.url, f"{server.url}/away"):
            with index.transport.open(url) as response:
                assert response.read(10) == b"ok"
        assert [headers.get("Authorization") for _, headers in server.requests] == [token("us@er", "p:w")] * 4
        assert [headers.get("Authorization") for _, headers in other.requests] == [None]


def test_of_two_credentials_for_a_host_its_first_index_s_are_used(server):
    server.answers["/file"] = ("application/octet-stream", b"ok")
    first, second = (server.url.replace("://", f"://{name}:x@") for name in ("a", "b"))
    index = PackageIndex(PipSettings(index_url=first, extra_index_urls=(second,)))
    for url in (server.url, second):
        with index.transport.open(f"{url}/file") as response:
            assert response.read(10) == b"ok"
    assert [headers["Authorization"] for _, headers in server.requests] == [token("a", "x"), token("b", "x")]


def test_netrc(server, tmp_path, monkeypatch):
    server.answers["/file"] = ("application/octet-stream", b"ok")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password word\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert fetch(f"{server.url}/file") == b"ok"
    assert fetch(server.url.replace("://", "://you:own@") + "/file") == b"ok"
    (tmp_path / "netrc").write_text("machine")
    assert fetch(f"{server.url}/file") == b"ok"
    sent = [headers.get("Authorization") for _, headers in server.requests]
    assert sent == [token("me", "word"), token("you", "own"), None]


def test_passwords_are_not_shown():
    assert without_password("https://a:b@host/x@y") == "https://host/x@y"
    assert without_password("/some/path@x") == "/some/path@x"


def test_plain_http_needs_a_trusted_host_and_a_proxy_is_used(server):
    index = "http://packages.invalid/simple"
    server.answers[f"{index}/tiny-model/"] = ("text/html", ANCHOR)
    for trusted in ((), ("packages.invalid:8080",), ("invalid",)):
        failures = failures_of(index_url=index, proxy=server.url, trusted_hosts=trusted)
        assert "trusted-host" in failures[0]
    assert server.paths == []
    (link,) = find(index_url=index, proxy=server.url, trusted_hosts=("packages.invalid",))
    assert link.url == f"{index}/tiny-model/{FILE}"


def test_the_environments_proxy_is_used(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    server.answers["http://packages.invalid/file"] = ("application/octet-stream", b"ok")
    assert fetch("http://packages.invalid/file") == b"ok"


def test_no_answer_is_a_timeout(server):
    server.answers["/tiny-model/"] = lambda handler: handler.server.released.wait(20)
    failures = failures_of(index_url=server.url, timeout=0.2)
    assert failures == [f"{server.url}/tiny-model/: timed out"]


def test_nobody_listens():
    failures = failures_of(index_url="http://127.0.0.1:9")
    assert len(failures) == 1 and "refused" in failures[0] and "\n" not in failures[0]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl program to make a certificate with")
    folder = tmp_path_factory.mktemp("certificate")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"openssl makes no certificate: {made.stderr.strip()[-200:]}")
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return both


def server_context(certificate, asks_for_client=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if asks_for_client:
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_certificates(certificate, tmp_path, monkeypatch):
    with IndexServer(server_context(certificate)) as server:
        server.answers["/file"] = ("application/octet-stream", b"ok")
        url, port = f"{server.url}/file", server.server_address[1]
        with pytest.raises(TransportError, match="(?i)certificate"):
            fetch(url)
        assert fetch(url, cert=str(certificate)) == b"ok"
        assert fetch(url, trusted_hosts=("127.0.0.1",)) == b"ok"
        assert fetch(url, trusted_hosts=(f"127.0.0.1:{port}",)) == b"ok"
        with pytest.raises(TransportError, match="(?i)certificate"):
            fetch(url, trusted_hosts=("127.0.0.1:1",))
        with pytest.raises(TransportError, match="certificates of .*no-such.pem: No such file"):
            fetch(url, cert=str(tmp_path / "no-such.pem"))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert fetch(url) == b"ok"


def test_client_certificate(certificate, tmp_path):
    with IndexServer(server_context(certificate, asks_for_client=True)) as server:
        server.answers["/file"] = ("application/octet-stream", b"ok")
        url, cert = f"{server.url}/file", str(certificate)
        assert fetch(url, cert=cert, client_cert=cert) == b"ok"
        with pytest.raises(TransportError):
            fetch(url, cert=cert)
        with pytest.raises(TransportError, match="client-cert .*absent.pem: No such file"):
            fetch(url, cert=cert, client_cert=str(tmp_path / "absent.pem"))


def test_the_environments_settings_reach_the_index(server, monkeypatch):
    server.answers["/simple/tiny-model/"] = ("text/html", ANCHOR)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    (link,) = PackageIndex(read_settings()).find("tiny-model", FILE, [])
    assert link.url == f"{server.url}/simple/tiny-model/{FILE}"
