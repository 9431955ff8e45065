"""Every architecture of decoders as published against what transformers computed (goldens/make_architectures.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError, InputError
from fastattn.generation.generator import Generator
from fastattn.ops import cpu as operations
from fastattn.spec.architecture import Rotary
from fastattn.spec.text_spec import DecodingSettings, GeneratorText
from fastattn.weights import read
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.decoder import text_part
from fastattn.weights.huggingface.decoders import DECODERS, find_decoder
from tests.architectures.case import Case, some_rows
from tests.architectures.continuing import TOKENS, continuations, load, pass_logits, step_logits
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_continuations, read_goldens, write_golden
from tests.decoding.test_recorded_steps import counted_runs, steps_by_themselves
from tests.weights.containers.safetensors_writer import write_json
from tests.weights.native.folders import converted
from tests.weights.refusals import refusal

GREATEST = 10**400


def _case(name: str) -> Case:
    return next(case for case in GOLDEN_DECODERS if case.name == name)


@pytest.mark.parametrize("case", GOLDEN_DECODERS, ids=lambda case: case.name)
def test_logits_and_tokens_are_the_goldens(case: Case, tmp_path: Path) -> None:
    expected, model = write_golden(case, tmp_path), load(tmp_path)
    for found in (pass_logits(model, case), step_logits(model, case)):
        rows = np.concatenate([some_rows(logits) for logits in found])
        assert np.abs(rows - expected).max() <= 1e-4 * np.abs(expected).max()
    with counted_runs() as made:
        tokens_BT = continuations(model, case)
    np.testing.assert_array_equal(tokens_BT, read_continuations(case))
    assert tokens_BT.shape[1] == TOKENS and max(made) > 1
    with steps_by_themselves(), operations.use_threads(1):
        np.testing.assert_array_equal(continuations(model, case), tokens_BT)


def test_there_is_a_golden_of_every_architecture() -> None:
    assert {case.model_type for case in GOLDEN_DECODERS} | {"gemma3"} == set(DECODERS)


@pytest.mark.parametrize(
    "name", ["gpt2-0", "gpt_neox-0", "gemma2-0", "hunyuan_v1_dense-0", "olmo2-0", "phi3-long-2", "smollm3-2"]
)
def test_what_is_converted_comes_back(name: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_golden(_case(name), tmp_path / "model")
    checkpoint = read(tmp_path / "model")
    tied = checkpoint.tensors["decoder.projection.weight"] is checkpoint.tensors["decoder.embedding.weight"]
    for precision in ("float32", "bfloat16", "int8"):
        again = read(converted(checkpoint, tmp_path / precision, precision))
        assert (again.spec, again.text, again.precision) == (checkpoint.spec, checkpoint.text, precision)
        assert (again.tensors["decoder.projection.weight"] is again.tensors["decoder.embedding.weight"]) == tied


def test_the_text_of_a_model_that_sees_images_is_read(tmp_path: Path) -> None:
    """Under both orders of names, with settings that the text's part does not repeat, without a cap of its logits."""
    case = _case("gemma3_text-0")
    tensors = draw_all(read_goldens(case)[0], case.seed)
    (tmp_path / "text").mkdir()
    expected = pass_logits(load(write_folder(tmp_path / "text", case.config, tensors)), case)
    nested = {name: value for name, value in case.config.items() if name not in ("architectures", "eos_token_id")}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "vision_config": {},
        "eos_token_id": [2, 7], "text_config": nested | {"final_logit_softcapping": 3.0},
        "vocab_size": case.config["vocab_size"],
    }  # fmt: skip
    for number, renamed in enumerate(
        (
            {f"language_model.{name}": tensor for name, tensor in tensors.items()},
            {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()},
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        seen = {"vision_tower.embeddings": np.ones(3, np.float32), "multi_modal_projector.w": np.ones(3, np.float32)}
        write_folder(folder, config, renamed | seen)
        for found_TV, expected_TV in zip(pass_logits(load(folder), case), expected):
            np.testing.assert_array_equal(found_TV, expected_TV)
        text = read(folder).text
        assert isinstance(text, GeneratorText) and text.end_ids == (2, 7)


def test_published_parts_leave_out_what_is_usual() -> None:
    part = {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    }  # fmt: skip
    config = text_part(JsonObject({"model_type": "gemma3", "text_config": part}, "config.json"))
    stack = find_decoder(config).spec(config)
    assert (stack.attention.heads, stack.attention.key_heads, stack.attention.head_width) == (8, 4, 256)
    assert (stack.vocabulary, stack.max_positions) == (262_208, 131_072) and stack.local is not None
    assert len(stack.local.layers) == 29 and stack.local.rotary == Rotary(256, 10_000.0, interleaved=False)
    assert stack.positions.rotary == Rotary(256, 1e6, interleaved=False, scale=8.0)


def test_old_files_hold_buffers(tmp_path: Path) -> None:
    for name, more in (
        ("gpt2-0", {"transformer.h.0.attn.bias": (1, 1, 4, 4), "h.2.attn.masked_bias": ()}),
        ("gpt_neox-0", {"gpt_neox.layers.0.attention.bias": (1, 1, 4, 4), "layers.1.attention.masked_bias": ()}),
        ("llama-0", {"model.layers.0.self_attn.rotary_emb.inv_freq": (6,)}),
    ):
        case = _case(name)
        tensors = draw_all(read_goldens(case)[0], case.seed)
        folders = [tmp_path / f"{name} {kind}" for kind in ("today", "old")]
        for folder, held in zip(
            folders, (tensors, {n: np.ones(shape, np.float32) for n, shape in more.items()} | tensors)
        ):
            folder.mkdir()
            write_folder(folder, case.config, held)
        today, old = map(read, folders)
        assert today.tensors.keys() == old.tensors.keys()
        for tensor, found in today.tensors.items():
            np.testing.assert_array_equal(old.tensors[tensor], found)


CAUSAL_LM = {"qwen3-0": "Qwen3Model", "gemma3_text-0": "Gemma3TextModel"}


def test_an_encoder_takes_the_stack(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its vectors are of the rows before the projection, as of files that say they are an encoder's: the last row of a
    causal language model's, else the mean of them, as in sentence-transformers.
    """
    for name in ("llama-0", "gpt2-0", "gemma2-0", *CAUSAL_LM):
        folder = tmp_path_factory.mktemp("case")
        case, text = _case(name), "w7 w9 w30"
        write_golden(case, folder)
        encoder, model = Encoder(folder, threads=1), load(folder)
        ids = np.array(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids, np.int32)
        hidden_TD, _ = model.prefill(ids, np.array([0, len(ids)], np.int64))
        pooled_D = hidden_TD.mean(axis=0) if name == "gpt2-0" else hidden_TD[-1]  # whose class is a LMHeadModel
        np.testing.assert_allclose(encoder.encode(text), pooled_D, atol=1e-5)
        np.testing.assert_allclose(encoder.encode(text, pooling="mean"), hidden_TD.mean(axis=0), atol=1e-5)
        with pytest.raises(CheckpointError, match="has no head that classifies"):
            CrossEncoder(folder)
        if name in CAUSAL_LM:
            config = json.loads((folder / "config.json").read_text()) | {"architectures": [CAUSAL_LM[name]]}
            (folder / "config.json").write_text(json.dumps(config))
            assert read(folder).spec.encoder is not None
            np.testing.assert_array_equal(Encoder(folder, threads=1).encode(text), encoder.encode(text, pooling="mean"))
            looks_ahead = {"qwen3-0": {"is_causal": False}, "gemma3_text-0": {}}[name]
            config |= {"architectures": [CAUSAL_LM[name].replace("Model", "ForCausalLM")]} | looks_ahead
            (folder / "config.json").write_text(json.dumps(config))
            assert read(folder).text.pooling == (("mean",) if looks_ahead else ("lasttoken",))


def _text(folder: Path, files: dict[str, Any], change: dict[str, Any] | None = None) -> GeneratorText:
    write_golden(_case("llama-0"), folder, change)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    text = read(folder).text
    assert isinstance(text, GeneratorText)
    return text


def test_the_text_is_that_of_the_files(tmp_path: Path) -> None:
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "chat_template": "{{ one }}"}
    generation = {
        "eos_token_id": [2, 5], "do_sample": True, "temperature": 0.7, "top_k": 20, "max_length": 9,
        "max_new_tokens": 50, "forced_bos_token_id": 7, "pad_token_id": 0, "bad_words_ids": [[5], [9], [3, 4]],
        "suppress_tokens": [8, 2], "begin_suppress_tokens": [11],
    }  # fmt: skip
    text = _text(tmp_path, {"tokenizer_config.json": settings, "generation_config.json": generation})
    assert (text.max_length, text.end_ids, text.chat_template) == (240, (2, 5), "{{ one }}")
    assert text.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert json.loads(text.tokenizer)["model"]["vocab"]["w9"] == 9
    assert text.decoding == DecodingSettings(
        beam_size=1,
        max_decoding_length=50,
        sampling_topk=20,
        sampling_topp=1.0,
        sampling_minp=0.0,
        sampling_temperature=0.7,
        suppress_sequences=((3, 4), (2,), (8,), (9,)),
        begin_suppress_tokens=(11,),
    )


def test_the_context_of_longrope_ends_where_that_of_training_did(tmp_path: Path) -> None:
    """Longer texts have other factors from their first token on, so that a cache cannot grow beyond."""
    write_golden(_case("phi3-long-0"), tmp_path)
    with pytest.raises(InputError, match="prompt 0 has 120 tokens, and the model's context 120 for it and the answer"):
        Generator(tmp_path).generate([5] * 120)


SEVERAL = [{"name": "tool", "template": "a"}, {"name": "default", "template": "b"}]


def test_the_template_is_the_files_own_or_the_default_of_several(tmp_path_factory: pytest.TempPathFactory) -> None:
    for files, template in (
        ({"tokenizer_config.json": {"chat_template": SEVERAL}}, "b"),
        ({"tokenizer_config.json": {"chat_template": "a"}, "chat_template.jinja": "c"}, "c"),
        ({}, ""),
    ):
        folder = tmp_path_factory.mktemp("case")
        text = _text(folder, files)
        assert text.chat_template == template and text.end_ids == (2,) and text.decoding == DecodingSettings()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama-0", {"model_type": "mixtral"}, "model type 'mixtral' is not supported; known: albert"),
    ("llama-0", {"model_type": "deepseek_v3"}, "model type 'deepseek_v3' is not supported"),
    ("llama-0", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config {'quant_method': 'gptq'}"),
    ("llama-0", {"architectures": ["LlamaForSequenceClassification"]}, "architectures should be a class that ends in"),
    ("llama-0", {"eos_token_id": 61}, "eos_token_id should be ids below 61, is 61"),
    ("llama-0", {"eos_token_id": "</s>"}, "eos_token_id should be ids below 61"),
    ("llama-0", {"vocab_size": GREATEST}, "vocab_size should be at most"),
    ("llama-0", {"num_hidden_layers": 900}, "there should be 900 layers, but"),
    ("llama-0", {"num_key_value_heads": 2}, "3 heads cannot share 2 key heads evenly"),
    ("llama-0", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "rope_type should be one of default"),
    ("phi3-0", {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "LongRoPE needs 6 factors, got 1"),
    ("phi3-0", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "short_factor should be a list of numbers"),
    ("phi3-0", {"rope_scaling": {"type": "su", "short_factor": [0] * 6}}, "rotary positions need numbers above zero"),
    ("phi3-0", {"rope_scaling": {"type": "su", "short_factor": [True] * 6}}, "short_factor should be a list of"),
    ("phi3-0", {"partial_rotary_factor": 1.5}, "partial_rotary_factor should be above 0 and at most 1"),
    ("gpt2-0", {"add_cross_attention": True}, "add_cross_attention True"),
    ("gpt_neox-0", {"rotary_pct": 0.05}, "rotary positions need heads of an even width, got 0"),
    ("mistral-0", {"sliding_window": 0}, "sliding_window should be an integer of at least 1"),
    ("gemma2-0", {"attn_logit_softcapping": -1.0}, "softcap should be 0 or between 1e-30 and 1e30, is -1"),
    ("gemma2-0", {"final_logit_softcapping": 1e-40}, "output_cap should be 0 or between"),
    ("gemma2-0", {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
    ("gemma2-0", {"layer_types": ["chunked_attention"] * 3}, "layer_types should be full_attention or sliding"),
    ("smollm3-0", {"no_rope_layers": [1, 0]}, "no_rope_layers should be 0 or 1 for each of 5 layers"),
    ("smollm3-0", {"no_rope_layers": "no"}, "no_rope_layers should be 0 or 1"),
    ("hunyuan_v1_dense-0", {"rope_scaling": {"type": "dynamic", "alpha": -2}}, "alpha should be from 0"),
    ("hunyuan_v1_dense-0", {"rope_scaling": {"type": "dynamic", "alpha": GREATEST}}, "alpha should be a finite number"),
    ("hunyuan_v1_dense-0", {"use_cla": True}, "use_cla True"),
]  # fmt: skip


def test_a_setting_that_is_not_followed_is_named(tmp_path: Path) -> None:
    for name, change, message in REFUSED:
        write_golden(_case(name), tmp_path)
        write_json(tmp_path / "config.json", _case(name).config | change)
        assert message in refusal(tmp_path, names_path=False)


def test_a_damaged_file_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    for file, content, message in (
        ("chat_template.jinja", b"\xff", "chat_template.jinja: not UTF-8 at byte 0"),
        ("tokenizer_config.json", b'{"chat_template": 3}', "chat_template should be a string, or several by name"),
        (
            "tokenizer_config.json",
            b'{"chat_template": [{"name": "default", "template": 3}]}',
            "chat_template should be",
        ),
        ("generation_config.json", b'{"eos_token_id": [2, 99]}', "eos_token_id should be ids below 61"),
        (
            "generation_config.json",
            b'{"bad_words_ids": [[2, 99]]}',
            "one of bad_words_ids should be the id of a target",
        ),
        ("generation_config.json", b'{"suppress_tokens": [-1]}', "suppress_tokens should be a list of ids, is [-1]"),
        ("generation_config.json", b'{"begin_suppress_tokens": [99]}', "should be the id of a target token, is 99"),
    ):
        folder = tmp_path_factory.mktemp("case")
        write_golden(_case("llama-0"), folder)
        (folder / file).write_bytes(content)
        assert message in refusal(folder)
