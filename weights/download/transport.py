"""Opening http, https and file URLs with pip's certificates, proxy, trusted hosts, credentials and timeout."""

import http.client
import io
import netrc
import os
import re
import socket
import ssl
import stat
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit, urlunsplit

from fastattn._version import VERSION
from fastattn.weights.download.pip_settings import PipSettings


class TransportError(Exception):
    """A URL that could not be opened or read; the message is a short reason without the URL."""


class Response:
    """An open body. ``url`` is the final address, after redirects; a file has an empty ``content_type``."""

    def __init__(self, url: str, content_type: str, charset: str, body: IO[bytes] | http.client.HTTPResponse) -> None:
        self.url, self.content_type, self.charset = url, content_type, charset
        self._body = body

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; empty at the end. Raises TransportError."""
        with _transport_errors():
            return self._body.read(size)


class Transport:
    """Opens URLs with one set of settings. Certificates are loaded at the first https request."""

    def __init__(self, settings: PipSettings) -> None:
        self._settings = settings
        self._contexts: dict[bool, ssl.SSLContext] = {}  # by whether the host is trusted
        self._passwords = _passwords((settings.index_url or "", *settings.extra_index_urls, *settings.find_links))
        self._opener = urllib.request.OpenerDirector()  # no handlers of ftp:, data: and file:, so no redirects there
        proxies = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None
        for handler in (
            urllib.request.ProxyHandler(proxies),
            urllib.request.UnknownHandler(),
            _HttpHandler(),
            _HttpsHandler(self._context),
            urllib.request.HTTPDefaultErrorHandler(),
            _RedirectHandler(self._authorize),
            urllib.request.HTTPErrorProcessor(),
        ):
            self._opener.add_handler(handler)

    @contextmanager
    def open(self, url: str, accept: str = "*/*") -> Iterator[Response]:
        """The body of a URL; raises TransportError if it cannot be opened."""
        if url.lower().startswith("file:"):
            with _transport_errors():
                file = _open_regular_file(file_path(url))
            with file:
                yield Response(url, "", "utf-8", file)
            return
        with _transport_errors():
            response = self._request(url, accept)
        with response:
            headers = response.headers
            charset = headers.get_content_charset("utf-8")
            yield Response(response.url, headers.get_content_type(), charset, response)

    def _request(self, url: str, accept: str, attempt: int = 0) -> http.client.HTTPResponse:
        """The response; the request is repeated, after a wait, where the server is busy."""
        headers = {"Accept": accept, "User-Agent": f"fastattn/{VERSION}"}
        parts = urlsplit(without_password(url))
        path, query = (quote(part, safe="/%:@!$&'()*+,;=~?") for part in (parts.path, parts.query))  # spaces, non-ASCII
        quoted = urlunsplit(parts._replace(path=path, query=query, fragment=""))
        request = urllib.request.Request(quoted, headers=headers)
        self._authorize(request, _userinfo(url))
        try:
            return self._opener.open(request, timeout=self._settings.timeout)
        except urllib.error.HTTPError as error:
            wait = seconds_to_retry(attempt, error.code, error.headers.get("Retry-After"))
            if wait is None:
                raise
            error.close()
        time.sleep(wait)
        return self._request(url, accept, attempt + 1)

    def _authorize(self, request: urllib.request.Request, userinfo: str | None = None) -> None:
        """Add the credentials of this request's host, in a header that is not sent to a redirect's target."""
        userinfo = userinfo or self._passwords.get(_origin(request.full_url)) or _netrc_userinfo(request.full_url)
        if userinfo:
            token = b64encode(userinfo.encode("utf-8")).decode("ascii")
            request.add_unredirected_header("Authorization", f"Basic {token}")

    def is_secure(self, url: str) -> bool:
        """Whether pip would accept a listing from a URL: plain http is only for this machine and trusted hosts."""
        with _transport_errors():
            host = urlsplit(url).hostname or ""
            return urlsplit(url).scheme != "http" or _is_loopback(host) or self._is_trusted(url)

    def _is_trusted(self, url: str) -> bool:
        host, port = urlsplit(url).hostname or "", urlsplit(url).port
        trusted_hosts = (urlsplit(f"//{host_port}") for host_port in self._settings.trusted_hosts)
        return any(trusted.hostname == host and trusted.port in (None, port) for trusted in trusted_hosts)

    def _context(self, url: str) -> ssl.SSLContext:
        is_trusted = self._is_trusted(url)
        if is_trusted not in self._contexts:
            self._contexts[is_trusted] = self._make_context(verify=not is_trusted)
        return self._contexts[is_trusted]

    def _make_context(self, verify: bool) -> ssl.SSLContext:
        bundle = self._settings.cert or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
        try:
            file, folder = (None, bundle) if bundle and os.path.isdir(bundle) else (bundle or None, None)
            context = ssl.create_default_context(cafile=file, capath=folder)
            if not bundle and not context.get_ca_certs() and not ssl.get_default_verify_paths().capath:
                _add_certifi(context)
        except OSError as error:
            raise TransportError(f"the certificates of {bundle or 'this system'}: {_reason(error)}") from None
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._settings.client_cert:
            try:
                context.load_cert_chain(self._settings.client_cert)
            except OSError as error:
                raise TransportError(f"client-cert {self._settings.client_cert}: {_reason(error)}") from None
        return context


@contextmanager
def _transport_errors() -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise TransportError(f"HTTP {error.code} {_one_line(error.reason)}") from None
    except urllib.error.URLError as error:
        raise TransportError(_reason(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError, StalledError) as error:
        raise TransportError(_reason(error)) from None


def _open_regular_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading, without blocking: opening a FIFO would wait for a writer."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise TransportError("not a regular file")
    return file


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(HttpConnection, request)  # type: ignore[return-value]


class _HttpsHandler(urllib.request.HTTPSHandler):
    """Chooses the certificates for each host: a host that is not trusted is verified, after a redirect too."""

    def __init__(self, context_of_url: Callable[[str], ssl.SSLContext]) -> None:
        super().__init__()
        self._context_of_url = context_of_url

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        context = self._context_of_url(request.full_url)
        return self.do_open(HttpsConnection, request, context=context)  # type: ignore[return-value]


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follows redirects, with the credentials of each request's own host, never with those of the previous host."""

    def __init__(self, authorize: Callable[[urllib.request.Request], None]) -> None:
        self._authorize = authorize

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        request = super().redirect_request(*arguments)
        if request is not None:
            self._authorize(request)
        return request


