"""What would be computed otherwise than its authors do, or is damaged: one line says which setting it is."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fastattn.errors import CheckpointError
from fastattn.weights import read
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.architectures.goldens import write_golden, write_translator
from tests.messages import refused

HUGE, GREATEST = 10**400, 10**9


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, **more}}


def _type(kind: str, **more: Any) -> dict[str, Any]:
    """Under the older name."""
    return {"rope_scaling": {"type": kind, **more}}


# Golden case -> changes of its config.json, one at a time.
ENCODERS: dict[str, list[dict[str, Any]]] = {
    "bert-0": [
        {"position_embedding_type": "relative_key"}, {"is_decoder": True}, {"hidden_act": "leaky_relu"},
        {"num_attention_heads": 5}, {"type_vocab_size": 17},
    ],
    "gemma3-0": [
        {"use_bidirectional_attention": False, "is_causal": False}, {"attn_logit_softcapping": 50.0},
        {"query_pre_attn_scalar": 0}, {"hidden_size": HUGE}, {"query_pre_attn_scalar": 1e-320},
        {"sliding_window": HUGE}, _type("linear", factor=1e-320),
    ],
    "qwen3-0": [
        {"auto_map": {"AutoModel": "code.Model"}}, {"head_dim": 9}, {"head_dim": HUGE},
        {"use_bidirectional_attention": True}, _rope("yarn", factor=4.0) | {"rope_parameters": {"rope_theta": 1e6}},
        _rope("su", factor=4.0), _rope("llama3", factor=8.0), _rope("yarn", factor=0),
        _rope("yarn", factor=2.0, beta_fast=0.5), _rope("yarn", factor=2.0) | {"rope_theta": 1.0},
        _rope("yarn", factor=math.e**10, mscale=1.0, mscale_all_dim=-1.0),
        _rope("linear", factor=2.0, partial_rotary_factor=0.5),
    ],
    "nomic-gpt2-names-0": [
        {"rotary_emb_scale_base": 512}, {"scale_attn_weights": False}, {"moe_every_n_layers": 2},
        {"rotary_emb_interleaved": True}, {"rotary_emb_fraction": 0.5}, {"prenorm": True},
        {"activation_function": "relu"}, {"rotary_emb_base": -3},
    ],
    "mpnet-0": [{"relative_attention_num_buckets": 40}],
    "modernbert-0": [{"layer_types": ["full_attention"]}, _type("longrope", factor=2.0), {"local_attention": HUGE}],
    "new-0": [
        _type("ntk", factor=2.0, mixed_b=0.6), _type("ntk", factor=0), {"logn_attention_scale": True},
        {"layer_norm_type": "rms_norm"},
    ],
    "jina-0": [
        {"feed_forward_type": "swiglu"},
        {"auto_map": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}},
    ],
    "t5-0": [{"relative_attention_max_distance": HUGE}, {"feed_forward_proj": "gated-prelu"}],
}  # fmt: skip
DECODERS: dict[str, list[dict[str, Any]]] = {
    "llama-0": [
        {"model_type": "mixtral"}, {"model_type": "deepseek_v3"}, {"quantization_config": {"quant_method": "gptq"}},
        {"architectures": ["LlamaForSequenceClassification"]}, {"eos_token_id": 61}, {"eos_token_id": "</s>"},
        {"vocab_size": HUGE}, {"num_hidden_layers": 900}, {"num_key_value_heads": 2}, _rope("longrope", factor=2.0),
    ],
    "phi3-0": [
        _type("longrope", short_factor=[1.0]), _type("yarn", factor=4.0), _type("su", short_factor=[0] * 6),
        _type("su", short_factor=[True] * 6), {"partial_rotary_factor": 1.5},
    ],
    "gpt2-0": [{"add_cross_attention": True}],
    "gpt_neox-0": [{"rotary_pct": 0.05}],
    "mistral-0": [{"sliding_window": 0}],
    "gemma2-0": [
        {"attn_logit_softcapping": -1.0}, {"final_logit_softcapping": 1e-40}, {"use_bidirectional_attention": True},
        {"layer_types": ["chunked_attention"] * 3},
    ],
    "smollm3-0": [{"no_rope_layers": [1, 0]}, {"no_rope_layers": "no"}],
    "hunyuan_v1_dense-0": [_type("dynamic", alpha=-2), _type("dynamic", alpha=HUGE), {"use_cla": True}],
}  # fmt: skip
TRANSLATORS: dict[str, list[dict[str, Any]]] = {
    "bart-0": [
        {"architectures": ["BartForSequenceClassification"]}, {"d_model": 37}, {"vocab_size": GREATEST},
        {"vocab_size": 300}, {"vocab_size": 1000}, {"max_position_embeddings": GREATEST}, {"decoder_layers": 1000},
        {"encoder_ffn_dim": 10**12}, {"activation_function": "prelu"},
    ],
    "nllb-0": [{"encoder_layers": 4}],
    "t5-0": [
        {"vocab_size": GREATEST}, {"vocab_size": 100}, {"d_model": 10**12}, {"d_kv": 8},
        {"num_decoder_layers": GREATEST}, {"num_decoder_layers": 1000}, {"feed_forward_proj": "gated-prelu"},
        {"relative_attention_num_buckets": 31}, {"model_type": "umt5"},
        {"task_specific_params": {"translation_en_to_de": 7}},
    ],
}  # fmt: skip
# Files beside config.json: what is changed in them, or what they hold instead; None: they are missing.
FILES: dict[tuple[str, str], list[Any]] = {
    ("llama-0", "chat_template.jinja"): [b"\xff"],
    ("llama-0", "tokenizer_config.json"): [
        {"chat_template": 3}, {"chat_template": [{"name": "default", "template": 3}]},
    ],
    ("llama-0", "generation_config.json"): [
        {"eos_token_id": [2, 99]}, {"bad_words_ids": [[2, 99]]}, {"suppress_tokens": [-1]},
        {"begin_suppress_tokens": [99]},
    ],
    ("bart-0", "generation_config.json"): [
        {"eos_token_id": 9999}, {"eos_token_id": 5}, {"decoder_start_token_id": -1},
    ],
    ("m2m100-0", "vocab.json"): [{"x": 10**6}, None],
    ("m2m100-0", "tokenizer_config.json"): [{"language_codes": "all"}],
    ("pegasus-0", "tokenizer_config.json"): [{"offset": GREATEST}],
    ("m2m100-0", "sentencepiece.bpe.model"): [None],
    ("mbart-0", "sentencepiece.bpe.model"): [None],
    ("pegasus-0", "spiece.model"): [None],
    ("nllb-0", "model.safetensors"): [None],
}  # fmt: skip


def _write(name: str, folder: Path, kind: str = "") -> None:
    known = {"encoder": GOLDEN_CASES, "decoder": GOLDEN_DECODERS}.get(kind, [])
    for case in (case for case in known if case.name == name):
        write_golden(case, folder)
        return
    write_translator(name, folder)


def _change(path: Path, change: Any) -> None:
    if change is None:
        path.unlink()
    elif isinstance(change, bytes):
        path.write_bytes(change)
    else:
        held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(held | change), encoding="utf-8")


@pytest.mark.parametrize("kind", ["encoder", "decoder", "translator"])
def test_a_setting_that_is_not_followed_is_named(kind: str, tmp_path: Path) -> None:
    for name, changes in {"encoder": ENCODERS, "decoder": DECODERS, "translator": TRANSLATORS}[kind].items():
        folder = tmp_path / name
        folder.mkdir()
        for change in changes:
            _write(name, folder, kind)
            _change(folder / "config.json", change)
            with refused(CheckpointError):
                read(folder)


def test_a_file_that_is_damaged_or_missing_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    for (name, file), change in ((place, change) for place, changes in FILES.items() for change in changes):
        folder = tmp_path_factory.mktemp("case")
        _write(name, folder, "decoder" if name == "llama-0" else "translator")
        _change(folder / file, change)
        with refused(CheckpointError, str(folder)):
            read(folder)


def test_a_table_of_languages_that_is_missing(tmp_path: Path) -> None:
    write_translator("nllb-0", tmp_path)
    added = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    kept = [token for token in added if "_" not in token["content"]]
    _change(tmp_path / "tokenizer.json", {"added_tokens": kept, "post_processor": None})
    with refused(CheckpointError, "tokenizer.json"):
        read(tmp_path)
