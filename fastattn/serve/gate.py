"""The middleware that every request passes before its dialect, and every answer after it.

Limits, keys, forms, a clock, ids, the log and the metrics. It is an ASGI middleware, since it reads the body and
watches the client: work ends when its client goes away.
"""

import asyncio
import hmac
import json
import math
import re
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import Counter, Gauge, Histogram
from starlette.responses import JSONResponse

from fastattn.printable import printable
from fastattn.serve.dialects.body import STRICT
from fastattn.serve.service import CALLER, CHARACTERS
from fastattn.serve.settings import HEAD_BYTES, Refusal, ServerSettings, read_keys

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Paths that need no key: the page for people, and paths for supervisors.
OPEN = ("/", "/health", "/ping", "/frontend/settings")
ALWAYS = ("/health", "/ping", "/metrics")  # paths that are answered under any load
SHARE_OF_STRANGERS = 4  # one part in so many of the places is for requests whose key is not read yet
EVENTS = b"text/event-stream"
FORM, FILES = b"application/x-www-form-urlencoded", b"multipart/form-data"
REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
AUTHORIZATION = re.compile(rb"(?:(?:bearer|deepl-auth-key)\s+)?(\S+)", re.IGNORECASE)
FIELDS = ("token", "api_key", "auth_key")  # fields of a query or a body that hold a key
PART = 1 << 16  # bytes of an answer that are written at once
CLOSED = 499  # of a client that went away, in the log alone: nginx's number

REQUESTS = Counter("fastattn_requests", "Requests answered.", ["path", "status"])
SECONDS = Histogram("fastattn_request_seconds", "From a request's first byte to the last of its answer.", ["path"])
ACTIVE = Gauge("fastattn_requests_active", "Requests in progress.", multiprocess_mode="livesum")


class KeyQuota:
    """The characters of texts that a key may use a minute; used characters come back bit by bit.

    most   0: any number
    share  this process's part of what comes back
    """

    def __init__(self, most: int = 0, share: float = 1.0):
        self._most, self._back = most, most * share / 60
        self._left, self._at, self._taken = float(most), time.monotonic(), 0

    def used(self) -> tuple[int, int]:
        """(characters of this minute in use, the most of a minute), or without a quota (all characters taken, 0)."""
        self._come_back()
        return (math.ceil(self._most - self._left), self._most) if self._most else (self._taken, 0)

    def take(self, characters: int) -> None:
        """Take so many characters; a Refusal says when there will be as many, if ever."""
        self._come_back()
        if self._most and characters > self._most:
            raise Refusal(413, f"this key may have {self._most} characters a minute, the request has {characters}")
        if self._most and characters > self._left:
            wait = math.ceil((characters - self._left) / self._back)
            raise Refusal(429, f"this key's characters of this minute are used up; again in {wait} s", wait)
        self._left -= characters
        self._taken += characters

    def _come_back(self) -> None:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._back) if self._most else 0.0
        self._at = now


