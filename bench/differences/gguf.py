"""Language models in files of the gguf package beside transformers' own of the dequantized tensors; blocks alone."""

import math
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Types
from transformers import AutoModelForCausalLM

import fastattn
from bench.differences import Case, Skipped, difference
from bench.differences.decoders import OWN_SIZES, SIZES
from bench.differences.folders import OPTION, VOCABULARY, config_of, loaded, write_model
from fastattn.spec.quantized import as_float32
from fastattn.weights.containers.gguf import read_gguf
from fastattn.weights.folder import Directory

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Of types that the package only reads: where blocks have float16 scales, and the numbers' size for a scale of 1.
SCALES = {"Q4_K": ((0, 300.0), (2, 40.0)), "Q5_K": ((0, 600.0), (2, 40.0)), "Q6_K": ((208, 1400.0),)}
ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e4},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4, "beta_fast": 16.0},
]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5}
LLAMA3 |= {"original_max_position_embeddings": 8192}
GEMMA3_ROPE = {"full_attention": ROPES[1], "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}
OWN = {OPTION + part: TYPES for part in ("all", "token_embd", "output", "attn_v", "attn_output", "ffn_down")}
OWN |= {OPTION + "alignment": [64, 256], OPTION + "keys": ["fewest"], OPTION + "tokenizer": ["llama"]}
LLAMA = OWN | {"num_key_value_heads": [1, 4], "head_dim": [32, 64], "rms_norm_eps": [1e-3], "rope_parameters": ROPES}
LLAMA |= {"tie_word_embeddings": [True, False], "num_hidden_layers": [1, 3]}
GEMMA = LLAMA | {"sliding_window": [6], "tie_word_embeddings": [True]}
GPT2 = OWN | {"n_inner": [512], "layer_norm_epsilon": [1e-3]}
NEOX = OWN | {"rotary_pct": [0.5, 1.0, 0.125], "use_parallel_residual": [False], "layer_norm_eps": [1e-3]}
CHOICES: dict[str, dict[str, list[Any]]] = {
    "llama": LLAMA | {"rope_parameters": [*ROPES, LLAMA3], "attention_bias": [True], "mlp_bias": [True]},
    **dict.fromkeys(("qwen2", "qwen3", "olmo2"), LLAMA),
    "smollm3": LLAMA | {"num_hidden_layers": [4, 5]},
    "hunyuan_v1_dense": LLAMA | {"rope_parameters": ROPES[:1]},
    "phi3": LLAMA | {"sliding_window": [5, None], "head_dim": [64], "rope_parameters": ROPES[:1]},
    "gemma2": GEMMA | {"rope_parameters": ROPES[:1], "final_logit_softcapping": [5.0, None], "attn_logit_softcapping": [3.0, None]},
    "gemma3_text": GEMMA | {"num_hidden_layers": [6, 7], "rope_parameters": [GEMMA3_ROPE]},
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    **{f"{name} blocks": {"rows": [1, 3, 40], "columns": [256, 1024], "scales": ["any"]} for name in TYPES},
}
SIZE = 256  # of all rows, so that they hold the longest blocks
ARCHITECTURES = {"gpt_neox": "gptneox", "gemma3_text": "gemma3", "hunyuan_v1_dense": "hunyuan-dense"}
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
SIGNS = [chr(code) for code in range(ord("!"), ord("~") + 1)]
TEXTS = {
    "gpt2": {"model": "gpt2", "pre": "gpt-2", "tokens": ["<pad>", "<s>", "</s>", *SIGNS, "AB", "CD"]}
    | {"token_type": [3] * 3 + [1] * 96, "merges": ["A B", "C D"]},
    "llama": {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", *SIGNS, "AB", "\u2581"]}
    | {"token_type": [2, 3, 3] + [1] * 96, "scores": [-float(i) for i in range(99)]},
}


def compare(case: Case, folder: Path) -> str:
    return _blocks(case, folder) if case.base.endswith("blocks") else _model(case, folder)


def _blocks(case: Case, folder: Path) -> str:
    name, chosen = case.base.split()[0], case.chosen
    data = random_blocks(case.rng, name, chosen.get("rows", 2), chosen.get("columns", 256), float("scales" not in chosen))
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_tensor("it", data, raw_dtype=Types[name])
    _write(writer)
    tensor = read_gguf(Directory(folder), "model.gguf").tensors["it"]
    with np.errstate(all="ignore"):
        ours, expected = tensor.float32(), gguf.quants.dequantize(data, Types[name])
    known = ~np.isnan(expected)
    if not np.array_equal(known, ~np.isnan(ours)) or ours[known].tobytes() != expected[known].tobytes():
        return "bits of numbers differ"
    return "" if "scales" in chosen else difference("matrix", as_float32(tensor.matrix()), expected)


def random_blocks(rng: np.random.Generator, name: str, rows: int, columns: int, size: float) -> np.ndarray:
    """uint8 [rows, bytes]: random blocks, with scales that make numbers of about that size where it is above 0.

    The scales are powers of 2: fastattn keeps Q4_K's products in float16, and sums of other ones differ by that.
    """
    width, length = gguf.GGML_QUANT_SIZES[Types[name]]
    blocks = rng.integers(0, 256, (rows * columns // width, length), dtype=np.uint8)
    for at, most in SCALES.get(name, ()) if size else ():
        scales = 2.0 ** (rng.integers(-2, 2, (len(blocks), 1)) + round(math.log2(size / most)))
        blocks[:, at : at + 2] = scales.astype("<f2").view(np.uint8)
    return blocks.reshape(rows, -1)


@torch.no_grad()
def _model(case: Case, folder: Path) -> str:
    sizes = OWN_SIZES.get(case.base, SIZES) | {"hidden_size": SIZE, "intermediate_size": SIZE}
    sizes |= {"n_embd": SIZE} if case.base == "gpt2" else {}
    # What files do not tell: the scale of Gemma's scores is that of a head's width.
    sizes |= {"query_pre_attn_scalar": case.chosen.get("head_dim", 64), "head_dim": 64} if "gemma" in case.base else {}
    sizes |= {"num_hidden_layers": 4} if case.base == "smollm3" else {}
    try:
        write_model(case, folder, config_of(case, sizes), AutoModelForCausalLM)
    except (ValueError, RuntimeError, TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
        raise Skipped(str(error)) from None
    theirs = loaded(AutoModelForCausalLM, folder)
    _write_model(case, folder / "model.gguf", theirs)
    generator = fastattn.Generator(folder / "model.gguf", precision="float32", threads=1)
    for length in (2, 11, 40):
        ids = case.rng.integers(3, VOCABULARY, length)
        logits = theirs(torch.from_numpy(ids)[None]).logits[0].double()
        expected = logits.log_softmax(-1)[range(length - 1), torch.from_numpy(ids[1:])]
        found, allowed = generator.score(ids, special_tokens=False), 1e-4 * max(1.0, float(logits.abs().max()))
        if said := difference("log-probability", found.log_probs, expected, allowed):
            return said
        answer = generator.generate(ids, max_new_tokens=6, details=True)
        tokens = [*answer.tokens, *[2] * (answer.finish_reason == "stop")]
        whole = torch.tensor([*ids, *tokens])
        best = theirs(whole[None]).logits[0, length - 1 : -1].double()
        if (best.amax(-1) - best[range(len(tokens)), tokens]).max() > allowed:
            return f"greedy tokens are {tokens}, theirs {best.argmax(-1).tolist()}"
    return ""


def _write_model(case: Case, path: Path, model: Any) -> None:
    """Write the file, and put into the model what its tensors are when they are read."""
    config, name = model.config, ARCHITECTURES.get(case.base, case.base)
    writer = gguf.GGUFWriter(path, name)
    writer.add_custom_alignment(case.chosen.get(OPTION + "alignment", 32))
    for key, value in _metadata(config, OPTION + "keys" in case.chosen).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{name}.{key}", value)
    for key, value in TEXTS[case.chosen.get(OPTION + "tokenizer", "gpt2")].items():
        (writer.add_array if isinstance(value, list) else writer.add_string)(f"tokenizer.ggml.{key}", value)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    architecture = next(key for key, one in gguf.MODEL_ARCH_NAMES.items() if one == name)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    if config.rope_parameters.get("rope_type") == "llama3" if hasattr(config, "rope_parameters") else False:
        plain = 1 / 5e5 ** (np.arange(0, config.head_dim, 2) / config.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32))
    for theirs, parameter in model.named_parameters():
        ours = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        kind, part = "F32", ours.split(".")[-2]
        if parameter.ndim == 2 and part != "position_embd":
            kind = case.chosen.get(OPTION + part, case.chosen.get(OPTION + "all", "F32"))
        turned = "c_" in theirs and parameter.ndim == 2  # GPT-2's weights are [inputs, outputs]
        values = (parameter.T if turned else parameter).contiguous().numpy()
        if values.shape[-1] % gguf.GGML_QUANT_SIZES[Types[kind]][0]:
            kind = "F16"
        if kind in SCALES:
            data = random_blocks(case.rng, kind, *values.shape, 1.2 / values.shape[1] ** 0.5)
        else:
            data = gguf.quants.quantize(values, Types[kind])
        kept = torch.from_numpy(gguf.quants.dequantize(data, Types[kind]).copy())
        parameter.copy_(kept.T if turned else kept)
        if case.base in ("llama", "smollm3") and part in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            data = data.reshape(heads, 2, -1, *data.shape[1:]).swapaxes(1, 2).reshape(data.shape)
        elif case.base == "gpt_neox" and part == "attn_qkv":
            data = data.reshape(config.num_attention_heads, 3, -1, *data.shape[1:]).swapaxes(0, 1).reshape(data.shape)
        elif "gemma" in case.base and "norm" in part:
            data = data + np.float32(1)
        writer.add_tensor(ours, np.ascontiguousarray(data), raw_dtype=Types[kind])
    _write(writer)


def _metadata(config: Any, fewest: bool) -> dict[str, Any]:
    """The keys that the converter of llama.cpp writes; ``fewest``: not those that say what is usual."""
    heads, kind = config.num_attention_heads, config.model_type
    width, plain = getattr(config, "head_dim", None) or SIZE // heads, kind in ("gpt2", "gpt_neox")
    epsilon = next(getattr(config, name) for name in EPSILONS if hasattr(config, name))
    keys = {
        "context_length": config.max_position_embeddings, "embedding_length": SIZE,
        "block_count": config.num_hidden_layers, "attention.head_count": heads,
        "feed_forward_length": 4 * SIZE if kind == "gpt2" else config.intermediate_size,
        f"attention.layer_norm_{'' if plain else 'rms_'}epsilon": epsilon,
    }  # fmt: skip
    if kind == "gpt2":
        return keys | ({"feed_forward_length": config.n_inner} if config.n_inner else {})
    rope = getattr(config, "rope_parameters")
    if kind == "gemma3_text":
        keys["rope.freq_base_swa"], rope = float(rope["sliding_attention"]["rope_theta"]), rope["full_attention"]
    if not (fewest and rope["rope_theta"] == 1e4):
        keys["rope.freq_base"] = float(rope["rope_theta"])
    if kind == "gpt_neox":
        more = {"use_parallel_residual": config.use_parallel_residual}
        return keys | more | {"rope.dimension_count": int(width * rope["partial_rotary_factor"])}
    if not (fewest and config.num_key_value_heads == heads):
        keys["attention.head_count_kv"] = config.num_key_value_heads
    if not (fewest and width == (256 if "gemma" in kind else SIZE // heads)):
        keys |= {"attention.key_length": width, "attention.value_length": width}
    if not fewest and "gemma" not in kind:
        keys["rope.dimension_count"] = int(width * rope.get("partial_rotary_factor", 1.0))
    if rope["rope_type"] in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        keys |= {"rope.scaling.yarn_beta_fast": rope["beta_fast"]} if "beta_fast" in rope else {}
    if kind in ("gemma2", "gemma3_text", "phi3") and config.sliding_window:
        keys["attention.sliding_window"] = config.sliding_window
    if kind == "gemma2":
        keys |= {name: getattr(config, name) or 0.0 for name in ("attn_logit_softcapping", "final_logit_softcapping")}
    return keys


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
