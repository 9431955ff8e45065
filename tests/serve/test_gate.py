"""Limits, keys, the clock, clients that go away, the log."""

import json
import socket
import threading
import time

import pytest

from fastattn.errors import InputError
from fastattn.serve.gate import KeyQuota
from fastattn.serve.settings import Refusal, read_keys
from tests.serve.serving import serving

LONG = "The committee discussed the proposal at length and postponed the vote. " * 60


def ask(text="Good morning."):
    return {"q": text, "source": "en", "target": "pt"}


@pytest.fixture(scope="module")
def models(pulled):
    return (("en-pt", str(pulled("en-pt"))),)


def test_more_than_a_request_may_have_is_refused(models):
    with serving(models=models, characters=100, items=3) as asked:
        assert asked.post("/translate", ask("a" * 101)) == (
            413,
            {"error": "a request may have 100 characters, this one has 101"},
        )
        assert asked.post("/translate", ask(["a"] * 4))[0] == 413
        status, answer = asked.post("/translate", ask("a" * 10_000))
        assert status == 413 and "5488 bytes" in answer["error"]
        assert asked.post("/v2/translate", {"text": "a" * 101, "target_lang": "PT"})[1] == {
            "message": "a request may have 100 characters, this one has 101"
        }
        assert asked.post("/translate", ask())[0] == 200


def test_what_is_no_text_is_refused(models):
    with serving(models=models) as asked:
        kind = {"content_type": "application/json"}
        assert asked.raw("POST", "/translate", b'{"q": "\xff"}', **kind)[:2] == (
            400,
            b'{"error":"the request is not UTF-8 text: byte 7 is 0xff"}',
        )
        for body in (b"{", b"[" * 100_000, b"null", b'"x"', b"[]", b"{}"):
            status, content, _ = asked.raw("POST", "/translate", body, **kind)
            assert status == 400 and json.loads(content)["error"], body
        assert asked.raw("GET", "/nothing")[0] == 404
        assert asked.raw("DELETE", "/translate")[0] == 405
        with socket.create_connection(("127.0.0.1", asked.port)) as flood:
            flood.sendall(b"GET / HTTP/1.1\r\n" + b"x-flood: " + b"y" * 100_000)
            assert flood.recv(100).split()[1] in (b"400", b"431")
        assert asked.post("/translate", ask())[0] == 200


