"""``fastattn generate``: what it writes, and how it fails."""

import json
import math
from pathlib import Path

import pytest

from fastattn.generation.generator import Generator
from fastattn.generation.prompts import Conversations
from fastattn.spec.text_spec import GeneratorText
from fastattn.system.files import one_line
from tests.cli.commands import fail, refuse, succeed
from tests.generation.language_models import make

PROMPTS = ["the end", "an é", "x"]
SIX = ("--max-new-tokens", 6)


@pytest.fixture(scope="module")
def made() -> Generator:
    return make(max_length=40)


@pytest.fixture
def generator(made: Generator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator:
    """A random language model, which the command gets for the folder "any"."""
    (tmp_path / "any").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastattn.generation.generator.Generator", lambda name, **options: made)
    return made


def test_one_prompt_and_several(generator: Generator, tmp_path: Path) -> None:
    answers = generator.generate(PROMPTS, max_new_tokens=6)
    for prompt, answer in zip(PROMPTS, answers):
        for stdin in (prompt, prompt + "\n"):
            assert succeed("generate", "-m", "any", *SIX, stdin=stdin.encode()) == answer + "\n"
        assert succeed("generate", "-m", "any", *SIX, prompt) == answer + "\n"
    lines = [one_line(answer) for answer in answers]
    assert succeed("generate", "-m", "any", *SIX, *PROMPTS).split("\n") == [*lines, ""]
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    assert succeed("generate", "-m", "any", *SIX, "-i", "prompts.txt", "--lines", "-o", "answers.txt") == ""
    assert (tmp_path / "answers.txt").read_bytes().decode() == "\n".join([*lines, ""])
    whole = generator.generate("\n".join(PROMPTS), max_new_tokens=6)
    assert succeed("generate", "-m", "any", *SIX, "-i", "prompts.txt") == whole + "\n"
    assert succeed("generate", "-m", "any", *SIX, "--lines", stdin=b"") == ""
    assert fail(2, "generate", "-m", "any", stdin=b"\xff").startswith("standard input, line 1: not UTF-8")


def test_the_n_best(generator: Generator) -> None:
    found = generator.generate("x", max_new_tokens=6, beam_size=3, num_hypotheses=3, details=True)
    lines = succeed("generate", "-m", "any", *SIX, "-n", 3, "x").split("\n")
    assert lines == [one_line(one.text) for one in (found, *found.alternatives)] + [""]


def test_json_lines(generator: Generator) -> None:
    written = succeed("generate", "-m", "any", *SIX, "--json", "--log-probs", "-b", 2, "-n", 2, *PROMPTS)
    options = {"max_new_tokens": 6, "beam_size": 2, "num_hypotheses": 2, "details": True, "return_log_probs": True}
    for prompt, line, found in zip(PROMPTS, written.splitlines(), generator.generate(PROMPTS, **options), strict=True):
        record = json.loads(line)
        assert (record["prompt"], record["text"], record["tokens"]) == (prompt, found.text, found.tokens)
        assert (record["finish_reason"], record["prompt_length"]) == (found.finish_reason, found.prompt_length)
        assert record["log_probs"] == found.log_probs.tolist() and math.isclose(record["score"], found.score)
        assert [one["tokens"] for one in record["alternatives"]] == [one.tokens for one in found.alternatives]
    assert "log_probs" not in succeed("generate", "-m", "any", *SIX, "--json", "x")


def test_scores(generator: Generator) -> None:
    expected = generator.score(PROMPTS)
    written = succeed("generate", "-m", "any", "--score", *PROMPTS).splitlines()
    assert written == [f"{one.perplexity:.4f}\t{prompt}" for one, prompt in zip(expected, PROMPTS)]
    written = succeed("generate", "-m", "any", "--score", "--json", *PROMPTS).splitlines()
    for one, record in zip(expected, map(json.loads, written), strict=True):
        assert (record["tokens"], record["log_probs"]) == (one.tokens, one.log_probs.tolist())
        assert math.isclose(record["perplexity"], one.perplexity)
    assert json.loads(succeed("generate", "-m", "any", "--score", "--json", ""))["perplexity"] is None


def test_a_timeout(generator: Generator) -> None:
    refuse(5, "generate", "-m", "any", "--timeout", "1e-9", "x")


def test_chats(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    chats = Conversations(GeneratorText(b"", chat_template="{{ messages|map(attribute='content')|join(' ') }}:"))
    monkeypatch.setattr(generator, "_conversations", chats)
    alone = generator.generate(["x:", "an é x:"], special_tokens=False, max_new_tokens=6)
    assert succeed("generate", "-m", "any", *SIX, "--chat", "x") == alone[0] + "\n"
    assert succeed("generate", "-m", "any", *SIX, "--chat", "--system", "an é", "x") == alone[1] + "\n"
    record = json.loads(succeed("generate", "-m", "any", *SIX, "--chat", "--json", "x"))
    assert (record["prompt"], record["text"]) == ("x", alone[0])
