"""Every architecture as published against rows that transformers computed (goldens/make_architectures.py)."""

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
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.spec.architecture import Rotary
from fastattn.spec.text_spec import DecodingSettings, GeneratorText
from fastattn.text.chat import ChatTemplate
from fastattn.weights import read
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.decoders import DECODERS, find_decoder, text_config
from fastattn.weights.native import convert
from tests import messages
from tests.architectures.case import Case, make_ids, make_types, some_rows
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_continuations, read_goldens, write_golden
from tests.architectures.outputs import TOKENS, continuations, load, outputs, pass_logits, step_logits
from tests.decoding.test_recorded_steps import counted_runs, steps_by_themselves
from tests.weights.native.folders import converted

BY_NAME = {case.name: case for case in GOLDEN_CASES}
# What precedes an encoder's tensors in the files of its models with heads, and a tensor of such a head.
HEADED = {
    "bert-0": ("bert.", "cls.predictions.bias"), "roberta-0": ("roberta.", "lm_head.bias"),
    "xlm-roberta-0": ("roberta.", "classifier.dense.bias"), "camembert-0": ("roberta.", "lm_head.layer_norm.bias"),
    "mpnet-0": ("mpnet.", "lm_head.bias"), "distilbert-0": ("distilbert.", "vocab_projector.bias"),
    "electra-0": ("electra.", "discriminator_predictions.dense.bias"), "albert-0": ("albert.", "predictions.bias"),
    "modernbert-0": ("model.", "decoder.bias"), "nomic-0": ("nomic_bert.", "cls.predictions.bias"),
    "nomic-gpt2-names-0": ("bert.", "cls.predictions.decoder.bias"), "new-0": ("new.", "lm_head.decoder.bias"),
    "gte-0": ("gte.", "classifier.bias"), "jina-0": ("bert.", "cls.predictions.bias"),
    "qwen3-0": ("model.", "lm_head.weight"), "qwen2-0": ("model.", "score.weight"),
    "gemma3-0": ("model.", "lm_head.weight"), "t5-0": ("", "decoder.final_layer_norm.weight"),
    "deberta-v2-0": ("deberta.", "cls.predictions.bias"),
}  # fmt: skip
ROTARY = ("nomic-0", "nomic-gpt2-names-0", "new-0", "gte-0")


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=lambda case: case.name)
def test_outputs_are_the_goldens_and_each_sentence_has_the_same_bits_alone(case: Case, tmp_path: Path) -> None:
    expected = write_golden(case, tmp_path)
    found = np.concatenate([some_rows(output) for output in outputs(tmp_path, case)])
    least = 1e-4 if case.task == "encoder" else 1e-5
    assert np.abs(found - expected).max() <= least * np.abs(expected).max()
    for precision in ("float32", "int8") if case.task == "encoder" else ():
        model: Any = build_model(read(tmp_path), operations, precision)
        ids_B, types_B = make_ids(case), make_types(case)
        rows_ND, starts_B1 = model.encode(ids_B, types_B)
        for b, ids in enumerate(ids_B):
            with operations.use_threads(1):
                alone_TD, _ = model.encode([ids], None if types_B is None else [types_B[b]])
            np.testing.assert_array_equal(alone_TD, rows_ND[starts_B1[b] : starts_B1[b + 1]])


def test_a_file_with_a_head_holds_the_same_encoder(tmp_path: Path) -> None:
    """Of every architecture, under the prefix that its models with heads have."""
    assert set(HEADED) == {name for name in BY_NAME if name.endswith("-0")}
    for name, (prefix, head) in HEADED.items():
        case = BY_NAME[name]
        tensors = draw_all(read_goldens(case)[0], case.seed)
        headed = {prefix + name: tensor for name, tensor in tensors.items()} | {head: np.ones(3, np.float32)}
        if "embeddings.word_embeddings.weight" in tensors and name not in ROTARY:
            headed[f"{prefix}embeddings.position_ids"] = np.arange(40)[None]  # which old files hold
        found = []
        for kind, stored in (("alone", tensors), ("headed", headed)):
            folder = tmp_path / f"{name} {kind}"
            folder.mkdir()
            found.append(outputs(write_folder(folder, case.config, stored), case))
        for alone_TD, headed_TD in zip(*found, strict=True):
            np.testing.assert_array_equal(headed_TD, alone_TD, err_msg=name)


