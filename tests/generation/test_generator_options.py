"""Options of a Generator that say the same in other words, or meet one another."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from fastattn.errors import InputError
from fastattn.generation.generator import Generator
from fastattn.ops import reference
from tests.generation.language_models import checkpoint, make
from tests.generation.test_generator import build_logits


def ranked(found):
    return [found, *found.alternatives]


def test_no_end_token_is_the_checkpoints():
    first = make().generate("the end", details=True, max_new_tokens=9).tokens[0]
    generator = make(end_ids=(first,))
    found = generator.generate("the end", max_new_tokens=9, end_token=None, details=True)
    assert (found.tokens, found.finish_reason) == ([], "stop")


def test_a_temperature_samples_whatever_the_beam():
    generator, given = make(), {"sampling_temperature": 2.0, "seed": 3, "max_new_tokens": 20}
    assert generator.generate("the end", beam_size=1, **given) == generator.generate("the end", **given)
    assert generator.generate("the end", **given) != generator.generate("the end", max_new_tokens=20)
    with pytest.raises(InputError, match="sampling needs beam_size=1"):
        generator.generate("the end", beam_size=2, **given)


def test_a_beam_that_ended_goes_on_no_more():
    """Where so many candidates end that too few are left to take their places."""
    rng = np.random.default_rng(0)
    for seed in range(1, 6):
        generator = make(seed=seed)
        decode = generator._tokenizer.decode
        for _ in range(3):
            strings = [chr(c) for c in rng.choice(np.arange(32, 127), 60, replace=False)]
            options = {"beam_size": 4, "num_hypotheses": 4, "max_new_tokens": 12, "return_log_probs": True}
            for patience in (1.0, 2.0):
                found = generator.generate("the end", details=True, stop=strings, patience=patience, **options)
                for one in ranked(found):
                    assert np.isfinite(one.score)
                    assert not any(string in decode(one.tokens[:-1]) for string in strings)


def test_a_beam_goes_on_behind_none_of_several_end_tokens():
    rng = np.random.default_rng(0)
    for seed in range(1, 6):
        ends = tuple(rng.choice(np.arange(2, 250), 150, replace=False).tolist())
        generator = Generator.from_checkpoint(checkpoint(seed=seed, end_ids=ends))
        found = generator.generate("the end", details=True, beam_size=4, num_hypotheses=4, max_new_tokens=12)
        for one in ranked(found):
            assert not set(one.tokens) & set(ends)


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_impossible_ends_in_company_as_alone(beam):
    """More tokens than there are, each once."""
    options = {"no_repeat_ngram_size": 1, "max_new_tokens": 280, "beam_size": beam, "details": True}
    generator = make(end_ids=())
    alone = generator.generate("the", return_log_probs=True, **options)
    assert len(alone.tokens) == 280
    together = generator.generate(["the", "an apple"], return_log_probs=True, **options)[0]
    assert (together.tokens, together.log_probs.tobytes()) == (alone.tokens, alone.log_probs.tobytes())


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
            ids = generator._tokenizer.encode([prompt], True)[0].tolist()
            for n, token in enumerate(one.tokens):
                logits_V = build_logits(given, [*ids, *one.tokens[:n]])
                logits_V[[*never, *(first if n == 0 else ())]] = -np.inf
                assert logits_V.max() - logits_V[token] < 1e-4
        assert set(one.tokens) & set(first)


def test_threads_are_those_asked_for_and_there_may_be():
    asked, counting = set(), SimpleNamespace(**vars(reference))
    counting.thread_limit = lambda: 8
    counting.use_threads = lambda count: asked.add(count) or contextlib.nullcontext()
    for threads, used in ((1, 1), (3, 3), (None, 8), (64, 8)):
        asked.clear()
        make(threads=threads, ops=counting).generate("a", max_new_tokens=2)
        assert asked == {used}
