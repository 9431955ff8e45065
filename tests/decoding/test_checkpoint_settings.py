"""A checkpoint's own decoding settings are the defaults: read, followed, told of; what a call says wins."""

import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from fastattn import Translator, weights
from fastattn.cli.entry import commands
from fastattn.decoding.options import DecodingOptions, resolve_options
from fastattn.decoding.search import normalized_score
from fastattn.errors import CheckpointError, InputError
from fastattn.spec.text_spec import DecodingSettings, SearchRules
from fastattn.weights.native.convert import write
from tests import GOLDENS
from tests.decoding.generation_cases import CASE, PAD, SETTINGS, generation_config
from tests.messages import refused
from tests.weights.huggingface.marian_cases import TEXTS, write_model
from tests.weights.marian import writer

NO_SETTINGS = DecodingSettings(min_decoding_length=0, rules=SearchRules())  # of a generation_config.json
GOLDEN = json.loads((GOLDENS / "generation.json").read_text())


def settings_of(checkpoint):
    return checkpoint.text.decoding


def marian(folder, configuration):
    head = b"models: [model.npz]\nvocabs: [vocab.yml]\n"
    return writer.write(folder, writer.files(*writer.random_model(1)) | {"config.yml": head + configuration})


def huggingface(folder, generation):
    write_model(folder, CASE)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def test_what_is_given_wins():
    for own, given, expected in [
        ({}, {}, {"beam_size": 2}),
        ({"beam_size": 1, "length_penalty": 0.5}, {}, {"beam_size": 1, "length_penalty": 0.5}),
        ({"beam_size": 6}, {"beam_size": 1}, {"beam_size": 1}),
        # hypotheses that are asked for need as many beams
        ({}, {"num_hypotheses": np.int64(5)}, {"beam_size": 5}),
        ({"beam_size": 6}, {"num_hypotheses": 3}, {"beam_size": 6}),
        ({}, {"num_hypotheses": 3, "return_alternatives": True}, {"beam_size": 2}),
        ({}, {"num_hypotheses": 3, "patience": 2.0}, {"beam_size": 2}),
        # samples need a beam of one
        ({}, {"sampling_topk": 10}, {"beam_size": 1, "sampling_topk": 10}),
        ({"beam_size": 6}, {"sampling_topk": 0, "num_hypotheses": 4}, {"beam_size": 1, "num_hypotheses": 4}),
        ({}, {"sampling_topp": 0.9}, {"beam_size": 2}),  # of the best token alone nothing is drawn
        ({}, {"sampling_topk": 1, "sampling_temperature": 0.7, "num_hypotheses": 3}, {"beam_size": 3}),
        ({"sampling_topk": 50}, {}, {"beam_size": 1, "sampling_topk": 50}),
        ({"sampling_topk": 50}, {"beam_size": 1}, {"beam_size": 1, "sampling_topk": 50}),
        ({"sampling_topk": 50}, {"num_hypotheses": 3}, {"beam_size": 1, "sampling_topk": 50}),
        ({"sampling_topk": 50}, {"num_hypotheses": 3, "sampling_topk": 1}, {"beam_size": 3}),
        ({"sampling_topk": 50, "beam_size": 1}, {"prefix_bias_beta": 0.5}, {"beam_size": 1, "sampling_topk": 1}),
        ({"beam_size": 1, "sampling_topk": 50}, {"beam_size": 4}, {"beam_size": 4, "sampling_topk": 1}),
        # one limit of the length in the place of another
        ({"max_length_factor": 2.5}, {"max_decoding_length": 7}, {"max_length_factor": None}),
        ({"max_decoding_length": 511}, {"max_length_factor": 2}, {"max_decoding_length": None}),
        ({"max_length_factor": 2.5}, {"max_decoding_length": None}, {"max_length_factor": 2.5}),
        ({"max_decoding_length": 511}, {"min_decoding_length": 600}, {"max_decoding_length": 600}),
        ({"min_decoding_length": 10}, {"max_decoding_length": 5}, {"min_decoding_length": 5}),
        ({"suppress_sequences": ((3,),)}, {"suppress_sequences": []}, {"suppress_sequences": []}),
    ]:
        found = resolve_options(own, given)
        assert {name: getattr(found, name) for name in expected} == expected


