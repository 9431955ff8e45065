"""The middleware between the server and the dialects' routes, which every request and every answer passes.

It sees to limits, keys, forms, the time limit, ids, the log, metrics and traces. It is written for ASGI directly, since
it reads the body and watches the client: the work for a request ends when the client goes away.
"""

import asyncio
import hmac
import json
import math
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from fastattn.printable import printable
from fastattn.serve.dialects.body import STRICT
from fastattn.serve.service import CALLER, QUOTA
from fastattn.serve.settings import HEAD_BYTES, Refusal, ServerSettings, read_keys
from fastattn.serve.tracing import span_writer

# Our page, the checks of supervisors, and the settings by which LibreTranslate's page learns that a key is needed.
PATHS_WITHOUT_KEY = ("/", "/health", "/ping", "/frontend/settings")
PATHS_WITHOUT_LIMIT = ("/health", "/ping", "/metrics")  # answered under any load
UNIDENTIFIED_SHARE = 4  # of the requests that may be in progress, one in so many may have a key that is not read yet
EVENT_STREAM, LINE_STREAM = "text/event-stream", "application/x-ndjson"
FORM_TYPE, UPLOAD_TYPE = "application/x-www-form-urlencoded", "multipart/form-data"
REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
AUTHORIZATION = re.compile(r"(?:(?:bearer|deepl-auth-key)\s+)?(\S+)", re.IGNORECASE | re.ASCII)
UPLOADED_KEY = re.compile(
    rb'\r\ncontent-disposition: *form-data; *name="(?:token|api_key|auth_key)" *\r\n'
    rb"(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n",
    re.IGNORECASE,
)
KEY_FIELDS = ("token", "api_key", "auth_key")  # fields of a query or a body that may hold a key
WRITE_BYTES = 1 << 16  # the most bytes of an answer that are written at once
CLIENT_CLOSED = 499  # status, in the server's records alone, of a request whose client went away: nginx's number

REQUESTS = Counter("fastattn_requests", "Requests answered.", ["path", "status"])
SECONDS = Histogram("fastattn_request_seconds", "From a request's first byte to the last of its answer.", ["path"])
ACTIVE = Gauge("fastattn_requests_active", "Requests in progress.", multiprocess_mode="livesum")


class KeyQuota:
    """The characters of texts that a key may use a minute; used characters become available again bit by bit.

    limit  the most characters a minute; 0: any number
    share  the share of ``limit`` that becomes available again in this process
    """

    def __init__(self, limit: int = 0, share: float = 1.0):
        self._limit, self._per_second = limit, limit * share / 60
        self._available, self._updated, self._total = float(limit), time.monotonic(), 0

    def usage(self) -> tuple[int, int]:
        """(used characters that are not available again, the most a minute); without a quota (all used so far, 0)."""
        self._restore()
        return (math.ceil(self._limit - self._available), self._limit) if self._limit else (self._total, 0)

    def take(self, characters: int) -> None:
        """Take so many characters; if fewer are available, a Refusal says when there will be enough, if ever."""
        self._restore()
        if self._limit and characters > self._limit:
            raise Refusal(413, f"this key may have {self._limit} characters a minute, the request has {characters}")
        if self._limit and characters > self._available:
            seconds = math.ceil((characters - self._available) / self._per_second)
            raise Refusal(429, f"this key's characters of this minute are used up; again in {seconds} s", seconds)
        self._available -= characters
        self._total += characters

    def _restore(self) -> None:
        now = time.monotonic()
        restored, self._updated = (now - self._updated) * self._per_second, now
        self._available = min(self._limit, self._available + restored) if self._limit else 0.0