def without_password(url: str) -> str:
    """The URL without user and password: this may be requested, shown and stored."""
    return re.sub(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)[^/?#]*@", r"\1", url)  # urlsplit would refuse some URLs


def file_path(url: str) -> Path:
    """The path of a file: URL; ValueError if the URL names another machine."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") and os.name != "nt":
        raise ValueError("a file: URL of another machine")
    if os.name != "nt":
        return Path(os.fsdecode(unquote_to_bytes(parts.path)))  # names are bytes, whatever the locale
    host = f"//{parts.netloc}" if parts.netloc not in ("", "localhost") else ""
    return Path(urllib.request.url2pathname(host + parts.path))


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _passwords(urls: Iterable[str]) -> dict[tuple[str, str], str]:
    """{(scheme, host): credentials} from each host's first URL that has any: in pip, a password is for a whole host."""
    passwords: dict[tuple[str, str], str] = {}
    for url in urls:
        with suppress(ValueError):  # a malformed URL is reported when it is used
            if userinfo := _userinfo(url):
                passwords.setdefault(_origin(url), userinfo)
    return passwords


def _userinfo(url: str) -> str | None:
    netloc = urlsplit(url).netloc
    if "@" not in netloc:
        return None
    user, _, password = netloc.rpartition("@")[0].partition(":")
    return f"{unquote(user)}:{unquote(password)}"


def _netrc_userinfo(url: str) -> str | None:
    netrc_file = os.environ.get("NETRC")
    for file in [netrc_file] if netrc_file else ["~/.netrc", "~/_netrc"]:
        try:
            login = netrc.netrc(os.path.expanduser(file)).authenticators(urlsplit(url).hostname or "")
        except (OSError, netrc.NetrcParseError):
            continue
        if login:
            return f"{login[0]}:{login[2] or ''}"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _add_certifi(context: ssl.SSLContext) -> None:
    """Load the certificates of certifi, or of pip's copy of it, as pip does: Pythons of macOS installers have none."""
    for module in ("certifi", "pip._vendor.certifi"):
        try:
            path = __import__(module, fromlist=["where"]).where()
        except ImportError:
            continue
        context.load_verify_locations(path)
        return


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror
    return _one_line(error) or type(error).__name__


def _one_line(reason: object) -> str:
    """A message of a server or a library, shortened, on one line."""
    return " ".join(str(reason).split())[:300]


# In STALL_SECONDS of waiting, at least STALL_BYTES must arrive. That is 1 kB/s: a modem is seven times as fast, and the
# catalog's largest archive takes a day. A longer timeout among pip's settings replaces STALL_SECONDS.
STALL_SECONDS = 60.0
STALL_BYTES = 60_000
# Bytes before a body: http.client accepts a hundred headers of 64 KiB, and any number of interim responses.
LONGEST_HEAD = 8 << 20

BUSY_STATUSES = frozenset({429, 502, 503, 504})  # the server or a proxy is busy, perhaps only briefly
RETRY_WAITS = (0.5, 1.0, 2.0)  # seconds before the second, third and last request
LONGEST_WAIT = 30.0  # seconds; a server whose Retry-After is longer gets no further request


class StalledError(Exception):
    """Raised where bytes arrive too slowly, or too many arrive before a body."""


def seconds_to_retry(attempt: int, status: int, retry_after: str | None) -> float | None:
    """Seconds to wait after request number ``attempt``, from 0, got an HTTP ``status``; None: make no more requests."""
    if status not in BUSY_STATUSES or attempt >= len(RETRY_WAITS):
        return None
    wait = max(RETRY_WAITS[attempt], _retry_after_seconds(retry_after))
    return wait if wait <= LONGEST_WAIT else None


def _retry_after_seconds(retry_after: str | None) -> float:
    """The seconds of a Retry-After header, which is a number or a date; 0 if it is missing or invalid."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


class _PacedSocket(io.RawIOBase):
    """The bytes of a socket; StalledError if they arrive too slowly. Only time spent waiting for the socket counts.

    http.client's timeout limits a single wait: a server that sends a byte before each timeout could go on for ever.
    """

    def __init__(self, source: Any, timeout: float) -> None:
        super().__init__()
        self._source = source
        self._stall_seconds = max(STALL_SECONDS, timeout)
        self._waited_seconds, self._arrived_bytes = 0.0, 0  # since the last check of the speed
        self.head_bytes: int | None = LONGEST_HEAD  # may still arrive before the body; None: the body has begun

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._source.fileno()

    def readinto(self, buffer: Any) -> int | None:
        start = time.monotonic()
        count = self._source.readinto(buffer)
        self._waited_seconds += time.monotonic() - start
        self._arrived_bytes += count or 0
        if self.head_bytes is not None:
            self.head_bytes -= count or 0
            if self.head_bytes < 0:
                raise StalledError(f"more than {LONGEST_HEAD} bytes of headers")
        if count and self._waited_seconds > self._stall_seconds:
            if self._arrived_bytes < STALL_BYTES:
                raise StalledError(f"stalled: {self._arrived_bytes} bytes in {self._waited_seconds:.0f} seconds")
            self._waited_seconds, self._arrived_bytes = 0.0, 0
        return count

    def close(self) -> None:
        super().close()
        self._source.close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._socket = _PacedSocket(self.fp.detach(), sock.gettimeout() or 0.0)  # type: ignore[attr-defined]
        self.fp = io.BufferedReader(self._socket)

    def begin(self) -> None:
        super().begin()
        self._socket.head_bytes = None


class HttpConnection(http.client.HTTPConnection):  # raises StalledError for slow responses, of a proxy too
    response_class = _Response


class HttpsConnection(http.client.HTTPSConnection):
    response_class = _Response