def test_only_who_has_a_key_is_answered(models, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecret\nbounded 120\n")
    with serving(models=models, keys=str(keys)) as asked:
        assert asked.post("/translate", ask()) == (403, {"error": "a key is needed"})
        assert asked.post("/translate", ask(), authorization="Bearer wrong")[1] == {"error": "this key is not known"}
        ways = [
            ("/translate", ask(), {"authorization": "Bearer secret"}),
            ("/translate?token=secret", ask(), {}),
            ("/translate", {**ask(), "api_key": "secret"}, {}),
            ("/secret/translate", {"text": "a", "target_lang": "PT"}, {}),
            ("/v2/translate", {"text": "a", "target_lang": "PT"}, {"authorization": "DeepL-Auth-Key secret"}),
        ]
        assert [asked.post(path, body, **headers)[0] for path, body, headers in ways] == [200] * len(ways)
        assert [asked.raw("GET", path)[0] for path in ("/", "/health", "/frontend/settings")] == [200] * 3
        assert asked.raw("GET", "/metrics")[0] == 403
        bounded = {"authorization": "Bearer bounded"}
        asked.post("/translate", ask("a" * 40), **bounded)
        asked.post("/translate", {**ask("a" * 40), "target": "xx"}, **bounded)  # which is refused, and takes nothing
        usage = asked.get("/v2/usage", **bounded)[1]  # two characters come back each second
        assert 20 <= usage["character_count"] <= 40 and usage["character_limit"] == 120
        assert asked.post("/translate", ask(["b" * 40, "c" * 39]), **bounded)[0] == 200
        status, _, headers = asked.raw("POST", "/translate", ask("a" * 100), **bounded)
        assert status == 429 and 1 <= int(headers["retry-after"]) <= 60
        assert asked.post("/translate", ask("a" * 121), **bounded)[0] == 413
        unbounded = asked.get("/v2/usage", authorization="Bearer secret")[1]
        assert unbounded["character_count"] == 2 * len("Good morning.") + len("Good morning.") + 2


def test_a_process_gives_back_its_share_of_a_quota(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fastattn.serve.gate.time.monotonic", lambda: now[0])
    quota = KeyQuota(120, 1 / 4)
    quota.take(120)
    for wait, characters in ((1, 1), (0, 1)):
        now[0] += wait
        with pytest.raises(Refusal, match="again in"):
            quota.take(characters)
    now[0] += 1
    quota.take(1)
    with pytest.raises(Refusal, match="may have 120 characters a minute, the request has 121"):
        quota.take(121)


def test_senders_without_a_key_leave_places_to_those_with_one(models, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with serving(models=models, keys=str(keys), requests=4) as asked:
        held = socket.create_connection(("127.0.0.1", asked.port))
        held.sendall(b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n")
        time.sleep(0.1)
        assert asked.post("/translate", {**ask(), "api_key": "secret"})[0] == 429
        assert asked.post("/translate", ask(), authorization="Bearer secret")[0] == 200
        held.close()
        time.sleep(0.1)
        assert asked.post("/translate", {**ask(), "api_key": "secret"})[0] == 200


def test_keys_are_read_strictly(tmp_path):
    path = tmp_path / "keys"
    for text, message in (
        ("", "has no key"),
        ("a b", "line 1: expected a key"),
        ("a 1 2", "line 1: expected"),
        ("a -1", "line 1: expected"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_keys(str(path))
    path.write_text("one\n\n# two\nthree 5\n")
    assert read_keys(str(path)) == {b"one": 0, b"three": 5}


def test_too_many_at_once_are_told_when_to_come_again(models):
    with serving(models=models, requests=1) as asked:
        held = socket.create_connection(("127.0.0.1", asked.port))
        held.sendall(b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n")
        time.sleep(0.1)
        status, _, headers = asked.raw("POST", "/translate", ask())
        assert (status, headers["retry-after"]) == (429, "1")
        assert asked.raw("GET", "/health")[0] == 200
        held.close()
        time.sleep(0.1)
        assert asked.post("/translate", ask())[0] == 200


def test_a_slow_sender_and_a_slow_answer_have_a_clock(models):
    with serving(models=models, timeout=0.15, characters=10**6) as asked:
        slow = socket.create_connection(("127.0.0.1", asked.port))
        slow.sendall(b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
        assert b" 408 " in slow.recv(1000)
        slow.close()
        assert asked.post("/translate", ask(LONG * 20))[0] == 504


def test_the_clock_of_a_request_runs_once(models):
    with serving(models=models, timeout=0.8, characters=10**7) as asked:
        body, begun = json.dumps(ask(LONG * 300)).encode(), time.perf_counter()
        with socket.create_connection(("127.0.0.1", asked.port)) as slow:
            slow.sendall(b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n")
            slow.sendall(b"content-length: %d\r\n\r\n" % len(body))
            time.sleep(0.6)
            slow.sendall(body)
            assert b" 504 " in slow.recv(1000)
        assert time.perf_counter() - begun < 1.3


def test_a_head_has_a_clock_too(models, monkeypatch):
    monkeypatch.setattr("fastattn.serve.server.HEAD_SECONDS", 0.2)
    with serving(models=models) as asked:
        with socket.create_connection(("127.0.0.1", asked.port)) as slow:
            slow.sendall(b"GET /health HTTP/1.1\r\nhost:")
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ") and slow.recv(100) == b""
        with socket.create_connection(("127.0.0.1", asked.port)) as kept:  # also of a second request
            kept.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b" 200 " in kept.recv(1000)
            kept.sendall(b"GET /hea")
            while part := kept.recv(1000):
                last = part
            assert last.startswith(b"HTTP/1.1 408 ")
        slow_answer = asked.post("/translate", ask(LONG * 5))
        assert slow_answer[0] == 200


def test_a_client_that_goes_away_ends_its_work(models, capfd):
    with serving(models=models, characters=10**7) as asked:
        body = json.dumps(ask(LONG * 200)).encode()
        gone = socket.create_connection(("127.0.0.1", asked.port))
        gone.sendall(b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n")
        gone.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.3)
        gone.close()
        begun = time.perf_counter()
        assert asked.post("/translate", ask())[0] == 200
        for _ in range(100):
            if " 499" in (said := capfd.readouterr().err.replace('"status":', "")):
                break
            time.sleep(0.02)
        assert "499" in said and time.perf_counter() - begun < 10


def test_the_log_has_a_line_a_request_and_no_text(models, capfd):
    with serving(models=models) as asked:
        asked.raw("POST", "/translate", ask("Nobody reads this."), x_request_id="mine-1")
        _, _, headers = asked.raw("POST", "/translate", ask(), x_request_id="not\tone")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(one["id"], one["path"], one["status"]) for one in lines][0] == ("mine-1", "/translate", 200)
    assert headers["x-request-id"] == lines[1]["id"] != "not\tone" and "Nobody" not in str(lines)
    with serving(models=models, log_texts=True) as asked:
        asked.post("/translate", ask("Somebody reads this."))
    assert "Somebody" in capfd.readouterr().err


def test_browsers_ask_from_origins_that_were_named_alone(models):
    for origins, allowed in (((), None), (("https://a.example",), "https://a.example")):
        with serving(models=models, origins=origins) as asked:
            _, _, headers = asked.raw("POST", "/translate", ask(), origin="https://a.example")
            assert headers.get("access-control-allow-origin") == allowed


def test_metrics_count_by_route_and_status(models):
    with serving(models=models) as asked:
        asked.post("/translate", ask())
        asked.raw("GET", "/unknown")
        text = asked.raw("GET", "/metrics")[1].decode()
    assert 'fastattn_requests_total{path="/translate",status="200"}' in text
    assert 'path="other",status="404"' in text


def test_a_lazy_server_loads_when_asked_and_puts_away(models):
    with serving(models=models, lazy=True, idle=0.2) as asked:
        assert asked.get("/languages")[1][0]["targets"] == ["pt"]
        answers = list[tuple[int, object]]()
        threads = [threading.Thread(target=lambda: answers.append(asked.post("/translate", ask()))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(0.6)
        answers.append(asked.post("/translate", ask()))
        assert [status for status, _ in answers] == [200] * 5 and len({str(answer) for answer in answers}) == 1


def test_a_model_that_is_gone_is_an_answer(models, tmp_path):
    import shutil

    shutil.copytree(models[0][1], tmp_path / "copy")
    with serving(models=(("en-pt", str(tmp_path / "copy")),), lazy=True) as asked:
        shutil.rmtree(tmp_path / "copy")
        status, answer = asked.post("/translate", ask())
        assert status == 503 and answer["error"].startswith("en-pt cannot be loaded:")