@pytest.mark.parametrize("name", ["bert-sequence-classification", "roberta-fill-mask"])
def test_a_head_survives_a_conversion_in_float32(name: str, tmp_path: Path) -> None:
    case, theirs = BY_NAME[name], tmp_path / "theirs"
    theirs.mkdir()
    write_golden(case, theirs)
    original, expected = read(theirs), outputs(theirs, case)
    tied = original.tensors["head.output.weight"] is original.tensors["encoder.embedding.weight"]
    assert tied == (case.task == "fill-mask")
    for precision, least in (("float32", 1.0), ("bfloat16", 0.999), ("int8", 0.98)):
        again = read(converted(original, tmp_path / precision, precision))
        assert (again.spec, again.text) == (original.spec, original.text)
        assert (again.tensors["head.output.weight"] is again.tensors["encoder.embedding.weight"]) == tied
        for tensor in (tensor for tensor in original.tensors if tensor.startswith("head.") and not tied):
            np.testing.assert_array_equal(again.tensors[tensor], original.tensors[tensor])
        for output, wanted in zip(outputs(tmp_path / precision, case), expected, strict=True):
            assert (output * wanted).sum() / np.linalg.norm(output) / np.linalg.norm(wanted) >= least - 1e-6
            assert precision != "float32" or np.array_equal(output, wanted)
    assert convert.weight_bytes(original, "float32") > convert.weight_bytes(original, "int8")


def test_a_head_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    case = BY_NAME["bert-sequence-classification"]
    for change in (
        *({"architectures": named} for named in (["BertModel"], None, [5])),
        *({"id2label": None, "num_labels": count} for count in (2, 5, 10**12)),
        *({"id2label": labels} for labels in ({"0": "a", "2": "b", "3": "c"}, {"0": "a", "1": "b", "2": 3}, {}, [])),
        {"problem_type": "guess"},
        {"sentence_transformers": {"activation_fn": "torch.nn.Fish"}},
    ):
        write_golden(case, tmp_path, change)
        checkpoint = read(tmp_path)
        assert checkpoint.spec.head is None and not checkpoint.text.labels and "\n" not in checkpoint.headless
        messages.check(checkpoint.headless)
        assert not [name for name in checkpoint.tensors if name.startswith("head.")]


def test_settings_that_change_what_is_computed(tmp_path: Path) -> None:
    """Without transformers to compare with."""

    def stack(name: str, **change: Any) -> Any:
        write_golden(BY_NAME[name], tmp_path, change)
        return read(tmp_path).spec.encoder

    assert stack("qwen2-0").causal  # it looks both ways where its settings say so
    assert not stack("qwen2-0", is_causal=False).causal
    assert not stack("qwen2-0", is_causal=False, auto_map={"AutoModel": "code.Model"}).causal
    # MPNet's positions start at 2 whatever the padding is
    assert stack("mpnet-0", pad_token_id=0) == stack("mpnet-0")
    # rotary settings under both their names are read where they agree
    both = {"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0}
    rotary = stack("qwen3-0", rope_scaling=both, rope_parameters=both).positions.rotary
    assert (rotary.scale, rotary.base) == (2.0, 77.0)
    # Nomic's own names have defaults, and its positions end where scaling would begin
    plain = stack("nomic-gpt2-names-0", rotary_emb_base=None, layer_norm_epsilon=None)
    assert (plain.positions.rotary.base, plain.norms.epsilon) == (10_000.0, 1e-12)
    scaled = stack("nomic-gpt2-names-0", rotary_scaling_factor=2, max_trained_positions=50)
    assert scaled.positions.limit == 50


DECODERS_BY_NAME = {case.name: case for case in GOLDEN_DECODERS}


@pytest.mark.parametrize("case", GOLDEN_DECODERS, ids=lambda case: case.name)
def test_logits_and_tokens_of_decoders_are_the_goldens(case: Case, tmp_path: Path) -> None:
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


def test_there_are_goldens_of_all_decoders() -> None:
    assert {case.model_type for case in GOLDEN_DECODERS} | {"gemma3"} == set(DECODERS)


@pytest.mark.parametrize(
    "name", ["gpt2-0", "gpt_neox-0", "gemma2-0", "hunyuan_v1_dense-0", "olmo2-0", "phi3-long-2", "smollm3-2"]
)
def test_decoders_come_back_from_a_conversion(name: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_golden(DECODERS_BY_NAME[name], tmp_path / "model")
    checkpoint = read(tmp_path / "model")
    tied = checkpoint.tensors["decoder.projection.weight"] is checkpoint.tensors["decoder.embedding.weight"]
    for precision in ("float32", "bfloat16", "int8"):
        again = read(converted(checkpoint, tmp_path / precision, precision))
        assert (again.spec, again.text, again.precision) == (checkpoint.spec, checkpoint.text, precision)
        assert (again.tensors["decoder.projection.weight"] is again.tensors["decoder.embedding.weight"]) == tied


def test_the_text_of_a_model_that_sees_images_is_read(tmp_path: Path) -> None:
    """Under both orders of names, with settings that the text's part does not repeat, without a cap of its logits."""
    case = DECODERS_BY_NAME["gemma3_text-0"]
    tensors = draw_all(read_goldens(case)[0], case.seed)
    write_golden(case, tmp_path)
    expected = pass_logits(load(tmp_path), case)
    nested = {name: value for name, value in case.config.items() if name not in ("architectures", "eos_token_id")}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "vision_config": {},
        "eos_token_id": [2, 7], "text_config": nested | {"final_logit_softcapping": 3.0},
        "vocab_size": case.config["vocab_size"],
    }  # fmt: skip
    first = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    second = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()}
    seen = dict.fromkeys(("vision_tower.embeddings", "multi_modal_projector.w"), np.ones(3, np.float32))
    for name, renamed in (("first", first), ("second", second)):
        folder = tmp_path / name
        folder.mkdir()
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
    config = text_config(JsonObject({"model_type": "gemma3", "text_config": part}, "config.json"))
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
        case = DECODERS_BY_NAME[name]
        tensors = draw_all(read_goldens(case)[0], case.seed)
        buffers = {buffer: np.ones(shape, np.float32) for buffer, shape in more.items()}
        read_again = []
        for kind, held in (("today", tensors), ("old", buffers | tensors)):
            folder = tmp_path / f"{name} {kind}"
            folder.mkdir()
            read_again.append(read(write_folder(folder, case.config, held)))
        today, old = read_again
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
        case, text = DECODERS_BY_NAME[name], "w7 w9 w30"
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
            found_D = Encoder(folder, threads=1).encode(text)
            np.testing.assert_array_equal(found_D, encoder.encode(text, pooling="mean"))
            looks_ahead = {"qwen3-0": {"is_causal": False}, "gemma3_text-0": {}}[name]
            config |= {"architectures": [CAUSAL_LM[name].replace("Model", "ForCausalLM")]} | looks_ahead
            (folder / "config.json").write_text(json.dumps(config))
            assert read(folder).text.pooling == (("mean",) if looks_ahead else ("lasttoken",))