def test_a_beam_that_is_too_narrow_is_refused_where_it_was_given():
    for given in ({"num_hypotheses": 3, "beam_size": 2}, {"num_hypotheses": 5000}, {"num_hypotheses": "3"}):
        with refused(InputError, "num_hypotheses"):
            resolve_options({}, given)
    with refused(InputError, "sampling"):
        resolve_options({}, {"beam_size": 2, "sampling_topk": 3})


def test_limits_of_the_length():
    for options, source, prefix, expected in [
        ({}, 10, 0, 256),
        ({}, 200, 0, 400),
        ({}, 300, 0, 500),  # of the model
        ({"min_decoding_length": 400}, 10, 0, 400),
        ({"max_decoding_length": 5}, 300, 0, 5),
        ({"max_length_factor": 2.5}, 3, 0, 8),  # rounded up
        ({"max_length_factor": 2.5}, 3, 4, 12),  # behind the prefix
        ({"max_length_factor": 0.1}, 3, 0, 1),
        ({"max_length_factor": 2.5, "max_decoding_length": 5}, 3, 0, 5),
        ({"max_length_factor": 1, "max_decoding_length": 5}, 3, 0, 3),
        ({"max_length_factor": 1, "min_decoding_length": 9}, 3, 0, 9),
        ({"max_length_factor": 1e300}, 3, 0, 500),
        ({"max_decoding_length": 1 << 40}, 3, 0, 500),
        ({"max_length_factor": 2}, 0, 0, 256),  # nothing to translate: the prefix, whole
    ]:
        assert DecodingOptions(**options).limit(source, 500, prefix) == expected
    assert DecodingOptions().limit(300, 0) == 600, "of a model that has none"
    assert DecodingOptions(min_decoding_length=700).limit(10, 0) == 700


@pytest.mark.parametrize(
    ("length", "penalties", "expected"),
    [(3, [1], -2), (3, [0], -6), (4, [500], 0), (3, [1, 0.5], -2.5), (4, [0, -1], -2), (4, [0.5, 1], -5)],
)
def test_penalties_in_a_score(length, penalties, expected):
    assert normalized_score(-6.0, length, *penalties) == expected
    assert normalized_score(0.0, 0, *penalties) == 0.0


def test_a_marian_configuration_is_followed(tmp_path):
    folder = marian(tmp_path, b"beam-size: 3\nnormalize: 0.6\nword-penalty: 0.2\nmax-length-factor: 1.5\n")
    translator = Translator(folder)
    own = {"beam_size": 3, "length_penalty": 0.6, "word_penalty": 0.2, "max_length_factor": 1.5}
    assert {name: getattr(translator.default_options, name) for name in own} == own
    texts = ["a b c", "b", "c a a b c b"]
    by_default = [found.scores for found in translator.translate(texts, details=True)]
    assert by_default == [found.scores for found in translator.translate(texts, details=True, **own)]
    other = dict.fromkeys(own) | {"beam_size": 2, "length_penalty": 1.0, "word_penalty": 0.0}
    assert by_default != [found.scores for found in translator.translate(texts, details=True, **other)]


def test_what_a_marian_configuration_leaves_open_stays_ours(tmp_path):
    assert settings_of(weights.read(marian(tmp_path, b""))) == DecodingSettings()


