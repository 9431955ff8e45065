"""Generator: answers beside the step-by-step formula, the same bits in any company, streams, stop strings, contexts."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

import fastattn
from fastattn.decoding import prompts as prompts_module
from fastattn.decoding import worker
from fastattn.decoding.recorded_layers import RecordedLayers
from fastattn.decoding.search import TokenChoice
from fastattn.errors import CheckpointError, InputError
from fastattn.generation.calls import LONGEST_STOP, MOST_STOPS
from fastattn.generation.generator import Generator
from fastattn.generation.text import AnswerText, GeneratorTokenizer, TextStream
from fastattn.layers import key_value_cache
from fastattn.models.kinds import build_model
from fastattn.ops import cpu, reference
from fastattn.ops.row_pool import RowPool
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.architecture import LocalSpec, PositionSpec
from fastattn.spec.text_spec import GeneratorText, SearchRules
from tests.decoding.searching import calls_of_layers
from tests.generation.language_models import END, SPEC, START, VOCABULARY, checkpoint, make, with_stack
from tests.messages import refused

PROMPTS = ["the end", "an apple and the", "é", "x", "another thing and the other"]
STACKS = {
    "rotary": SPEC,
    "windows": with_stack(local=LocalSpec((0,), before=3, after=0)),
    "positions": with_stack(positions=PositionSpec("table", limit=64)),
}


@pytest.fixture(scope="module")
def generator():
    return make()


def answers(generator, prompts, **options):
    return list(map(told, generator.generate(prompts, details=True, **options)))


@pytest.mark.parametrize("stack", STACKS)
def test_greedy_search_takes_the_formulas_best(stack):
    given = checkpoint(stack=STACKS[stack])
    generator = fastattn.Generator.from_checkpoint(given, "float32")
    for prompt in PROMPTS:
        ids = ids_of(generator, prompt)
        expected = list(ids)
        while len(expected) < len(ids) + 12 and END not in expected:
            expected.append(int(log_probs_of(given, expected)[-1].argmax()))
        ended = expected[-1] == END
        found = generator.generate(prompt, details=True, max_new_tokens=12, return_log_probs=True)
        assert ids[0] == START and found.tokens == expected[len(ids) : len(expected) - ended]
        assert (found.finish_reason, found.prompt_length) == ("stop" if ended else "length", len(ids))
        log_probs_TV = log_probs_of(given, expected[:-1])[len(ids) - 1 :]
        chosen_T = log_probs_TV[np.arange(len(log_probs_TV)), expected[len(ids) :]]
        np.testing.assert_allclose(found.log_probs, chosen_T[: len(found.tokens)], atol=1e-4)
        assert abs(found.score - chosen_T.mean()) < 1e-4
        assert found.text == generator._tokenizer.decode(found.tokens)


OPTIONS = {
    "greedy": {},
    "beam": {"beam_size": 3, "num_hypotheses": 2},
    "samples": {"sampling_temperature": 0.9, "sampling_minp": 0.01, "seed": 5, "num_hypotheses": 3},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.25},
    "stopped": {"stop": ["the", "\x00"], "no_repeat_ngram_size": 3},
}


LISTED = OPTIONS | {"few": {"sampling_topk": 3, "seed": 6}}


@pytest.mark.parametrize("name", LISTED)
def test_the_most_probable_tokens_in_the_place_of_each(generator, name, monkeypatch):
    """They change nothing else; a token that was chosen has its own log-probability among them."""
    options = LISTED[name] | {"max_new_tokens": 12, "return_log_probs": True, "details": True}
    plain, steps = generator.generate(PROMPTS, **options), []
    choose = TokenChoice.best
    monkeypatch.setattr(TokenChoice, "best", lambda *given, **named: steps.append(given) or choose(*given, **named))
    found = generator.generate(PROMPTS, top_log_probs=4, **options)
    assert list(map(told, found)) == list(map(told, plain)) and not plain[0].top_log_probs
    assert len(steps) <= 13
    for prompt, best in zip(PROMPTS, found):
        ids = ids_of(generator, prompt)
        for one in ranked(best):
            assert [len(top) for top in one.top_log_probs] == [4] * len(one.tokens)
            log_probs_TV = log_probs_of(checkpoint(), [*ids, *one.tokens])[len(ids) - 1 :]
            for token, log_prob, top, all_V in zip(one.tokens, one.log_probs, one.top_log_probs, log_probs_TV):
                assert top.get(token, log_prob) == log_prob
                assert [*top.values()] == pytest.approx(sorted(top.values(), reverse=True), abs=1e-5)
                if name in ("greedy", "beam", "samples", "few"):
                    assert {*top} == {*np.argsort(-all_V)[:4].tolist()}
                    np.testing.assert_allclose([*top.values()], all_V[[*top]], atol=1e-4)
                if name in ("greedy", "penalties", "stopped"):
                    assert next(iter(top)) == token


def test_beams_with_log_probabilities_share_steps_with_others(monkeypatch):
    failed, real = [], Scheduler._isolate
    monkeypatch.setattr(Scheduler, "_isolate", lambda self, *given: failed.append(given) or real(self, *given))
    generator, options = make(end_ids=()), {"beam_size": 3, "max_new_tokens": 60, "details": True}
    asked = [generator.submit(text, caller=n, return_log_probs=n > 1, **options) for n, text in enumerate(PROMPTS)]
    assert [len(one.result().tokens) for one in asked] == [60] * len(PROMPTS) and not failed


def test_lists_and_biases_are_each_requests_own():
    generator, cases = make(end_ids=()), [{"top_log_probs": n} for n in (0, 2, 4)]
    cases += [{"logit_bias": {token: 100}} for token in (77, 78)]
    options = {"max_new_tokens": 60, "details": True, "return_log_probs": True}
    asked = [generator.submit("the", caller=n, **options, **case) for n, case in enumerate(cases)]
    found = [one.result() for one in asked]
    assert list(map(told, found)) == [told(generator.generate("the", **options, **case)) for case in cases]
    assert [{*map(len, one.top_log_probs)} for one in found] == [set(), {2}, {4}, set(), set()]


@pytest.mark.parametrize("name", OPTIONS)
def test_company_chunks_threads_and_beginnings_change_no_bit(name, monkeypatch):
    precision = ("float32", "int8")[list(OPTIONS).index(name) % 2]
    options = OPTIONS[name] | {"max_new_tokens": 15, "return_log_probs": True}
    prompts = [*PROMPTS, *(f"{PROMPTS[4]} {PROMPTS[1]} {prompt} {'and ' * n}" for n, prompt in enumerate(PROMPTS))]
    alone = [answers(make(precision), [prompt], **options)[0] for prompt in prompts]
    for threads in (1, 2):
        generator = make(precision, threads)
        assert answers(generator, prompts, **options) == alone
        assert answers(generator, prompts[::-1], **options) == alone[::-1]  # with what is kept now
    monkeypatch.setattr(prompts_module, "LEAST_CHUNK", 3)
    monkeypatch.setattr(prompts_module, "MOST_CHUNK", 5)
    assert answers(make(precision), prompts, **options) == alone


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, VOCABULARY - 1), min_size=1, max_size=30), st.data())
def test_pieces_of_a_stream_sum_up_to_the_text(generator, ids, data):
    tokenizer = generator._tokenizer
    prompt = np.array(data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6)), np.int32)
    whole = tokenizer.decode(ids)
    strings = []
    if whole and data.draw(st.booleans()):
        first = data.draw(st.integers(0, len(whole) - 1))
        strings = [whole[first : first + data.draw(st.integers(1, 4))], "never"]
    answer = AnswerText(tokenizer, prompt, strings)
    used = list(ids)
    for n in range(1, len(ids) + 1):
        if answer.stop and answer.stop.is_end(ids[max(0, n - answer.stop.window) : n]):
            used = ids[:n]
            break
    stream = TextStream(answer)
    pieces = [stream.add(token) for token in used]
    text, _ = answer.text(used)
    assert "".join([*pieces, stream.end()]) == text
    assert not any(piece.endswith("\N{REPLACEMENT CHARACTER}") for piece in pieces) or strings
    assert not any(string in text for string in strings if "\N{REPLACEMENT CHARACTER}" not in string)


def test_a_stream_is_the_answer(generator):
    for options in ({}, {"sampling_temperature": 1.0, "seed": 3}, {"stop": "e"}, {"end_token": 40}):
        for prompt in PROMPTS:
            text = generator.generate(prompt, max_new_tokens=20, **options)
            assert "".join(generator.stream(prompt, max_new_tokens=20, **options)) == text
            if "stop" not in options:  # all of it is the beginning of a stop string
                assert "".join(generator.stream(prompt, max_new_tokens=20, stop=text + "!", **options)) == text


def test_a_stop_string_ends_an_answer_across_tokens():
    generator, given = make(seed=4, end_ids=()), {"max_new_tokens": 40, "sampling_temperature": 2.0, "seed": 1}
    whole = generator.generate("the", details=True, **given)
    text = generator._tokenizer.decode(whole.tokens)
    place = next(n for n in range(5, len(text)) if text[n : n + 3].isascii() and text.find(text[n : n + 3]) == n)
    found = generator.generate("the", details=True, stop=["nowhere", text[place : place + 3]], **given)
    assert (found.text, found.finish_reason) == (text[:place], "stop")
    assert 1 <= len(found.tokens) < len(whole.tokens) and found.tokens == whole.tokens[: len(found.tokens)]


def test_the_n_best_of_a_beam(generator):
    prompt, options = ids_of(generator, "the"), {"details": True, "beam_size": 4, "num_hypotheses": 4}
    found = generator.generate("the", max_new_tokens=6, length_penalty=0, return_log_probs=True, **options)
    assert len({tuple(one.tokens) for one in ranked(found)}) == 4 and not found.alternatives[0].alternatives
    assert [one.score for one in ranked(found)] == sorted((one.score for one in ranked(found)), reverse=True)
    scored = generator.score([[*prompt, *found.tokens]])[0].log_probs[len(prompt) - 1 :]
    np.testing.assert_allclose(found.log_probs, scored, atol=1e-5)


PENALTIES = {"repetition_penalty": 1.4, "presence_penalty": 0.6, "frequency_penalty": 0.3}
BIAS = {"logit_bias": {token: 2.5 if token % 2 else -1.5 for token in range(40, VOCABULARY)}}


@pytest.mark.parametrize("chosen", [
    *({name: value} for name, value in PENALTIES.items()), PENALTIES, BIAS, PENALTIES | BIAS,
    BIAS | {"no_repeat_ngram_size": 1},
])  # fmt: skip
def test_penalties_by_the_formula(chosen):
    """One step at a time, on logits of the reference operations: vLLM's order, transformers' look at the prompt."""
    given = checkpoint(seed=2, sharp=2, end_ids=())
    generator = fastattn.Generator.from_checkpoint(given, "float32")
    ids = ids_of(generator, "the other and")
    found = generator.generate("the other and", details=True, max_new_tokens=12, **chosen)
    for n, token in enumerate(found.tokens):
        past, made = [*ids, *found.tokens[:n]], np.array(found.tokens[:n], np.int64)
        logits_V, seen = logits_of(given, past), np.unique(past)
        logits_V[[*chosen.get("logit_bias", {})]] += [*chosen.get("logit_bias", {}).values()]
        factor = chosen.get("repetition_penalty", 1.0)
        logits_V[seen] = np.where(logits_V[seen] < 0, logits_V[seen] * factor, logits_V[seen] / factor)
        count_V = np.bincount(made, minlength=VOCABULARY)
        logits_V[seen[: len(seen) * chosen.get("no_repeat_ngram_size", 0)]] = -np.inf
        logits_V -= chosen.get("presence_penalty", 0) * (count_V > 0) + chosen.get("frequency_penalty", 0) * count_V
        assert logits_V.max() - logits_V[token] < 1e-4


@pytest.mark.parametrize("options", [
    {}, {"beam_size": 3}, {"sampling_temperature": 1.0}, {"stop": "nowhere"}, {"speculate": "prompt"}, {"rules": True},
    {"rules": True, "repetition_penalty": 1.1},
])  # fmt: skip
def test_a_bias_of_a_hundred_leaves_one_token(options, monkeypatch):
    monkeypatch.setattr("fastattn.decoding.search.edit_top_k", None)  # would compare each candidate with each bias
    rules = {"rules": SearchRules(), "beam_size": 3} if "rules" in options else {}
    options = {name: value for name, value in options.items() if name != "rules"}
    given = {"max_new_tokens": 9, "details": True, **options}
    assert make(**rules).generate("the", logit_bias={77: 100}, **given).tokens == [77] * 9
    assert 77 not in make(**rules).generate("the", logit_bias={77: -100}, **given).tokens


def hidden_of(given, ids):
    """(the model, the hidden states of a whole sequence) by the reference operations."""
    model = build_model(given, reference)
    return model, model.prefill(np.array(ids, np.int32), np.array([0, len(ids)]))[0]


def log_probs_of(given, ids):
    """float64 [T, V] of the token behind each."""
    model, hidden_TD = hidden_of(given, ids)
    return model.output.all_log_probs(hidden_TD)


def logits_of(given, ids):
    """float64 [V] of the token behind the last."""
    hidden_D = np.asarray(hidden_of(given, ids)[1][-1], np.float64)
    return hidden_D @ np.asarray(given.tensors["decoder.projection.weight"], np.float64).T


def ids_of(generator, text, special=True):
    return generator._tokenizer.encode([text], special)[0].tolist()


def test_scores_are_sums_of_log_softmax(generator):
    given = checkpoint()
    found = generator.score(PROMPTS, top_log_probs=4)
    for prompt, one in zip(PROMPTS, found):
        ids = ids_of(generator, prompt)
        log_probs_TV = log_probs_of(given, ids[:-1])
        expected_T = log_probs_TV[np.arange(len(ids) - 1), ids[1:]]
        assert one.tokens == ids and generator.score(prompt).log_probs.tolist() == one.log_probs.tolist()
        for token, log_prob, top, all_V in zip(ids[1:], one.log_probs.tolist(), one.top_log_probs, log_probs_TV):
            assert top.get(token, log_prob) == log_prob and [*top] == np.argsort(-all_V)[:4].tolist()
            np.testing.assert_allclose([*top.values()], all_V[[*top]], atol=1e-4)
        assert len(one.top_log_probs) == len(ids) - 1
        np.testing.assert_allclose(one.log_probs, expected_T, atol=1e-4)
        assert one.perplexity == pytest.approx(np.exp(-expected_T.mean()), rel=1e-4)
    assert np.isnan(generator.score([START]).perplexity) and np.isnan(make(adds_start=False).score("").perplexity)
    greedy = generator.generate("the", details=True, max_new_tokens=9, return_log_probs=True)
    prompt = ids_of(generator, "the")
    again = generator.score([*prompt, *greedy.tokens]).log_probs[len(prompt) - 1 :]
    np.testing.assert_allclose(again, greedy.log_probs, atol=2e-6)  # summed up and taken apart there


def test_several_and_ids_and_special_tokens(generator):
    ids = generator._tokenizer.encode(["the end"], True)[0]
    text = generator.generate("the end", max_new_tokens=5)
    for same in (ids, ids.tolist(), tuple(ids.tolist())):
        assert generator.generate(same, max_new_tokens=5) == text
    assert generator.generate([ids.tolist(), "the end"], max_new_tokens=5) == [text, text]
    assert generator.generate("<s>the end", special_tokens=False, max_new_tokens=5) == text
    assert generator.generate([]) == []


def test_the_other_ways_to_ask(generator):
    expected = generator.generate(PROMPTS, max_new_tokens=6)
    assert generator.submit(PROMPTS, max_new_tokens=6).result() == expected
    assert asyncio.run(generator.generate_async(PROMPTS, max_new_tokens=6)) == expected
    assert list(generator.generate_iter(iter(PROMPTS), max_new_tokens=6)) == expected
    mixed = list(generator.generate_iter(["the end", 5], max_new_tokens=6, return_exceptions=True))
    assert mixed[0] == expected[0] and isinstance(mixed[1], InputError)
    with refused(InputError, "prompt 1"):
        list(generator.generate_iter(["the end", 5]))
    one = generator.generate("x", max_new_tokens=9, callback=lambda step: step.position == 1, details=True)
    assert len(one.tokens) <= 2 and one.finish_reason == "stop"


def test_prompts_keep_their_numbers_over_windows(generator, monkeypatch):
    monkeypatch.setattr("fastattn.decoding.worker.FIRST_WINDOW", 6)
    numbers, prompts = [], ["the end", 5, "an", "x", "the", "é"] * 3
    options = {"max_new_tokens": 1, "return_exceptions": True}
    found = generator.generate_iter(prompts, callback=lambda step: numbers.append(step.sentence), **options)
    assert [isinstance(one, InputError) for one in found] == [prompt == 5 for prompt in prompts]
    assert sorted(numbers) == [n for n, prompt in enumerate(prompts) if prompt != 5]


def test_streams_share_steps_and_can_be_left(generator):
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        found = pool.map(lambda prompt: "".join(generator.stream(prompt, max_new_tokens=12)), PROMPTS)
        assert [*found] == generator.generate(PROMPTS, max_new_tokens=12)
    stream = make(end_ids=()).stream("the", max_new_tokens=100_000)
    next(stream)
    stream.close()
    assert make(end_ids=()).submit("the", max_new_tokens=1_000_000).cancel()


WRONG = {
    "prompts": [[5.0], [[1, VOCABULARY]], [[]]],
    "max_length": [5],
    "max_decoding_length": [5],
    "max_new_tokens": [0],
    "sampling_minp": [2],
    "presence_penalty": [1e9],
    "stop": [[""], "x" * (LONGEST_STOP + 1), ["x"] * (MOST_STOPS + 1), 5],
    "context": ["slide"],
    "return_log_probs": [True],
    "top_log_probs": [3, -1, True, "3", 101],
    "logit_bias": [[5], {VOCABULARY: 1}, {-1: 1}, {"5": 1}, {5: float("nan")}, {5: 1e6}, {5: "1"}, {5: 10**400}],
    "special_tokens": [1],
    "end_token": ["nowhere"],
    "suppress_sequences": [[5]],
}
TOGETHER = [
    {"min_new_tokens": 5, "max_new_tokens": 4},
    {"num_hypotheses": 2, "beam_size": 2},
    {"sampling_temperature": 2.0, "sampling_topk": 0, "beam_size": 2},
]


def test_wrong_arguments(generator):
    cases = [{name: value} for name, values in WRONG.items() for value in values]
    for arguments in (*cases, *TOGETHER):
        named = "nowhere" if "end_token" in arguments else next(iter(arguments)).partition("_")[0].removesuffix("s")
        with refused(InputError, named):
            generator.generate(**{"prompts": "the"} | arguments)
    assert generator.generate("the", stop=["\0" * LONGEST_STOP] * MOST_STOPS, max_new_tokens=1)


def test_wrong_checkpoints():
    for call, named in (
        (partial(fastattn.Translator.from_checkpoint, checkpoint()), "Generator"),
        (partial(make, end_ids=(VOCABULARY,)), str(VOCABULARY)),
    ):
        with refused(CheckpointError, named):
            call()


def test_ends_of_the_checkpoint(generator):
    first = generator.generate("the", details=True, max_new_tokens=1).tokens
    for ends, options in ((range(VOCABULARY), {}), (first, {"end_token": None})):
        ended = make(end_ids=tuple(ends)).generate("the", details=True, **options)
        assert (ended.text, ended.tokens, ended.finish_reason) == ("", [], "stop")
    least = make(end_ids=tuple(range(200)), seed=3).generate("the", details=True, min_new_tokens=5)
    assert len(least.tokens) >= 5


def told(found):
    """All that an answer says, but for how it was found; of its alternatives too."""
    log_probs = None if found.log_probs is None else found.log_probs.tobytes()
    score = np.array(found.score).tobytes()  # of samples; NaN is itself
    return found.text, found.tokens, score, found.finish_reason, log_probs, list(map(told, found.alternatives))


def ranked(found):
    return [found, *found.alternatives]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_beam_that_ended_goes_on_no_more(seed):
    """Where so many candidates end that too few are left to take their places, and behind several end tokens."""
    rng, given = np.random.default_rng(seed), {"details": True, "beam_size": 4, "num_hypotheses": 4}
    generator = make(seed=seed)
    for patience in (1.0, 2.0) * 3:
        strings = [chr(c) for c in rng.choice(np.arange(32, 127), 60, replace=False)]
        options = given | {"max_new_tokens": 12, "return_log_probs": True, "stop": strings, "patience": patience}
        for one in ranked(generator.generate("the end", **options)):
            assert np.isfinite(one.score)
            assert not any(string in generator._tokenizer.decode(one.tokens[:-1]) for string in strings)
    ends = tuple(rng.choice(np.arange(2, 250), 150, replace=False).tolist())
    for one in ranked(make(seed=seed, end_ids=ends).generate("the end", max_new_tokens=12, **given)):
        assert not set(one.tokens) & set(ends)


@pytest.mark.parametrize("options", [{}, {"beam_size": 3}, {"sampling_temperature": 2.0, "seed": 1}])
def test_what_a_checkpoint_never_produces(options):
    """Its single tokens at no place, its first ones not at the first: the best of the other logits."""
    prompts, how = ["the end", "x", "an apple"], {"max_new_tokens": 12, "details": True}
    free = [make(end_ids=()).generate(prompt, **how, **options).tokens for prompt in prompts]
    never, first = (free[0][3], free[1][5], free[2][0]), tuple(range(150))
    settings = {"suppress_sequences": tuple((token,) for token in never), "begin_suppress_tokens": first}
    given = checkpoint(end_ids=(), **settings)
    generator = Generator.from_checkpoint(given, "float32")
    found = generator.generate(prompts, **how, **options)
    for prompt, one in zip(prompts, found):
        assert not set(one.tokens) & set(never) and one.tokens[0] not in first
        assert generator.generate(prompt, **how, **options) == one
        if not options:
            ids = ids_of(generator, prompt)
            for n, token in enumerate(one.tokens):
                logits_V = logits_of(given, [*ids, *one.tokens[:n]])
                logits_V[[*never, *(first if n == 0 else ())]] = -np.inf
                assert logits_V.max() - logits_V[token] < 1e-4
        assert set(one.tokens) & set(first)


TOKENS = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁a"]
THE, A = 258, 259


def bytes_of(text):
    return [2 + byte for byte in text.encode()]


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.BPE({token: n for n, token in enumerate(TOKENS)}, [], byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(parts)
    made.add_special_tokens([AddedToken(token, special=True) for token in TOKENS[:2]])
    return GeneratorTokenizer(GeneratorText(made.to_str().encode(), 0, (1,)), len(TOKENS))


def test_an_answer_keeps_its_first_space(tokenizer):
    for prompt in ["é", "你", "你é", "é你", "你你", "😀你", "é😀", "你" * 5, "aé"]:
        answer = AnswerText(tokenizer, np.array([0, *bytes_of(prompt)], np.int32), ())
        assert answer.text([THE, A])[0] == " the a"
        stream = TextStream(answer)
        assert "".join([*map(stream.add, [THE, A]), stream.end()]) == " the a"


@pytest.mark.parametrize(
    "ids, strings, text",
    [
        ([A, THE], ["e", "h"], " a t"),  # both in the last token
        ([A, THE], ["h", "e"], " a t"),
        ([A, THE], ["t", " the", "a t"], " "),  # one that begins in a token before
        ([A, THE], ["hen"], " a the"),  # as far as the answer goes
        ([A, THE], ["a theme", "then", "e!"], " a the"),
        ([A, THE, *bytes_of("é")[:1]], ["e\N{REPLACEMENT CHARACTER}!"], " a the\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_answer_ends_before_the_first_of_its_strings_or_has_all_its_text(tokenizer, ids, strings, text):
    answer = AnswerText(tokenizer, np.array([0, *bytes_of("é")], np.int32), strings)
    stream = TextStream(answer)
    assert answer.text(ids)[0] == "".join([*map(stream.add, ids), stream.end()]) == text


def test_a_stop_string_is_found_behind_a_run_of_bytes(tokenizer):
    for before in range(20):
        for run in ("é", "你", "😀"):
            answer = AnswerText(tokenizer, np.array([0], np.int32), ["好吗"])
            ids = [THE] * (before % 4) + bytes_of(run * before + "好吗")
            for n in range(1, len(ids) + 1):
                assert answer.stop.is_end(ids[max(0, n - answer.stop.window) : n]) == (n == len(ids))


TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}{{ shown }}a:"
HELLO = [{"role": "user", "content": "the end"}]
OTHER = [{"role": "system", "content": "an end"}, *HELLO]


@pytest.fixture(scope="module")
def chat():
    pytest.importorskip("jinja2")
    made = checkpoint()
    text = replace(made.text, chat_template=TEMPLATE, special_tokens={"bos_token": "<s>"})
    return Generator.from_checkpoint(replace(made, input=text))


def test_a_conversation_is_the_prompt_that_its_template_makes(chat):
    prompts = ["u: the end\na:", "s: an end\nu: the end\na:"]
    alone = chat.generate(prompts, max_new_tokens=8, details=True)  # the tokenizer begins them with <s>
    assert chat.generate(messages=[HELLO, OTHER], max_new_tokens=8, details=True) == alone
    assert chat.generate(messages=HELLO, max_new_tokens=8) == alone[0].text
    found = chat.generate_iter(messages=iter([HELLO, 5, OTHER]), max_new_tokens=8, return_exceptions=True)
    first, bad, last = found
    assert [first, last] == [one.text for one in alone] and isinstance(bad, InputError)
    with refused(InputError, "messages"):
        chat.generate_iter(["a"], messages=[HELLO])


def test_wrong_conversations_are_refused(chat):
    for arguments in (
        {},
        {"prompts": "a", "messages": HELLO},
        {"template_variables": {}, "prompts": "a"},
        {"template_variables": 3, "messages": HELLO},
        {"messages": []},
        {"messages": [3]},
    ):
        with refused(InputError, next(iter(arguments), "prompts")):
            chat.generate(**arguments)
    with refused(InputError, "template"):
        make().generate(messages=HELLO)


def cache_of(generator):
    """What its only worker has left."""
    ((_, cache, _),) = generator._service._make_worker.keywords["spares"]
    return cache


def test_beginnings_are_read_once(monkeypatch):
    read = []
    real = prompts_module.read_chunk

    def spied(model, cache, layers, prompts, most):
        before = sum(prompt.unread_inputs for prompt in prompts)
        hidden_BD = real(model, cache, layers, prompts, most)
        read.append(before - sum(prompt.unread_inputs for prompt in prompts))
        return hidden_BD

    monkeypatch.setattr(prompts_module, "read_chunk", spied)
    generator, system = make(), "This is what all of them begin with, a system prompt of some length. "
    prompts = [system + prompt for prompt in PROMPTS]
    generator.generate(prompts, max_new_tokens=3)
    whole = sum(len(ids_of(generator, prompt)) for prompt in prompts)
    assert sum(read) <= whole - 4 * (len(ids_of(generator, system)) - 2)
    read.clear()
    first = generator.generate(f"{system}Who?", max_new_tokens=8, details=True)
    assert sum(read) < 10
    beginning = len(ids_of(generator, system))
    assert beginning - 1 <= first.cached_tokens == first.prompt_length - sum(read)
    read.clear()  # a conversation goes on: the answer has been read too
    ids = ids_of(generator, f"{system}Who?")
    generator.generate([*ids, *first.tokens, 5, 6], max_new_tokens=1)
    assert sum(read) <= 4


def test_a_cache_of_int8_has_the_same_bits_whatever_is_shared():
    def answers(generator, prompts):
        generator._service.model.set_cache_precision("int8")
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
    with refused(InputError, "int4"):
        together._service.model.set_cache_precision("int4")


def test_what_is_kept_is_bounded_by_age(monkeypatch):
    row = 2 * 2 * 2 * 6 * 4  # bytes: two layers' keys and values, of two heads
    monkeypatch.setattr(key_value_cache, "BEGINNING_BYTES", 100 * row)
    generator = make()
    for n in range(12):
        generator.generate(f"{n} {'word ' * 5}", max_new_tokens=3)
        cache = cache_of(generator)
        assert 0 < cache.kept_rows <= 100
        used = cache.target.rows - cache.target.free_count
        assert used == cache.kept_rows == int((cache._holders_M > 0).sum())
    kept = [generator._tokenizer.decode(one.tokens_T.tolist()) for one in cache._beginnings]
    assert kept[-1].startswith("11 word") and not any(text.startswith("0 word") for text in kept)
    generator = make()
    generator.generate([5] * 250, max_new_tokens=3)  # whose first tokens are kept
    cache = cache_of(generator)
    assert cache.kept_rows == 100 == cache.target.rows - cache.target.free_count


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


@pytest.mark.parametrize("stack", STACKS)
def test_chunks_are_recorded_once_with_the_bits_of_others(stack, monkeypatch):
    """However long the prompts are; alone, beside others' steps, and with what earlier calls have kept."""
    monkeypatch.setattr(prompts_module, "MOST_CHUNK", 8)
    given = checkpoint(stack=replace(STACKS[stack], positions=STACKS["rotary"].positions), end_ids=())
    recorded, record = [], RecordedLayers._record
    monkeypatch.setattr(RecordedLayers, "_record", lambda self, rows: recorded.append(len(rows)) or record(self, rows))

    def answers_of(prompts, **options):
        generator = fastattn.Generator.from_checkpoint(given, "int8")
        return [answers(generator, prompts, max_new_tokens=30, return_log_probs=True, **options) for _ in range(2)]

    long, other = [2 + n % 250 for n in range(500)], [3 + n % 250 for n in range(300)]
    cases = [([long], {}), ([long, other, [5, 6, 7]], {}), ([[5, 6], long], {"beam_size": 3})]
    with calls_of_layers() as calls:
        found = [answers_of(prompts, **options) for prompts, options in cases[:1]]
    made = [len(slots_R) * is_recorded for slots_R, is_recorded in calls]
    assert (recorded, made[:3]) == ([8], [0, 8, 8]) and made.count(8) >= 60
    found += [answers_of(prompts, **options) for prompts, options in cases[1:]]
    monkeypatch.setattr(cpu, "recorder", lambda: None)
    assert found == [answers_of(prompts, **options) for prompts, options in cases]


