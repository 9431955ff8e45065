"""Prompts: read once where they begin alike, in chunks between others' steps, and what is kept of them."""

import numpy as np
import pytest

from fastattn.decoding import jobs, worker
from fastattn.decoding import prompts as prompts_module
from fastattn.errors import InputError
from fastattn.layers import key_value_cache
from fastattn.ops import reference
from fastattn.ops.row_pool import RowPool
from tests.generation.language_models import make

PROMPTS = ["the end", "an apple and the", "é", "x", "another thing and the other"]


def test_beginnings_are_read_once(monkeypatch):
    read = []
    real = prompts_module.read_chunk

    def spied(model, cache, prompts, most):
        before = sum(prompt.left for prompt in prompts)
        hidden_BD = real(model, cache, prompts, most)
        read.append(before - sum(prompt.left for prompt in prompts))
        return hidden_BD

    monkeypatch.setattr(prompts_module, "read_chunk", spied)
    generator, system = make(), "This is what all of them begin with, a system prompt of some length. "
    shared = len(generator._tokenizer.encode([system], True)[0])
    generator.generate([system + prompt for prompt in PROMPTS], max_new_tokens=3)
    together = sum(read)
    whole = sum(len(ids) for ids in generator._tokenizer.encode([system + prompt for prompt in PROMPTS], True))
    assert together <= whole - 4 * (shared - 2)
    read.clear()
    first = generator.generate(f"{system}Who?", max_new_tokens=8, details=True)
    assert sum(read) < 10
    read.clear()  # a conversation goes on: the answer has been read too
    ids = generator._tokenizer.encode([f"{system}Who?"], True)[0].tolist()
    generator.generate([*ids, *first.tokens, 5, 6], max_new_tokens=1)
    assert sum(read) <= 4


def test_a_cache_of_int8_has_the_same_bits_whatever_is_shared():
    def answers(generator, prompts):
        generator._service.model.cache_in("int8")
        found = generator.generate(prompts, max_new_tokens=6, details=True, return_log_probs=True)
        return [(one.tokens, one.log_probs.tolist()) for one in found]

    prompts = ["This is what all of them begin with: " + prompt for prompt in PROMPTS]
    together = make()
    expected = answers(together, prompts)
    assert answers(together, prompts) == expected  # of what is kept
    assert [answers(make(threads=1), [prompt])[0] for prompt in prompts] == expected
    oracle = answers(make(ops=reference), prompts[:2])
    exact = make().generate(prompts[:2], max_new_tokens=6, details=True, return_log_probs=True)
    for found, near, other in zip(expected, oracle, exact):
        np.testing.assert_allclose(found[1][:1], near[1][:1], atol=1e-4)
        assert 0 < np.abs(found[1][0] - other.log_probs[0]) < 0.1
    with pytest.raises(InputError, match="unknown cache_precision 'int4'; known: auto, float32, bfloat16, int8"):
        together._service.model.cache_in("int4")


def test_what_is_kept_is_bounded_by_age(monkeypatch):
    row = 2 * 2 * 2 * 6 * 4  # bytes: two layers' keys and values, of two heads
    monkeypatch.setattr(key_value_cache, "KEPT_BYTES", 100 * row)
    generator = make()
    for n in range(12):
        generator.generate(f"{n} {'word ' * 5}", max_new_tokens=3)
        ((cache, _),) = generator._service._make_worker.keywords["left"]
        assert 0 < cache.kept_rows <= 100
        used = cache.target.rows - cache.target.free
        assert used == cache.kept_rows == int((cache._holders_M > 0).sum())
    kept = [generator._tokenizer.decode(one.tokens_T.tolist()) for one in cache._kept]
    assert kept[-1].startswith("11 word") and not any(text.startswith("0 word") for text in kept)


def test_a_long_prompt_never_stops_others(monkeypatch):
    events = []
    read, step = prompts_module.read_chunk, worker.DecodingWorker._step
    monkeypatch.setattr(prompts_module, "MOST_CHUNK", 4)
    monkeypatch.setattr(prompts_module, "read_chunk", lambda *given: events.append(given[-1]) or read(*given))
    monkeypatch.setattr(worker.DecodingWorker, "_step", lambda self: events.append("step") or step(self))
    generator, long = make(end_ids=()), [2 + n % 250 for n in range(160)]
    generator.generate([[5, 6, 7], long], max_new_tokens=60, callback=lambda step: None)  # a step at a time
    chunks = [n for n, event in enumerate(events) if event != "step"]
    assert len(chunks) >= 40 and max(events[n] for n in chunks) == 4
    assert all(events[n + 1] == "step" for n in chunks[1:])  # after the first, of both
    assert prompts_module.fair_shares([200, 3, 10], 32) == [19, 3, 10]
    assert prompts_module.fair_shares([5, 5], 3) == [2, 1]


def test_a_prompt_that_fills_the_room_keeps_nobody_out(monkeypatch):
    monkeypatch.setattr(jobs, "TOKENS", 300)
    generator = make(end_ids=())
    long = generator.submit([5] * 1000, max_new_tokens=1_000_000, caller="one")
    short = generator.submit("the", max_new_tokens=3, details=True, caller="other").result(timeout=120)
    assert len(short.tokens) == 3 and not long.done()
    assert long.cancel()


def test_cancelled_prompts_leave_no_rows(monkeypatch):
    monkeypatch.setattr(prompts_module, "MOST_CHUNK", 4)
    generator = make(end_ids=())
    for prompt in ([5] * 3000, [5] * 40, [6] * 40):
        stream = generator.stream(prompt, max_new_tokens=100_000)
        if len(prompt) < 3000:
            next(stream)
        else:
            generator.submit(prompt, max_new_tokens=10).cancel()
        stream.close()
    expected = generator.generate(["the", [5] * 50], max_new_tokens=5)
    assert expected == make(end_ids=()).generate(["the", [5] * 50], max_new_tokens=5)
    ((cache, _),) = generator._service._make_worker.keywords["left"]
    assert cache.target.rows - cache.target.free == cache.kept_rows
    assert not cache._held


def test_a_pool_of_kept_rows_stays_where_it_is(monkeypatch):
    copied, real = [], RowPool.keep_only
    monkeypatch.setattr(RowPool, "keep_only", lambda self, *given: copied.append(1) or real(self, *given))
    generator = make()
    for n in range(20):
        generator.generate([2 + (7 * n + i * i) % 200 for i in range(100)], max_new_tokens=10)
    assert len(copied) <= 2


def test_the_first_tokens_of_a_prompt_over_the_bound_are_kept(monkeypatch):
    monkeypatch.setattr(key_value_cache, "KEPT_BYTES", 100 * 2 * 2 * 2 * 6 * 4)
    generator = make()
    generator.generate([5] * 250, max_new_tokens=3)
    ((cache, _),) = generator._service._make_worker.keywords["left"]
    assert cache.kept_rows == 100 == cache.target.rows - cache.target.free