def test_settings_that_cannot_be_followed_are_told_of_once(tmp_path):
    folder = marian(tmp_path, b"beam-size: 4\nnormalize: very\noutput-sampling: [topk, 10]\n")
    with pytest.warns(UserWarning) as caught:
        translator = Translator(folder)
        translator.translate(["a b", "c"])
    (warning,) = caught
    expected = "the checkpoint's own settings that are not followed: normalize 'very'; output-sampling 'topk 10'"
    assert str(warning.message) == expected
    assert warning.filename == __file__
    shown = CliRunner().invoke(commands, ["inspect", str(folder)]).stdout
    assert "decoding       beam_size 4 (the checkpoint's own)\n" in shown
    assert "not followed   output-sampling 'topk 10'\n" in shown


def test_settings_out_of_range_are_the_checkpoints_fault(tmp_path):
    for make, settings, name in (
        (marian, b"beam-size: 5000\n", "beam_size"),
        (huggingface, {"repetition_penalty": 0.0}, "repetition_penalty"),
    ):
        with refused(CheckpointError, name):
            Translator(make(tmp_path / name, settings))


@pytest.mark.parametrize("name", SETTINGS)
def test_generation_config_is_followed_as_transformers_does(tmp_path, name):
    translator = Translator(huggingface(tmp_path, generation_config(name)))
    assert isinstance(translator.translate(TEXTS[0]), str)
    text = translator._tokenizer.text
    forced = SETTINGS[name].get("forced_bos_token_id")
    for source_ids, ids, score in GOLDEN[name]:
        (found,) = translator.translate_tokens([[text.source_vocabulary[index] for index in source_ids[:-1]]])
        ids = ids[1 + (forced is not None) : len(ids) - (ids[-1] == 0)]
        assert found.tokens == [text.target_vocabulary[index] for index in ids]
        if score is not None:
            assert found.scores[0] == pytest.approx(score, abs=1e-5)


def test_settings_of_config_json_hold_where_there_is_no_generation_config(tmp_path):
    own = {"num_beams": 5, "max_length": 33, "length_penalty": 0.8, "diversity_penalty": 0.5}
    write_model(tmp_path, CASE, **own)
    rules = SearchRules("true", forced_end=True, renormalized=True)
    limits = {"min_decoding_length": 0, "max_decoding_length": 32, "not_followed": ("diversity_penalty 0.5",)}
    expected = DecodingSettings(beam_size=5, length_penalty=0.8, rules=rules, **limits)
    assert settings_of(weights.read(tmp_path)) == expected
    write_model(tmp_path, CASE, **own, bad_words_ids=[[PAD], [9], [17, 33]], suppress_tokens=[21])
    for beside in ({"bad_words_ids": [[PAD]]}, {}):
        (tmp_path / "generation_config.json").write_text(json.dumps(beside))
        checkpoint = weights.read(tmp_path)
        assert settings_of(checkpoint) == NO_SETTINGS
    assert np.isneginf(checkpoint.tensors["decoder.projection.bias"]).nonzero()[0].tolist() == [PAD]


def test_lengths_and_penalties_that_transformers_has_otherwise(tmp_path):
    generation = {"min_length": 60, "max_length": 30, "num_beams": 3, "repetition_penalty": 1.5, "eos_token_id": [0]}
    found = settings_of(weights.read(huggingface(tmp_path, generation)))
    assert (found.min_decoding_length, found.max_decoding_length) == (29, 29)
    assert found.not_followed == ()
    found = settings_of(weights.read(huggingface(tmp_path, generation | {"repetition_penalty": 0.5})))
    assert (found.repetition_penalty, found.not_followed) == (0.5, ())


def test_generation_settings_that_are_not_followed(tmp_path):
    generation = {
        "num_beams": 4, "do_sample": True, "early_stopping": "often", "encoder_repetition_penalty": 1.0,
        "forced_eos_token_id": 0, "eos_token_id": 0, "new_in_2031": [1], "guidance_scale": 3, "use_cache": True,
    }  # fmt: skip
    found = settings_of(weights.read(huggingface(tmp_path, generation)))
    told = ("early_stopping 'often'", "new_in_2031 [1]", "guidance_scale 3", "do_sample with num_beams 4")
    rules = SearchRules(forced_end=True)
    assert found == DecodingSettings(beam_size=4, min_decoding_length=0, rules=rules, not_followed=told)


