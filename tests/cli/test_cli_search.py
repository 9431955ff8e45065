"""The search options of ``fastattn translate``, with a model."""

import json

import pytest

from fastattn.translation.translator import Translator
from tests.cli.commands import fail, succeed

# What the command is given and what the API calls it: options that go together.
BEAM = {
    "--beam-size": ("beam_size", 4), "--num-hypotheses": ("num_hypotheses", 2), "--patience": ("patience", 1.5),
    "--length-penalty": ("length_penalty", 0.1), "--word-penalty": ("word_penalty", 1.5),
    "--coverage-penalty": ("coverage_penalty", 0.9), "--repetition-penalty": ("repetition_penalty", 2.0),
    "--presence-penalty": ("presence_penalty", 3.0), "--frequency-penalty": ("frequency_penalty", 3.0),
    "--no-repeat-ngram": ("no_repeat_ngram_size", 2), "--min-length": ("min_decoding_length", 3),
    "--max-length": ("max_decoding_length", 8), "--max-length-factor": ("max_length_factor", 3.0),
    "--suppress": ("suppress_sequences", ["▁w9"]), "--split": ("split", "sentences"),
    "--target-prefix": ("target_prefix", "▁w7 new"), "--timeout": ("timeout", 1000.0),
}  # fmt: skip
FLAGS = {
    "--disable-unk": "disable_unk",
    "--replace-unknowns": "replace_unknowns",
    "--alternatives": "return_alternatives",
}
DRAWN = {
    "--beam-size": ("beam_size", 1), "--seed": ("seed", 4), "--sampling-topk": ("sampling_topk", 9),
    "--sampling-topp": ("sampling_topp", 0.9), "--sampling-minp": ("sampling_minp", 0.01),
    "--sampling-temperature": ("sampling_temperature", 3.0), "--max-length": ("max_decoding_length", 12),
}  # fmt: skip
BIASED = {"--target-prefix": ("target_prefix", "▁w7 ▁w2"), "--prefix-bias": ("prefix_bias_beta", 0.3)}
BRANCHED = BIASED | {"--min-alternative-prob": ("min_alternative_expansion_prob", 0.1)}
BRANCHED = {name: value for name, value in BRANCHED.items() if name != "--prefix-bias"}
TEXTS = ["▁w1 ▁w2. ▁w3 ▁w4", "▁w5", "▁w6 ▁w6 ▁w7 ▁w1 ▁w9"]


@pytest.mark.parametrize(
    "named, flags",
    [(BEAM, ("--disable-unk", "--replace-unknowns")), (DRAWN, ()), (BIASED, ()), (BRANCHED, ("--alternatives",))],
    ids=["beam", "drawn", "biased", "branched"],
)
def test_a_search_is_the_apis(model, named, flags):
    """That each option arrives is test_options_arrive's."""
    given = [
        word for name, (_, value) in named.items() for word in (name, *(value if name == "--suppress" else [value]))
    ]
    options = dict(named.values()) | {FLAGS[flag]: True for flag in flags}
    if "--alternatives" in flags:
        given, options = [*given, "-n", 2], options | {"num_hypotheses": 2}
    lines = succeed("translate", "-m", model, "--json", *given, *flags, *TEXTS).splitlines()
    found = [[(one["text"], one["score"]) for one in json.loads(line)["hypotheses"]] for line in lines]
    expected = Translator(model).translate(TEXTS, details=True, **options)
    assert found == [list(zip(result.hypotheses, result.scores)) for result in expected]


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