def _text(folder: Path, files: dict[str, Any], change: dict[str, Any] | None = None) -> GeneratorText:
    write_golden(DECODERS_BY_NAME["llama-0"], folder, change)
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
    sampling = {f"sampling_{name}": value for name, value in (("topk", 20), ("topp", 1.0), ("minp", 0.0))}
    tokens = {"suppress_sequences": ((3, 4), (2,), (8,), (9,)), "begin_suppress_tokens": (11,)}
    expected = {"beam_size": 1, "max_decoding_length": 50, "sampling_temperature": 0.7}
    assert text.decoding == DecodingSettings(**expected, **sampling, **tokens)


def test_the_context_of_longrope_ends_where_that_of_training_did(tmp_path: Path) -> None:
    """Longer texts have other factors from their first token on, so that a cache cannot grow beyond."""
    write_golden(DECODERS_BY_NAME["phi3-long-0"], tmp_path)
    with pytest.raises(InputError, match="prompt 0 has 120 tokens, and the model's context 120 for it and the answer"):
        Generator(tmp_path).generate([5] * 120)


SEVERAL = [{"name": "tool", "template": "a"}, {"name": "default", "template": "b"}]


def test_the_template_is_the_files_own_or_the_default_of_several(tmp_path_factory: pytest.TempPathFactory) -> None:
    for files, template in (
        ({"tokenizer_config.json": {"chat_template": SEVERAL}}, "b"),
        ({"tokenizer_config.json": {"chat_template": "a"}, "chat_template.jinja": "c"}, "c"),
        ({"tokenizer_config.json": {"chat_template": SEVERAL[:1]}}, ""),
        ({}, ""),
    ):
        folder = tmp_path_factory.mktemp("case")
        text = _text(folder, files)
        assert text.chat_template == template and text.end_ids == (2,) and text.decoding == DecodingSettings()


# Templates whose ends are of interest, of usual conversations and of those with tools.
ENDS = [("\n  a\n  ", "{{- messages|length }}\n\n"), ("{# b #}\r\n", "\n\n {%- if 1 %}c{% endif -%}\n")]


@pytest.mark.parametrize("as_files", [False, True])
def test_conversations_with_tools_have_a_template_of_their_own(tmp_path: Path, as_files: bool) -> None:
    pytest.importorskip("jinja2")
    for usual, of_tools in [*ENDS, *[pair[::-1] for pair in ENDS]]:
        listed = [{"name": "default", "template": usual}, {"name": "tool_use", "template": of_tools}]
        files: dict[str, Any] = {"tokenizer_config.json": {"chat_template": listed}}
        if as_files:
            (tmp_path / "additional_chat_templates").mkdir(exist_ok=True)
            files = {"chat_template.jinja": usual, "additional_chat_templates/tool_use.jinja": of_tools}
        template = ChatTemplate(_text(tmp_path, files).chat_template)
        for source, tools in ((usual, None), (of_tools, []), (of_tools, [{"type": "function"}])):
            messages = [{"role": "user", "content": "Hello"}]
            assert template.render(messages, tools=tools) == ChatTemplate(source).render(messages, tools=tools)
