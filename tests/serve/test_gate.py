"""Limits, keys, the clock, clients that go away, the log; before models that compute nothing."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
from prometheus_client import REGISTRY

from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.errors import CheckpointError, InputError
from fastattn.serve.dialects import error_body
from fastattn.serve.gate import Gate, KeyQuota
from fastattn.serve.models import ModelStore, ServedModel
from fastattn.serve.service import QUOTA, TEXTS_AT_ONCE, Service
from fastattn.serve.settings import Refusal, ServerSettings, read_keys
from fastattn.translation.translator import Translator
from tests.messages import check, refused
from tests.serve.recorders import record_models
from tests.serve.serving import FORM, serving

MODELS = (("en-pt", "nowhere"),)
JSON = {"content_type": "application/json"}


def ask(text="Good morning."):
    return {"q": text, "source": "en", "target": "pt"}


START = b"POST /translate HTTP/1.1\r\nhost: a\r\n"
# The rest of a request's head, and its body.
WHOLE = b"content-type: application/json\r\ncontent-length: %d" % len(json.dumps(ask())), json.dumps(ask()).encode()


@pytest.fixture(autouse=True)
def seen(monkeypatch):
    return record_models(monkeypatch)


@pytest.fixture
def held(seen, monkeypatch):
    """Translations that begin, and end when they are told to."""
    held = SimpleNamespace(**{name: threading.Event() for name in ("begun", "cancelled", "may_end")})
    real = Translator.translate_async

    async def hold(*given, **options):
        held.begun.set()
        try:
            while not held.may_end.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            held.cancelled.set()
            raise
        return await real(*given, **options)

    monkeypatch.setattr(Translator, "translate_async", hold)
    yield held
    held.may_end.set()


def wait_until(true):
    """A failure of what never comes, however slow the machine."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_progress():
    return REGISTRY.get_sample_value("fastattn_requests_active")


def begin(asked, head, body=b""):
    """A connection that has sent a request's beginning, of which the server knows."""
    before = in_progress()
    connection = socket.create_connection(("127.0.0.1", asked.port))
    connection.sendall(START + head + b"\r\n\r\n" + body)
    wait_until(lambda: in_progress() > before)
    return connection


def test_more_than_a_request_may_have_is_refused():
    with serving(models=MODELS, characters=100, items=3) as asked:
        for text in ("a" * 101, ["a" * 50, "b" * 51], ["a"] * 4, "a" * 10_000):
            status, answer = asked.post("/translate", ask(text))
            assert status == 413
            check(answer["error"])
        check(asked.post("/v2/translate", {"text": "a" * 101, "target_lang": "PT"})[1]["message"])
        assert [asked.post("/translate", ask(text))[0] for text in ("a" * 100, ["a"] * 3)] == [200, 200]


