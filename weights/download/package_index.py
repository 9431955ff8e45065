"""Finding one file of a package in the indexes and directories that pip is configured for.

Listings are JSON (PEP 691) or HTML (PEP 503: anchors, whose fragments may hold hashes). A find-links location may also
be a directory, a page of links, or the file itself. Nothing is resolved, built or installed.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, unquote, urldefrag, urljoin, urlsplit

from fastattn.errors import DownloadError
from fastattn.weights.download.pip_settings import PipSettings
from fastattn.weights.download.transport import Response, Transport, TransportError, file_path, without_password

LISTING_LIMIT = 64 << 20  # bytes; the listings of the largest projects are a few MB
_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = ("text/html", "application/xhtml+xml", "application/vnd.pypi.simple.v1+html")
_ACCEPT = f"{_JSON}, {_HTML[2]};q=0.2, {_HTML[0]};q=0.1"
# A comment, a script or style, or the start of a tag; below, an attribute. One that lacks its end extends to the page's
# end, so that no part of a page is searched twice: Python's HTML parser takes quadratic time.
_TAG = re.compile(
    r"<!--(?s:.*?)(?:-->|\Z)|<(?P<raw>script|style)(?=[\s/>])(?s:.*?)(?:</(?P=raw)|\Z)|<(?P<name>[a-z][^\s/>]*)", re.I
)
_ATTRIBUTE = re.compile(
    r"""[\s/]*(?:(?P<name>[^\s/>=]+|=)(?:\s*=\s*(?:"(?P<double>[^"]*)"?|'(?P<single>[^']*)'?|(?P<bare>[^\s>]*)))?)?"""
)
_CHARACTER_REFERENCE = re.compile(r"&#?\w{1,32};", re.ASCII)


@dataclass(frozen=True)
class Link:
    """A file in a listing; ``sha256`` is hexadecimal, None where the listing has no hash."""

    url: str
    file: str
    sha256: str | None = None


class PackageIndex:
    """The indexes and find-links locations of one set of settings."""

    def __init__(self, settings: PipSettings) -> None:
        self._settings = settings
        self.transport = Transport(settings)

    def find(self, project: str, file: str, failures: list[str]) -> Iterator[Link]:
        """Yield every link to the file: find-links first, then indexes in pip's order, each read when it is needed.

        A location that cannot be read or lacks the file adds one line to ``failures``.
        """
        for location, is_index in self._locations(project):
            try:
                if not self.transport.is_secure(location):
                    raise TransportError("plain http from a host that is not among pip's trusted-host")
                links = self._links_at(location, is_index)
                file_links = [link for link in links if link.file == file]
            except (TransportError, OSError, ValueError) as error:
                failures.append(f"{without_password(location)}: {error}")
                continue
            if not file_links:
                failures.append(f"{without_password(location)}: no such file there")
            for link in file_links:
                scheme = urlsplit(link.url).scheme
                if _is_remote(location) and not _is_remote(link.url):  # a server must not name files of this machine
                    failures.append(f"{without_password(location)}: a link to {scheme}:, expected http: or https:")
                else:
                    yield link

    def _locations(self, project: str) -> list[tuple[str, bool]]:
        settings = self._settings
        locations = [(location, False) for location in settings.find_links]
        if not settings.no_index:
            if settings.index_url is None:
                raise DownloadError(
                    "no package index: pip is neither configured nor installed; set PIP_INDEX_URL to an index's address"
                )
            name = re.sub(r"[-_.]+", "-", project).lower()
            indexes = (settings.index_url, *settings.extra_index_urls)
            locations += [(f"{_as_url(index).rstrip('/')}/{name}/", True) for index in indexes]
        if not locations:
            raise DownloadError("no package index: pip is configured with no-index and no find-links")
        return locations

    def _links_at(self, location: str, is_index: bool) -> list[Link]:
        """The links of an index's page of a project, or of a find-links location."""
        url = _as_url(location)
        link = _make_link(url)
        if not is_index and link.file.endswith((".whl", ".tar.gz", ".zip")):
            return [link]
        is_folder = urlsplit(url).scheme == "file" and file_path(url).is_dir()
        if is_index or not is_folder:
            return self._read_listing(urljoin(url, "index.html") if is_folder else url)
        links = []
        for path in sorted(path for path in file_path(url).iterdir() if path.is_file()):
            if path.suffix in (".html", ".htm"):
                links += self._read_listing(path.as_uri())
            else:
                links.append(Link(path.as_uri(), path.name))
        return links

    def _read_listing(self, url: str) -> list[Link]:
        with self.transport.open(url, _ACCEPT) as response:
            text = response.read(LISTING_LIMIT + 1)
            if len(text) > LISTING_LIMIT:
                raise TransportError(f"a listing of more than {LISTING_LIMIT} bytes")
            return _parse_listing(response, text)


def _is_remote(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")


def _as_url(location: str) -> str:
    """A location as a URL; pip also allows paths, which become file: URLs."""
    if re.match(r"(https?|file):", location, re.IGNORECASE):
        return location
    return Path(os.path.abspath(os.path.expanduser(location))).as_uri()


def _make_link(url: str) -> Link:
    address, fragment = urldefrag(url)
    hashes = parse_qs(fragment).get("sha256", [])
    return Link(address, unquote(urlsplit(address).path.rpartition("/")[2]), hashes[0].lower() if hashes else None)


def _parse_listing(response: Response, text: bytes) -> list[Link]:
    content_type = response.content_type
    if not content_type:  # a file has none: its name decides
        content_type = _JSON if urlsplit(response.url).path.endswith(".json") else _HTML[0]
    if content_type in (_JSON, "application/json"):
        return _parse_json(response.url, text)
    if content_type in _HTML:
        return _parse_html(response, text)
    raise TransportError(f"expected a listing in HTML or JSON, got {content_type}")


def _parse_json(url: str, text: bytes) -> list[Link]:
    try:
        page = json.loads(text)
        version = str(page["meta"]["api-version"])
        files = [
            (str(file["url"]), str(file["filename"]), file.get("hashes", {}).get("sha256")) for file in page["files"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise TransportError("a listing that is not the simple API's JSON") from None
    if version.partition(".")[0] != "1":
        raise TransportError(f"expected version 1 of the simple API, got {version}")
    return [
        Link(urldefrag(urljoin(url, address))[0], name, str(sha256).lower() if sha256 else None)
        for address, name, sha256 in files
    ]


def _parse_html(response: Response, text: bytes) -> list[Link]:
    try:
        base, addresses = _anchors(text.decode(response.charset, errors="replace"))
    except LookupError:
        raise TransportError(f"a listing in an unknown encoding, {response.charset}") from None
    base = urljoin(response.url, base)
    links = []
    for address in addresses:
        with suppress(ValueError):  # an invalid address does not invalidate the page
            links.append(_make_link(urljoin(base, address)))
    return links


def _anchors(page: str) -> tuple[str, list[str]]:
    """(the address of a page's <base>, the addresses of the page's anchors)."""
    base, addresses, position = "", list[str](), 0
    while (tag := _TAG.search(page, position)) is not None:
        address, position = "", tag.end()
        while tag["name"] and (attribute := _ATTRIBUTE.match(page, position)) and attribute["name"]:
            position = attribute.end()
            if attribute["name"].lower() == "href":
                address = attribute["double"] or attribute["single"] or attribute["bare"] or ""
        address = _CHARACTER_REFERENCE.sub(lambda reference: unescape(reference[0]), address).strip()
        if address and tag["name"].lower() == "a":
            addresses.append(address)
        elif address and tag["name"].lower() == "base" and not base:
            base = address
    return base, addresses