def test_a_prompt_that_fills_the_room_keeps_nobody_out(monkeypatch):
    monkeypatch.setattr(worker, "CACHE_ROWS", 300)
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
    cache = cache_of(generator)
    assert cache.target.rows - cache.target.free_count == cache.kept_rows
    assert not cache._shared_lengths


@pytest.mark.parametrize(
    "options", [{"beam_size": 8}, {"sampling_temperature": 1.0, "num_hypotheses": 8, "max_new_tokens": 400}, {}]
)
def test_an_idle_generator_keeps_no_tables_but_its_caches(options):
    generator = make(end_ids=())
    generator.generate("the", details=True, **{"max_new_tokens": 400 if options else 3000} | options)
    ((layers, cache, batch),) = generator._service._make_worker.keywords["spares"]
    kept = {id(table): table.nbytes for one in (layers, batch and batch.recorded_steps) if one for table in one._tables}
    assert sum(kept.values()) <= cache.size


def test_a_pool_of_kept_rows_stays_where_it_is(monkeypatch):
    copied, real = [], RowPool.keep_only
    monkeypatch.setattr(RowPool, "keep_only", lambda self, *given: copied.append(1) or real(self, *given))
    generator = make()
    for n in range(20):
        generator.generate([2 + (7 * n + i * i) % 200 for i in range(100)], max_new_tokens=10)
    assert len(copied) <= 2


@pytest.mark.parametrize("options", [{}, {"sampling_temperature": 1.0, "seed": 3}, {"stop": "nowhere"}])
def test_a_search_that_begins_anew_tells_nothing_twice(monkeypatch, options):
    """A step fails that two searches share; before both are there none is made."""
    generator, prompts, given = make(end_ids=()), ("the end", "an apple"), {"max_new_tokens": 60, **options}
    expected = [generator.generate(prompt, **given) for prompt in prompts]
    real, submit, steps, asked, both = worker.DecodingWorker._step, Scheduler.submit, [], [], threading.Event()

    def note(self, *arguments):
        asked.append(submit(self, *arguments))
        if len(asked) == 2:
            both.set()
        return asked[-1]

    def fail_once(self):
        assert both.wait(60)
        steps.append(len(self.sentences()) > 1)
        if sum(steps) == 5 and steps[-1]:
            raise RuntimeError("a step that fails")
        real(self)

    monkeypatch.setattr(Scheduler, "submit", note)
    monkeypatch.setattr(worker.DecodingWorker, "_step", fail_once)
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda prompt: "".join(generator.stream(prompt, **given)), prompts)] == expected
    assert sum(steps) >= 5