def test_what_is_no_text_is_refused():
    with serving(models=MODELS) as asked:
        check(asked.post("/translate", b'{"q": "\xff"}', **JSON)[1]["error"])
        for body in (b'{"q": "\xff"}', b"{", b"[" * 100_000, b"null", b'"x"', b"[]", b"{}"):
            status, content, _ = asked.raw("POST", "/translate", body, **JSON)
            assert status == 400 and json.loads(content)["error"], body
        assert asked.raw("GET", "/nothing")[0] == 404
        assert asked.raw("PUT", "/v2/glossaries")[2]["allow"] == "GET, POST"
        assert asked.raw("DELETE", "/translate")[0] == 405
        with socket.create_connection(("127.0.0.1", asked.port)) as flood:
            flood.sendall(b"GET / HTTP/1.1\r\n" + b"x-flood: " + b"y" * 100_000)
            assert flood.recv(100).split()[1] in (b"400", b"431")
        chunked = b"transfer-encoding: chunked\r\ncontent-length: 4\r\ncontent-type: application/json"
        with socket.create_connection(("127.0.0.1", asked.port)) as two_lengths:
            two_lengths.sendall(START + chunked + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
            answer = b"".join(iter(lambda: two_lengths.recv(1000), b""))
            assert answer.startswith(b"HTTP/1.1 400 ") and b"\r\nconnection: close\r\n" in answer
        status, content, _ = asked.raw("GET", "/health", **{f"x-{n}": "y" * 8000 for n in range(5)})  # at once
        assert status == 431 and b"may have 16384 bytes" in content
        assert asked.post("/translate", ask())[0] == 200


def test_only_who_has_a_key_is_answered(tmp_path):
    (tmp_path / "keys").write_text("# ours\nsecret\nbounded 120\nchàà\n", encoding="utf-8")
    with serving(models=MODELS, keys=str(tmp_path / "keys")) as asked:
        assert asked.post("/translate", ask()) == (403, {"error": "a key is needed"})
        assert asked.post("/translate", ask(), authorization="Bearer wrong")[1] == {"error": "this key is not known"}
        ways = [
            ("/translate", ask(), {"authorization": "Bearer secret"}),
            ("/translate", ask(), {"authorization": "secret"}),
            ("/translate", ask(), {"authorization": "chàà".encode().decode("latin-1")}),  # bytes that end in a blank
            ("/translate?token=secret", ask(), {}),
            ("/translate", {**ask(), "api_key": "secret"}, {}),
            ("/translate", "q=a&source=en&target=pt&api_key=secret", FORM),
            ("/secret/translate", {"text": "a", "target_lang": "PT"}, {}),
            ("/v2/translate", {"text": "a", "target_lang": "PT", "auth_key": "secret"}, {}),
            ("/v2/translate", {"text": "a", "target_lang": "PT"}, {"authorization": "DeepL-Auth-Key secret"}),
        ]
        assert [asked.post(path, body, **headers)[0] for path, body, headers in ways] == [200] * len(ways)
        assert [asked.raw("GET", path)[0] for path in ("/", "/health", "/frontend/settings")] == [200] * 3
        assert asked.raw("GET", "/metrics")[0] == 403
        assert asked.post("/", {"inputs": "a"})[0] == 403  # a model is asked, not the page
        used = asked.get("/v2/usage", authorization="Bearer secret")[1]
        assert used == {"character_count": 4 * len("Good morning.") + 4, "character_limit": 10**12}
        assert asked.get("/frontend/settings")[1]["keyRequired"] is True


def test_a_quota_comes_back_by_its_process_share(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fastattn.serve.gate.time", SimpleNamespace(**vars(time) | {"monotonic": lambda: now[0]}))
    (tmp_path / "keys").write_text("other\nbounded 120\n")
    with serving(models=MODELS, keys=str(tmp_path / "keys"), processes=2) as asked:  # a character a second
        bounded = {"authorization": "Bearer bounded"}
        assert asked.post("/translate", ask("a" * 40), **bounded)[0] == 200
        assert asked.post("/translate", {**ask("a" * 40), "target": "xx"}, **bounded)[0] == 400  # and takes nothing
        assert asked.get("/v2/usage", **bounded)[1] == {"character_count": 40, "character_limit": 120}
        assert asked.post("/translate", ask(["b" * 40, "c" * 40]), **bounded)[0] == 200
        status, content, headers = asked.raw("POST", "/translate", ask("a" * 10), **bounded)
        assert (status, headers["retry-after"]) == (429, "10") and b"again in 10 s" in content
        assert asked.post("/translate", ask("a" * 121), **bounded)[0] == 413
        now[0] += 9
        assert asked.raw("POST", "/translate", ask("a" * 10), **bounded)[2]["retry-after"] == "1"
        now[0] += 1
        assert asked.post("/translate", ask("a" * 10), **bounded)[0] == 200
        now[0] += 1000
        assert asked.get("/v2/usage", **bounded)[1]["character_count"] == 0
    quota = KeyQuota(120)
    quota.take(120)
    with refused(Refusal):
        quota.take(2)


def test_senders_without_a_key_leave_places_to_those_with_one(tmp_path):
    (tmp_path / "keys").write_text("secret\n")
    with serving(models=MODELS, keys=str(tmp_path / "keys"), requests=4, characters=100, items=3) as asked:
        before, connection = in_progress(), begin(asked, b"content-length: 9")
        assert asked.post("/translate", {**ask(), "api_key": "secret"})[0] == 429
        assert asked.post("/translate", ask(), authorization="Bearer secret")[0] == 200
        connection.close()
        wait_until(lambda: in_progress() == before)
        assert asked.post("/translate", {**ask(), "api_key": "secret"})[0] == 200
        for body, status in ((ask("a" * 10_000), 413), (b"\xff", 400), (ask(), 403)):  # and give theirs back
            assert [asked.raw("POST", "/translate", body)[0] for _ in range(5)] == [status] * 5
        assert asked.post("/translate", {**ask(), "api_key": "secret"})[0] == 200


def test_keys_are_read_strictly(tmp_path):
    path = tmp_path / "keys"
    for text in ("", "a b", "a 1 2", "# a\na -1"):
        path.write_text(text)
        with refused(InputError):
            read_keys(str(path))
    path.write_text("one\n\n# two\nthree 5\n")
    assert read_keys(str(path)) == {b"one": 0, b"three": 5}


def test_too_many_at_once_are_told_when_to_come_again(held):
    """Browsers' scripts too."""
    with serving(models=MODELS, requests=1, origins=("https://a.example",)) as asked, ThreadPoolExecutor() as together:
        first = together.submit(asked.post, "/translate", ask())
        assert held.begun.wait(60)
        status, _, headers = asked.raw("POST", "/translate", ask(), origin="https://a.example")
        assert (status, headers["retry-after"]) == (429, "1")
        assert headers["access-control-allow-origin"] == "https://a.example"
        shown = {name.strip() for name in headers["access-control-expose-headers"].split(",")}
        assert shown == {"Retry-After", "X-Request-ID"}
        assert [asked.raw("GET", path)[0] for path in ("/health", "/metrics")] == [200, 200]
        held.may_end.set()
        assert first.result(60)[0] == 200 and asked.post("/translate", ask())[0] == 200


def test_browsers_ask_from_origins_that_were_named_alone():
    preflight = {"origin": "https://a.example", "access_control_request_method": "POST"}
    for origins, allowed in (((), None), (("https://b.example",), None), (("https://a.example",), "https://a.example")):
        with serving(models=MODELS, origins=origins) as asked:
            _, _, headers = asked.raw("POST", "/translate", ask(), origin="https://a.example")
            assert headers.get("access-control-allow-origin") == allowed
            status, _, headers = asked.raw(
                "OPTIONS", "/translate", **preflight, access_control_request_headers="authorization"
            )
            assert (status == 200) == (allowed is not None)
    assert headers["access-control-allow-headers"] == "authorization" and headers["access-control-max-age"] == "600"


def test_a_slow_sender_and_a_slow_answer_have_a_clock(held, tmp_path):
    """And the sender's place is the next one's, who has a key in the body."""
    (tmp_path / "keys").write_text("secret\n")
    with serving(models=MODELS, timeout=0.15, keys=str(tmp_path / "keys"), requests=4) as asked:
        with begin(asked, b"content-length: 9", b"{") as slow:
            assert b" 408 " in slow.recv(1000)
        body = {**ask(), "api_key": "secret"}
        assert asked.post("/translate", body) == (504, {"error": "no answer within 0.15 s"})
        assert held.cancelled.wait(60)


def test_the_clock_of_a_request_runs_once(monkeypatch):
    """What its sender took of it, the answer has not."""
    now, waited, sent = [50.0], AsyncMock(return_value=(set(), set())), AsyncMock()
    monkeypatch.setattr("fastattn.serve.gate.time", SimpleNamespace(**vars(time) | {"perf_counter": lambda: now[0]}))

    async def receive():
        now[0] += 60
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def request():
        monkeypatch.setattr("fastattn.serve.gate.asyncio", SimpleNamespace(**vars(asyncio) | {"wait": waited}))
        gate = Gate(AsyncMock(), ServerSettings(MODELS, timeout=100), error_body, lambda scope: "other")
        scope = {"type": "http", "path": "/translate", "method": "POST", "headers": [], "query_string": b""}
        await gate(scope, receive, sent)

    asyncio.run(request())
    assert waited.await_args.kwargs["timeout"] == 40.0 and sent.await_args_list[0].args[0]["status"] == 504


def test_a_head_has_a_clock_too(seen, monkeypatch):
    monkeypatch.setattr("fastattn.serve.server.HEAD_SECONDS", 0.4)
    real = Translator.translate_async

    async def slow(*given, **options):
        await asyncio.sleep(0.6)
        return await real(*given, **options)

    monkeypatch.setattr(Translator, "translate_async", slow)
    with serving(models=MODELS) as asked:
        with socket.create_connection(("127.0.0.1", asked.port)) as head:
            head.sendall(b"GET /health HTTP/1.1\r\nhost:")
            assert head.recv(100).startswith(b"HTTP/1.1 408 ") and head.recv(100) == b""
        with socket.create_connection(("127.0.0.1", asked.port)) as kept:  # also of a second request
            kept.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b" 200 " in kept.recv(1000)
            kept.sendall(b"GET /hea")
            while part := kept.recv(1000):
                last = part
            assert last.startswith(b"HTTP/1.1 408 ")
        assert asked.post("/translate", ask())[0] == 200


def test_an_answer_that_nobody_reads_has_a_place_and_a_clock(monkeypatch):
    monkeypatch.setattr("fastattn.serve.server.WRITE_SECONDS", 0.3)
    body = json.dumps(ask("a" * (16 << 20))).encode()  # more than the system's buffers take
    with serving(models=MODELS, characters=20 << 20) as asked:
        before = in_progress()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", asked.port))
            client.sendall(START + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            assert client.recv(1) == b"H" and in_progress() == before + 1
            wait_until(lambda: in_progress() == before)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while part := client.recv(1 << 16):
                    received += len(part)
            assert received < len(body)


def test_a_client_that_only_ends_its_sending_is_answered(held):
    with serving(models=MODELS) as asked:
        with begin(asked, *WHOLE) as client:
            assert held.begun.wait(60)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b"HTTP/1.1 100 \r\n\r\n"
            held.may_end.set()
            answer = b"".join(iter(lambda: client.recv(1000), b""))
        assert answer.startswith(b"HTTP/1.1 200 ") and b"Good morning. 0" in answer and not held.cancelled.is_set()


def test_a_fault_of_the_server_is_an_error_of_the_dialect(monkeypatch):
    monkeypatch.setattr(Translator, "translate_async", AsyncMock(side_effect=ValueError("a secret of the house")))
    with serving(models=MODELS) as asked:
        fault = "the server has a fault, which its log has"
        assert asked.post("/translate", ask()) == (500, {"error": fault})
        assert asked.post("/v2/translate", {"text": "a", "target_lang": "PT"}) == (500, {"message": fault})


def test_a_client_that_goes_away_ends_its_work(held, capfd):
    with serving(models=MODELS) as asked:
        gone = begin(asked, *WHOLE)
        assert held.begun.wait(60)
        gone.close()
        assert held.cancelled.wait(60)
        said = [capfd.readouterr().err]
        wait_until(lambda: "\n" in "".join(said) or said.append(capfd.readouterr().err))
        assert json.loads("".join(said).splitlines()[0])["status"] == 499
        held.may_end.set()
        assert asked.post("/translate", ask())[0] == 200


@pytest.mark.parametrize("kind", [CrossEncoder, TextClassifier])
def test_a_client_that_went_away_has_no_more_scored(kind):
    begun, may_end, scored = threading.Event(), threading.Event(), []

    def score(*given):
        scored.append(len(given[-1]))
        begun.set()
        assert may_end.wait(60)
        return np.ones(len(given[-1]))

    model = SimpleNamespace(count_pair_tokens=lambda pairs: [1], max_length=100, predict=score, classify=score)

    async def leave():
        QUOTA.set(KeyQuota())
        service = Service(ServerSettings((("slow", "nowhere"),)))
        service.models.entries["slow"].kind, service.models.entries["slow"].model = kind, model
        many = 20 * TEXTS_AT_ONCE
        asked = service.rank("a", ["b"] * many, raw=False, truncate=False) if kind is CrossEncoder else None
        work = asyncio.ensure_future(asked or service.classify([("a", "b")] * many, False))
        await asyncio.to_thread(begun.wait, 60)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        may_end.set()

    asyncio.run(leave())  # which waits for threads that are at work
    assert scored == [TEXTS_AT_ONCE]


def test_the_log_has_a_line_a_request_and_no_text(capfd):
    with serving(models=MODELS) as asked:
        asked.raw("POST", "/translate", ask("Nobody reads this."), x_request_id="mine-1")
        _, _, headers = asked.raw("POST", "/translate", ask(), x_request_id="not\u00e9one")
        asked.raw("GET", "/unknown")
        metrics = asked.raw("GET", "/metrics")[1].decode()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    expected = {"id": "mine-1", "method": "POST", "path": "/translate", "status": 200}
    assert lines[0].items() >= (expected | {"bytes": len(json.dumps(ask("Nobody reads this.")))}).items()
    assert headers["x-request-id"] == lines[1]["id"] != "not\u00e9one" and "Nobody" not in str(lines)
    assert 'fastattn_requests_total{path="/translate",status="200"}' in metrics
    assert 'path="other",status="404"' in metrics
    with serving(models=MODELS, log_texts=True) as asked:
        asked.post("/translate", {**ask("Somebody reads this."), "api_key": "hidden"})
        asked.raw("POST", "/translate", b'{"q": "two", "api\\u005fkey": "hidden \\" hidden"}', **JSON)
        asked.post("/translate", "q=three&api_key=hidden&api_key=hidden", **FORM)
        asked.raw("POST", "/translate", b'{"api_key": "hidden"', **JSON)
    said = capfd.readouterr().err
    assert all(text in said for text in ("Somebody", "two", "three", "no JSON")) and "hidden" not in said


def test_a_lazy_server_loads_once_when_asked_and_puts_away(seen):
    with serving(models=MODELS, lazy=True, idle=0.05) as asked:
        assert asked.get("/languages")[1][0]["targets"] == ["pt"] and "made" not in seen
        with ThreadPoolExecutor(4) as together:
            assert [*together.map(lambda _: asked.post("/translate", ask())[0], range(4))] == [200] * 4
        wait_until(lambda: len(seen.get("closed", ())) == len(seen["made"]))
        made = len(seen["made"])
        assert asked.post("/translate", ask())[0] == 200 and len(seen["made"]) == made + 1


def test_a_model_is_idle_from_its_last_use_on(seen, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fastattn.serve.models.time", SimpleNamespace(monotonic=lambda: now[0]))

    async def use():
        store = ModelStore(ServerSettings(MODELS, lazy=True))
        await store.load_all()
        await asyncio.gather(*(store.use("en-pt").__aenter__() for _ in range(3)))
        assert seen["made"] == [Translator]  # of several who ask at once, too
        store.entries["en-pt"].users = 0
        async with store.use("en-pt"):
            now[0] = 50.0
            store.close_unused(idle_seconds=10.0)
            assert "closed" not in seen  # it is used
        for now[0], closed in ((50.0, False), (59.9, False), (60.0, True)):
            store.close_unused(idle_seconds=10.0)
            assert ("closed" in seen) == closed
        assert store.entries["en-pt"].model is None

    asyncio.run(use())


def test_models_that_nobody_uses_go_where_memory_is_scarce(seen, monkeypatch):
    async def use(memory):
        monkeypatch.setattr("fastattn.serve.models.available_memory", lambda: memory)
        store = ModelStore(ServerSettings((*MODELS, ("enc", "nowhere"), ("lm", "nowhere")), lazy=True))
        await store.load_all()
        async with store.use("en-pt"):
            pass
        async with store.use("enc"), store.use("lm"):
            return seen.pop("closed", [])

    assert asyncio.run(use(1 << 40)) == [] and asyncio.run(use(1 << 20)) == [Translator]


def test_a_model_that_is_gone_is_an_answer_or_ends_the_start(seen, monkeypatch, capfd):
    gone = Mock(side_effect=CheckpointError("no such folder"))
    with monkeypatch.context() as without:
        without.setattr(Translator, "__init__", gone)
        with serving(models=MODELS, lazy=True) as asked:
            assert asked.post("/translate", ask()) == (503, {"error": "en-pt cannot be loaded: no such folder"})
            without.undo()
            assert asked.post("/translate", ask())[0] == 200  # it is back
    look = ServedModel.read_kind
    monkeypatch.setattr(ServedModel, "read_kind", lambda one: gone() if one.name == "lm" else look(one))
    models = (*MODELS, ("lm", "nowhere"))
    with pytest.raises(CheckpointError):
        asyncio.run(ModelStore(ServerSettings(models)).load_all())
    store = ModelStore(ServerSettings(models, processes=2))
    asyncio.run(store.load_all())  # as a worker that takes another's place
    assert store.names_of((Translator,)) == ["en-pt"]
    assert "fastattn: lm is not served by process " in capfd.readouterr().err