class Gate:
    """The middleware.

    error_body  (path, status, message) -> the body of an error in the path's dialect
    known_path  (scope) -> the route that metrics count the request as
    """

    def __init__(
        self,
        app: Any,
        settings: ServerSettings,
        error_body: Callable[[str, int, str], dict[str, Any]],
        known_path: Callable[[Scope], str],
    ):
        self._app, self._settings = app, settings
        self._error_body, self._known_path = error_body, known_path
        keys = read_keys(settings.keys) if settings.keys else {}
        self._keys = {key: KeyQuota(most, 1 / settings.processes) for key, most in keys.items()}
        self._everybody = KeyQuota()
        # Requests in progress, and those among them whose key is not read yet.
        self._active, self._strangers = 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, answer = time.perf_counter(), Answer(scope, send)
        ACTIVE.inc()
        try:
            await self._answer(scope, receive, answer, start + self._settings.timeout)
        except Refusal as refusal:
            await answer.refuse(refusal, self._error_body(scope["path"], refusal.status, str(refusal)))
        finally:
            ACTIVE.dec()
            self._note(scope, answer, time.perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, answer: "Answer", ends: float) -> None:
        """``ends``: the time limit, by ``time.perf_counter``."""
        head = sum(len(name) + len(value) for name, value in scope["headers"])
        if head + len(scope["path"]) + len(scope["query_string"]) > HEAD_BYTES:  # a head that came in one part
            raise Refusal(431, f"a request's line and headers may have {HEAD_BYTES} bytes, these have more")
        with self._place(scope, self._needs_key(scope) and self._number(_request_key(scope, b"")) < 0):
            is_upload = _header(scope, b"content-type").lower().startswith(FILES)
            try:
                body = await asyncio.wait_for(self._body(receive, is_upload), self._settings.timeout)
            except asyncio.TimeoutError:
                raise Refusal(408, f"the request did not come within {self._settings.timeout:g} s") from None
        if body is None:
            answer.status = CLOSED
            return
        scope, body = _as_json(scope, body)
        answer.scope, answer.body = scope, body
        with self._place(scope, False):
            caller, quota = self._check_key(scope, body)
            CALLER.set(caller)
            CHARACTERS.set(quota)
            STRICT.set(self._settings.strict)
            await self._compute(scope, body, receive, answer, ends)

    @contextmanager
    def _place(self, scope: Scope, is_stranger: bool) -> Iterator[None]:
        """A place among the requests in progress; requests with a key in the body share few until it is read."""
        most = self._settings.requests
        if scope["path"] not in ALWAYS and (
            self._active >= most or (is_stranger and self._strangers >= max(1, most // SHARE_OF_STRANGERS))
        ):
            raise Refusal(429, f"{most} requests are in progress, as many as may be", 1)
        self._active += 1
        self._strangers += is_stranger
        try:
            yield
        finally:
            self._active -= 1
            self._strangers -= is_stranger

    async def _body(self, receive: Receive, is_upload: bool) -> bytes | None:
        """The request's body, checked for its size, that of texts also for its encoding; None: the client went away."""
        parts, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self._settings.body_bytes:
                raise Refusal(413, f"a request may have {self._settings.body_bytes} bytes, this one has more")
        body = b"".join(parts)
        if is_upload:
            return body
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refusal(400, f"the request is not UTF-8 text: byte {error.start} is {body[error.start]:#x}") from None
        if b"\\ud" in body.lower():
            _check_surrogates(body)
        return body

    def _needs_key(self, scope: Scope) -> bool:
        return bool(self._keys) and scope["path"] not in OPEN and scope["method"] != "OPTIONS"

    def _number(self, candidate: bytes) -> int:
        # all keys are compared, in a time that does not tell how near a guess is
        return max((number for number, key in enumerate(self._keys) if hmac.compare_digest(key, candidate)), default=-1)

    def _check_key(self, scope: Scope, body: bytes) -> tuple[Any, KeyQuota]:
        """(the caller: a key's number or an address, its quota); a Refusal for a caller without a valid key."""
        client = scope.get("client")
        if not self._needs_key(scope):
            return client[0] if client else None, self._everybody
        key = _request_key(scope, body)
        number = self._number(key)
        if number < 0:
            raise Refusal(403, "this key is not known" if key else "a key is needed")
        return number, list(self._keys.values())[number]

    async def _compute(self, scope: Scope, body: bytes, receive: Receive, answer: "Answer", ends: float) -> None:
        """Have the dialects answer, for as long as the client waits and the clock runs."""
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_read() -> MutableMapping[str, Any]:
            if unread:
                return unread.pop()
            await asyncio.Event().wait()  # whether the client goes away is watched below
            raise AssertionError

        work = asyncio.ensure_future(self._app(scope, receive_read, answer.send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            remaining = max(0.0, ends - time.perf_counter())
            await asyncio.wait({work, gone}, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif gone.done():
                answer.status = CLOSED
            else:
                raise Refusal(504, f"no answer within {self._settings.timeout:g} s")
        finally:
            for task in (work, gone):
                task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work

    def _note(self, scope: Scope, answer: "Answer", seconds: float) -> None:
        status = answer.status or 500
        path = self._known_path(answer.scope)
        REQUESTS.labels(path, status).inc()
        SECONDS.labels(path).observe(seconds)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "id": answer.id,
            "method": scope["method"],
            "path": path,
            "status": status,
            "ms": round(1000 * seconds, 1),
            "bytes": len(answer.body),
        }
        if self._settings.log_texts:
            line["body"] = _without_keys(answer.body)
        sys.stderr.write(json.dumps(line) + "\n")


class Answer:
    """The answer to the client, with the request's id in a header: the client's own id if it sent one."""

    def __init__(self, scope: Scope, send: Send):
        self._send = send
        self.scope, self.body = scope, b""  # of the request, as it was read
        self.status: int | None = None
        self._streams = False
        # RFC 9112, 6.3: further bytes on such a connection may be a smuggled request.
        self._has_two_lengths = bool(_header(scope, b"transfer-encoding") and _header(scope, b"content-length"))
        client_id = _header(scope, b"x-request-id").decode("latin-1")
        self.id = client_id if REQUEST_ID.fullmatch(client_id) else uuid.uuid4().hex

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._streams = any(value.startswith(EVENTS) for _, value in message.get("headers", ()))
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
            if self._has_two_lengths:
                message["headers"].append((b"connection", b"close"))
        body = message.get("body", b"")
        last = max(0, len(body) - 1) // PART * PART
        for start in range(0, last, PART):  # the server's clock runs for each part
            await self._send({"type": message["type"], "body": body[start : start + PART], "more_body": True})
        await self._send({**message, "body": body[last:]} if last else message)

    async def refuse(self, refusal: Refusal, body: dict[str, Any]) -> None:
        """Answer with a refusal: as the last event of a stream that has begun; another begun answer is cut off."""
        if self.status is None:
            await JSONResponse(body, refusal.status, refusal.headers)(self.scope, _no_more, self.send)
        elif self._streams:
            event = f"data: {json.dumps(body)}\n\n".encode()
            await self._send({"type": "http.response.body", "body": event, "more_body": False})
        else:
            raise ConnectionAbortedError(str(refusal))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _no_more() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


def _header(scope: Scope, name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")


def _as_json(scope: Scope, body: bytes) -> tuple[Scope, bytes]:
    """The request, with a form as JSON: a repeated field is a list."""
    if not _header(scope, b"content-type").lower().startswith(FORM):
        return scope, body
    if scope["method"] == "GET":  # the deepl package's
        return {**scope, "query_string": b"&".join(filter(None, (scope["query_string"], body)))}, b""
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=10_000)
    except ValueError as error:
        raise Refusal(400, f"the form cannot be read: {printable(str(error))}") from None
    fields_read = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    read = json.dumps(fields_read, ensure_ascii=False).encode()
    kept_headers = [(key, value) for key, value in scope["headers"] if key not in (b"content-type", b"content-length")]
    headers = [*kept_headers, (b"content-type", b"application/json"), (b"content-length", str(len(read)).encode())]
    return {**scope, "headers": headers}, read


def _check_surrogates(body: bytes) -> None:
    """A Refusal for JSON with half of a surrogate pair, which no text holds."""
    with suppress(json.JSONDecodeError, RecursionError):  # the dialect reports these
        try:
            json.dumps(json.loads(body), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise Refusal(400, f"the request has U+{half:04X}, half of a surrogate pair, no character") from None


def _without_keys(body: bytes) -> str:
    """A request's JSON with its keys hidden; "no JSON" for another body, in which keys cannot be found."""

    def hidden(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: "..." if name in FIELDS else value for name, value in fields}

    try:
        return json.dumps(json.loads(body, object_pairs_hook=hidden), ensure_ascii=False)
    except (ValueError, RecursionError):
        return "no JSON" if body else ""


def _request_key(scope: Scope, body: bytes) -> bytes:
    """The request's key, from its Authorization, query, path or body, as the dialects send it; b"" if none."""
    if match := AUTHORIZATION.fullmatch(_header(scope, b"authorization").strip()):
        return match[1]
    query = parse_qs(scope["query_string"].decode("latin-1"))
    for name in filter(query.__contains__, FIELDS):
        return query[name][0].encode()
    path = scope["path"].split("/")
    if len(path) == 3 and path[2] == "translate" and path[1] not in ("v1", "v2", "api"):  # DeepLX's /TOKEN/translate
        return str(path[1]).encode()
    with suppress(ValueError, RecursionError):
        fields = json.loads(body)
        for name in FIELDS if isinstance(fields, dict) else ():
            if isinstance(fields.get(name), str):
                return str(fields[name]).encode("utf-8", "surrogatepass")
    return b""