class Gate:
    """The middleware.

    error_body  (path, status, message) -> the body of an error in the path's dialect
    route_path  (scope) -> the path of the request's route, by which metrics and traces name the request
    """

    def __init__(
        self,
        app: Any,
        settings: ServerSettings,
        error_body: Callable[[str, int, str], dict[str, Any]],
        route_path: Callable[[Scope], str],
    ):
        self._app, self._settings = app, settings
        self._error_body, self._route_path = error_body, route_path
        keys = read_keys(settings.keys) if settings.keys else {}
        self._keys = {key: KeyQuota(limit, 1 / settings.processes) for key, limit in keys.items()}
        self._common_quota, self._write_span = KeyQuota(), span_writer()
        # Requests in progress, and requests among these whose key is not read yet.
        self._request_count, self._unidentified_count = 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, answer = time.perf_counter(), Answer(scope, receive, send)
        ACTIVE.inc()
        try:
            await self._answer(scope, receive, answer, start + self._settings.timeout)
        except Refusal as refusal:
            await answer.refuse(refusal, self._error_body(scope["path"], refusal.status, str(refusal)))
        finally:
            ACTIVE.dec()
            self._log(scope, answer, time.perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, answer: "Answer", deadline: float) -> None:
        """Read a request, check it, and have it answered until the deadline, a time of ``time.perf_counter``."""
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size + len(scope["path"]) + len(scope["query_string"]) > HEAD_BYTES:  # uvicorn lets a head in one part pass
            raise Refusal(431, f"a request's line and headers may have {HEAD_BYTES} bytes, these have more")
        with self._admission(scope, self._needs_key(scope) and self._key_number(_request_key(scope, b"")) < 0):
            is_upload = _is_of_type(scope, UPLOAD_TYPE)
            try:
                body = await asyncio.wait_for(self._read_body(receive, is_upload), self._settings.timeout)
            except asyncio.TimeoutError:
                raise Refusal(408, f"the request did not come within {self._settings.timeout:g} s") from None
        if body is None:
            answer.status = CLIENT_CLOSED
            return
        scope, body = _form_to_json(scope, body)
        answer.scope, answer.body = scope, body
        with self._admission(scope, False):
            caller, quota = self._check_key(scope, body)
            CALLER.set(caller)
            QUOTA.set(quota)
            STRICT.set(self._settings.strict)
            await self._compute(scope, body, receive, answer, deadline)

    @contextmanager
    def _admission(self, scope: Scope, is_unidentified: bool) -> Iterator[None]:
        """Count a request as in progress within the block, or refuse the request.

        is_unidentified  whether the key is in a body that is still to be read: fewer such requests may be in progress
        """
        limit = self._settings.requests
        too_many = is_unidentified and self._unidentified_count >= max(1, limit // UNIDENTIFIED_SHARE)
        if scope["path"] not in PATHS_WITHOUT_LIMIT and (self._request_count >= limit or too_many):
            raise Refusal(429, f"{limit} requests are in progress, as many as may be", 1)
        self._request_count += 1
        self._unidentified_count += is_unidentified
        try:
            yield
        finally:
            self._request_count -= 1
            self._unidentified_count -= is_unidentified

    async def _read_body(self, receive: Receive, is_upload: bool) -> bytes | None:
        """The request's body; None if the client went away. A Refusal if it is too large, or text that is no UTF-8."""
        parts, size, has_more = list[bytes](), 0, True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size, has_more = size + len(parts[-1]), message.get("more_body", False)
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
        is_open = scope["path"] in PATHS_WITHOUT_KEY and scope["method"] in ("GET", "HEAD")
        return bool(self._keys) and not is_open and scope["method"] != "OPTIONS"

    def _key_number(self, candidate: bytes) -> int:
        # All keys are compared, in a time that does not tell how near a guess is.
        return max((number for number, key in enumerate(self._keys) if hmac.compare_digest(key, candidate)), default=-1)

    def _check_key(self, scope: Scope, body: bytes) -> tuple[Any, KeyQuota]:
        """(the caller: a key's number or an address; the caller's quota); a Refusal if the key is not valid."""
        client = scope.get("client")
        if not self._needs_key(scope):
            return client[0] if client else None, self._common_quota
        key = _request_key(scope, body)
        number = self._key_number(key)
        if number < 0:
            raise Refusal(403, "this key is not known" if key else "a key is needed")
        return number, list(self._keys.values())[number]

    async def _compute(self, scope: Scope, body: bytes, receive: Receive, answer: "Answer", deadline: float) -> None:
        """Have a dialect answer, until the deadline and as long as the client waits."""
        messages = asyncio.Queue[Message]()  # never has the client's going away, for which the Gate looks out
        messages.put_nowait({"type": "http.request", "body": body, "more_body": False})
        answer_task = asyncio.ensure_future(self._app(scope, messages.get, answer.send))
        disconnect_task = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            seconds = max(0.0, deadline - time.perf_counter())
            await asyncio.wait({answer_task, disconnect_task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer_task.done():
                answer_task.result()
            elif disconnect_task.done():
                answer.status = CLIENT_CLOSED
            else:
                raise Refusal(504, f"no answer within {self._settings.timeout:g} s")
        finally:
            for task in (answer_task, disconnect_task):
                task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await answer_task

    def _log(self, scope: Scope, answer: "Answer", seconds: float) -> None:
        status, path = answer.status or 500, self._route_path(answer.scope)
        REQUESTS.labels(path, status).inc()
        SECONDS.labels(path).observe(seconds)
        self._write_span(scope, path, status, seconds)
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
    """The answer to a request, with the request's scope, body and id: the id in the client's header, or a new one."""

    def __init__(self, scope: Scope, receive: Receive, send: Send):
        self._receive, self._send = receive, send
        self.scope, self.body = scope, b""
        self.status: int | None = None
        self._stream_type = ""
        # RFC 9112, 6.3: after such a request the connection is closed, since further bytes may be a smuggled request.
        headers = Headers(scope=scope)
        self._has_two_lengths = "transfer-encoding" in headers and "content-length" in headers
        client_id = headers.get("x-request-id", "")
        self.id = client_id if REQUEST_ID.fullmatch(client_id) else uuid.uuid4().hex

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            content_type = Headers(raw=message.get("headers", [])).get("content-type", "")
            self._stream_type = next(filter(content_type.startswith, (EVENT_STREAM, LINE_STREAM)), "")
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
            if self._has_two_lengths:
                message["headers"].append((b"connection", b"close"))
        body = message.get("body", b"")
        last_start = max(0, len(body) - 1) // WRITE_BYTES * WRITE_BYTES
        for start in range(0, last_start, WRITE_BYTES):  # the server's write timer runs for each part
            await self._send({"type": message["type"], "body": body[start : start + WRITE_BYTES], "more_body": True})
        await self._send({**message, "body": body[last_start:]} if last_start else message)

    async def refuse(self, refusal: Refusal, body: dict[str, Any]) -> None:
        """Answer with a refusal, or end a stream that has begun with it; an answer of another type is cut off."""
        if self.status is None:
            await JSONResponse(body, refusal.status, refusal.headers)(self.scope, self._receive, self.send)
        elif self._stream_type:
            is_event = self._stream_type == EVENT_STREAM
            end = (f"data: {json.dumps(body)}\n\n" if is_event else f"{json.dumps(body)}\n").encode()
            await self._send({"type": "http.response.body", "body": end, "more_body": False})
        else:
            raise ConnectionAbortedError(str(refusal))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_of_type(scope: Scope, media_type: str) -> bool:
    return Headers(scope=scope).get("content-type", "").lower().startswith(media_type)


def _form_to_json(scope: Scope, body: bytes) -> tuple[Scope, bytes]:
    """The request; if its body is a form, the body becomes JSON, in which a repeated field is a list."""
    if not _is_of_type(scope, FORM_TYPE):
        return scope, body
    if scope["method"] == "GET":  # the deepl package sends a form with GET
        return {**scope, "query_string": b"&".join(filter(None, (scope["query_string"], body)))}, b""
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=10_000)
    except ValueError as error:
        raise Refusal(400, f"the form cannot be read: {printable(str(error))}") from None
    values_by_name = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    json_body = json.dumps(values_by_name, ensure_ascii=False).encode()
    headers = MutableHeaders(raw=[*scope["headers"]])
    headers.update({"content-type": "application/json", "content-length": str(len(json_body))})
    return {**scope, "headers": headers.raw}, json_body


def _check_surrogates(body: bytes) -> None:
    """A Refusal for JSON with half of a surrogate pair, which UTF-8 cannot encode."""
    with suppress(json.JSONDecodeError, RecursionError):  # the dialect reports a body that is no JSON
        try:
            json.dumps(json.loads(body), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise Refusal(400, f"the request has U+{half:04X}, half of a surrogate pair, no character") from None


def _without_keys(body: bytes) -> str:
    """A request's JSON with its API keys hidden; "no JSON" for any other body, in which keys cannot be found."""

    def hide_keys(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: "..." if name in KEY_FIELDS else value for name, value in fields}

    try:
        return json.dumps(json.loads(body, object_pairs_hook=hide_keys), ensure_ascii=False)
    except (ValueError, RecursionError):
        return "no JSON" if body else ""


def _request_key(scope: Scope, body: bytes) -> bytes:
    """The request's API key, wherever a dialect sends it: Authorization, query, path or body; b"" if there is none."""
    if match := AUTHORIZATION.fullmatch(Headers(scope=scope).get("authorization", "").strip(" \t")):
        return match[1].encode("latin-1")
    query = parse_qs(scope["query_string"].decode("latin-1"))
    for name in filter(query.__contains__, KEY_FIELDS):
        return query[name][0].encode()
    path = scope["path"].split("/")
    if len(path) == 3 and path[2] == "translate" and path[1] not in ("v1", "v2", "api"):  # DeepLX's /TOKEN/translate
        return str(path[1]).encode()
    if _is_of_type(scope, UPLOAD_TYPE):
        uploaded_key = UPLOADED_KEY.search(body)
        return uploaded_key[1] if uploaded_key else b""
    with suppress(ValueError, RecursionError):
        fields = json.loads(body)
        for name in KEY_FIELDS if isinstance(fields, dict) else ():
            if isinstance(fields.get(name), str):
                return str(fields[name]).encode("utf-8", "surrogatepass")
    return b""
