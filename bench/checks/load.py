"""The server under load beside others: three minutes each of 1, 8 and 64 clients."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from bench.checks import Absent, Data, Findings, check, need
from bench.load import SERVE, Server, load, running
from bench.machine import processors
from fastattn.weights import download

CLIENTS = (1, 8, 64)
SECONDS = float(os.environ.get("FASTATTN_LOAD_SECONDS", "180"))
TEXTS, TOGETHER = 240, 4  # every fourth request is a paragraph of so many sentences
SCALE = 5.0  # of the rate of 64 clients and that of one
Ask = tuple[str, Callable[[str], Any]]  # a path, and the body for a text


def mixed(sentences: list[str]) -> list[str]:
    """Short sentences, and paragraphs of several, in an order that has nothing to do with their lengths."""
    texts = sorted(sentences, key=len)[: 3 * TEXTS // 4]
    texts += [" ".join(sentences[at : at + TOGETHER]) for at in range(0, TEXTS * TOGETHER // 4, TOGETHER)]
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def compare(
    findings: Findings, texts: list[str], own: list[str], ask: Ask, peer: str, command: list[str], ask_peer: Ask
) -> None:
    """Both servers in turn, with each number of clients."""
    if shutil.which("wrk") is None:
        raise Absent("apt install wrk")
    with running(own) as server, running(command) as other:
        asked = {"fastattn": (server, requests(server, *ask, texts)), peer: (other, requests(other, *ask_peer, texts))}
        for name, (one, _) in asked.items():
            findings.say(f"{name} {one.memory() / 1e6:.0f} MB idle")
        rates = []
        for clients in CLIENTS:
            ours, theirs = (load(*each, clients, SECONDS) for each in asked.values())
            remark = f"{ours}; {peer} {theirs}, {theirs.failed} errors"
            findings.at_least(f"{clients} clients:", ours.rate / theirs.rate, f"x {peer}", 1.0, remark)
            findings.at_most("p99", ours.p99_ms / theirs.p99_ms, f"of {peer}'s", 1.0)
            findings.at_most("errors", ours.failed, "", 0)
            findings.at_most("answers that differ", ours.different, f"of {ours.compared}", 0)
            rates.append(ours.rate)
    findings.say(f"{CLIENTS[-1]} clients: {rates[-1] / rates[0]:.2f} x one")
    with running([*own, "--processes", str(processors())]) as server:
        asked_of_several = requests(server, *ask, texts)
        one, *_, most = (load(server, asked_of_several, clients, SECONDS) for clients in (CLIENTS[0], CLIENTS[-1]))
        memory = f"{one}; {most}; {server.memory() / 1e6:.0f} MB"
    findings.at_least(f"{processors()} processes, {CLIENTS[-1]} clients:", most.rate / one.rate, "x one", SCALE, memory)


def requests(server: Server, path: str, body: Callable[[str], Any], texts: list[str]) -> list[tuple[str, Any, bytes]]:
    """Each text's request, and the answer that it has alone."""
    return [(path, body(text), server.ask(path, body(text))) for text in texts]


@check(
    "serve-load-firefox",
    "en-pt, fastattn serve beside fxtranslate behind FastAPI, 1, 8 and 64 clients of wrk, sentences and paragraphs: "
    f"ahead at every point, 64 clients at least {SCALE:g} x one, no answer differs from the one given alone",
)
def firefox(findings: Findings, data: Data) -> None:
    need("fxtranslate", "fastapi")
    folder = str(download.resolve("en-pt"))
    plain = [sys.executable, "-m", "bench.plain_server", "fxtranslate", folder, "--port", "{port}"]
    compare(
        findings,
        mixed(data.flores("en")),
        [*SERVE, "-m", "en-pt"],
        ("/translate", lambda text: {"q": text, "source": "en", "target": "pt"}),
        "fxtranslate",
        plain,
        ("/", lambda text: {"texts": [text]}),
    )


@check(
    "serve-load-libretranslate",
    "zh-en, fastattn serve beside LibreTranslate with the same checkpoint, the program that FASTATTN_LIBRETRANSLATE "
    "names: the same",
)
def libretranslate(findings: Findings, data: Data) -> None:
    program = os.environ.get("FASTATTN_LIBRETRANSLATE") or shutil.which("libretranslate")
    if not program:
        raise Absent("libretranslate, the package of that name")
    ask = ("/translate", lambda text: {"q": text, "source": "zh", "target": "en"})
    command = [program, "--host", "127.0.0.1", "--port", "{port}", "--disable-web-ui", "--threads", "8"]
    compare(findings, mixed(data.flores("zh")), [*SERVE, "-m", "zh-en"], ask, "LibreTranslate", command, ask)


@check(
    "serve-load-vectors",
    "minilm, fastattn serve beside sentence-transformers behind FastAPI: the same",
)
def vectors(findings: Findings, data: Data) -> None:
    need("sentence_transformers", "fastapi")
    folder = str(download.resolve("minilm"))
    plain = [sys.executable, "-m", "bench.plain_server", "sentence-transformers", folder, "--port", "{port}"]
    compare(
        findings,
        mixed(data.flores("en")),
        [*SERVE, "-m", "minilm"],
        ("/embed", lambda text: {"inputs": [text]}),
        "sentence-transformers",
        plain,
        ("/", lambda text: {"texts": [text]}),
    )