def test_sampling_as_the_checkpoint_wants_it(tmp_path):
    generation = {"do_sample": True, "top_p": 0.8, "bad_words_ids": [[PAD]]}
    translator = Translator(huggingface(tmp_path, generation))
    own = {"sampling_topk": 50, "sampling_topp": 0.8, "sampling_temperature": 1.0, "beam_size": 1}
    assert {name: getattr(translator.default_options, name) for name in own} == own
    assert translator.translate(TEXTS[0], seed=3) == translator.translate(TEXTS[0], seed=3, **own)
    assert translator.translate(TEXTS[0], beam_size=2) == translator.translate(TEXTS[0], beam_size=2, seed=9)


@pytest.mark.parametrize(
    "generation",
    [
        {"num_beams": "4"},
        {"length_penalty": [1]},
        *({"bad_words_ids": wrong} for wrong in ([[1, 10**9]], [[]], 7)),
        *({"suppress_tokens": wrong} for wrong in ([-1], [10**9])),
        {"forced_bos_token_id": 10**9},
    ],
)
def test_generation_configs_that_are_refused(tmp_path, generation):
    with refused(CheckpointError, *generation):
        weights.read(huggingface(tmp_path, generation))


def test_what_is_forced_is_no_part_of_a_translation(tmp_path):
    translator = Translator(huggingface(tmp_path, generation_config("forced")))
    assert translator.translate("") == ""
    wished = translator.translate_tokens([["▁The"]], [["▁w", "▁x"]], prefix_bias_beta=0.5, beam_size=3)[0]
    assert all(tokens[:1] != [translator._tokenizer.text.decoding.forced_tokens[0]] for tokens in wished.hypotheses)
    score = translator.score(TEXTS[0], "river")
    assert len(score.tokens) == len(score.log_probs) == len(translator._tokenizer.target_tokens("river")) + 1
    found = translator.translate(TEXTS[0], details=True, return_attention=True).parts[0]
    assert found.attention is not None
    assert found.attention[0].shape == (len(found.tokens), len(found.source))


def test_what_is_forced_is_not_streamed(tmp_path):
    translator, seen = Translator(huggingface(tmp_path, generation_config("forced"))), []
    words = translator._tokenizer.text.source_vocabulary[5:9]
    (result,) = translator.translate_tokens([words], beam_size=1, callback=seen.append, max_decoding_length=9)
    assert [step.token for step in seen][: len(result.tokens)] == result.tokens and len(result.tokens) > 1
    assert [step.position for step in seen] == list(range(len(seen)))
    assert list(translator.generate_tokens(words, max_decoding_length=9)) == seen


def test_converted_folders_keep_the_settings(tmp_path):
    own = generation_config("bad words") | {"forced_bos_token_id": 21, "top_h": 0.5}
    checkpoint, folder = weights.read(huggingface(tmp_path / "a", own)), tmp_path / "b"
    folder.mkdir()
    write(folder, checkpoint, "float32")
    assert settings_of(weights.read(folder)) == settings_of(checkpoint)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for value in ([[10**6]], [["1"]], [3]):
        config["text"]["decoding"]["suppress_sequences"] = value
        (folder / "config.json").write_text(json.dumps(config))
        with refused(CheckpointError, "text.decoding"):
            weights.read(folder)
    del config["text"]["decoding"]  # a folder from before there were settings
    (folder / "config.json").write_text(json.dumps(config))
    assert settings_of(weights.read(folder)) == DecodingSettings()


def test_firefox_models_run_greedily_as_they_say(pulled):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = Translator(pulled("en-pt")).default_options
    assert (options.beam_size, options.length_penalty, options.max_length_factor) == (1, 1.0, 2.5)
    assert options.disable_unk
