"""The search options of ``fastattn translate``: each reaches the search, and none is forgotten here."""

import json

import pytest

from fastattn.cli.translate import translate
from fastattn.translation.translator import Translator
from tests.cli.commands import fail, succeed

# What the command is given and what the API calls it; the last of a list is to change what comes.
PREFIX = ("--target-prefix", "▁w7 new"), {"target_prefix": "▁w7 new"}
BRANCHED = ("--alternatives",), {"return_alternatives": True}
GREEDY = ("-b", 1, "-n", 1), {"beam_size": 1, "num_hypotheses": 1}
LONGER = (
    ("-n", 1, "--min-length", 1, "--max-length", 12),
    {"num_hypotheses": 1, "min_decoding_length": 1, "max_decoding_length": 12},
)
DRAWN = ("--sampling-topk", 9, "--seed", 4), {"sampling_topk": 9, "seed": 4}
SEARCHES = [
    [(("--beam-size", 4), {"beam_size": 4})],
    [LONGER, (("--patience", 0.5), {"patience": 0.5})],
    [(("--length-penalty", 0.1), {"length_penalty": 0.1})],
    [(("--word-penalty", 1.5), {"word_penalty": 1.5})],
    [(("--coverage-penalty", 0.9), {"coverage_penalty": 0.9})],
    [(("--repetition-penalty", 2), {"repetition_penalty": 2})],
    [(("--presence-penalty", 3), {"presence_penalty": 3.0})],
    [(("--frequency-penalty", 3), {"frequency_penalty": 3.0})],
    [(("--no-repeat-ngram", 1), {"no_repeat_ngram_size": 1})],
    [(("--min-length", 7), {"min_decoding_length": 7})],
    [(("--max-length", 4), {"max_decoding_length": 4})],
    [(("--max-length-factor", 1), {"max_length_factor": 1})],
    [PREFIX],
    [PREFIX, (("--prefix-bias", 0.3), {"prefix_bias_beta": 0.3})],
    [PREFIX, BRANCHED],
    [PREFIX, BRANCHED, (("--min-alternative-prob", 0.2), {"min_alternative_expansion_prob": 0.2})],
    [(("--disable-unk",), {"disable_unk": True})],
    [PREFIX, (("--replace-unknowns",), {"replace_unknowns": True})],
    [(("--suppress", "▁w9", "--suppress", "▁w4 ▁w15"), {"suppress_sequences": ["▁w9", "▁w4 ▁w15"]})],
    [GREEDY, DRAWN],
    [GREEDY, DRAWN, (("--sampling-topk", 2), {"sampling_topk": 2})],
    [GREEDY, DRAWN, (("--seed", 5), {"seed": 5})],
    [GREEDY, DRAWN, (("--sampling-topp", 0.5), {"sampling_topp": 0.5})],
    [GREEDY, DRAWN, (("--sampling-minp", 0.5), {"sampling_minp": 0.5})],
    [GREEDY, DRAWN, (("--sampling-temperature", 3), {"sampling_temperature": 3})],
    [(("--split", "sentences"), {"split": "sentences"})],
]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: " ".join(map(str, search[-1][0])))
def test_translate_hands_each_option_of_a_search_on(model, search):
    texts = ["▁w1 ▁w2. ▁w3 ▁w4", "▁w5", "▁w6 ▁w6 ▁w7 ▁w1 ▁w9"]

    def found(pairs):
        options = ["-n", 2, "--min-length", 3, "--max-length", 8, *(option for given, _ in pairs for option in given)]
        lines = succeed("translate", "-m", model, "--json", *options, *texts)
        records = [json.loads(line)["hypotheses"] for line in lines.splitlines()]
        return [[(hypothesis["text"], hypothesis["score"]) for hypothesis in record] for record in records]

    named = {"num_hypotheses": 2, "min_decoding_length": 3, "max_decoding_length": 8}
    for _, more in search:
        named |= more
    expected = Translator(model).translate(texts, details=True, **named)
    assert found(search) == [list(zip(result.hypotheses, result.scores)) for result in expected]
    assert found(search) != found(search[:-1]), "the option changes nothing here, so it might be dropped unseen"


def test_every_option_of_a_search_is_among_these():
    tried = {str(word) for search in SEARCHES for given, _ in search for word in given}
    headed = [option for option in translate.params if getattr(option, "heading", None)]
    assert {"--patience", "--seed"} <= {name for option in headed for name in option.opts}
    others = {option.name for option in headed if not tried & {*option.opts}}
    assert others == {"shortlist", "timeout"}, "which have tests of their own"


def test_sampling_and_beams_do_not_go_together(model):
    assert "sampling needs --beam-size 1" in fail(2, "translate", "-m", model, "-b", 2, "--sampling-topk", 9, "▁w1")


def test_an_option_that_is_not_given_leaves_the_checkpoint_its_own(model, monkeypatch):
    """Some suppress sequences, or the unknown token."""
    asked = []

    def taken(self, texts, **options):
        asked.append(options)
        return iter([] if texts == () else list(texts))  # one that reads nothing is asked for ever

    monkeypatch.setattr(Translator, "translate_iter", taken)
    succeed("translate", "-m", model, stdin=b"")
    assert asked[0] == {"details": True, "return_scores": False}
