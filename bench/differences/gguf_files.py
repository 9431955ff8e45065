"""GGUF files of transformers models, as llama.cpp's converter writes them."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Types

from bench.differences import Case
from bench.differences.folders import OPTION

# For types that the package cannot write: where blocks have float16 scales, and the numbers' size at scale 1.
SCALES = {"Q4_K": ((0, 300.0), (2, 40.0)), "Q5_K": ((0, 600.0), (2, 40.0)), "Q6_K": ((208, 1400.0),)}
SIZE = 256  # width of all rows: the length of the longest blocks
ARCHITECTURES = {"gpt_neox": "gptneox", "gemma3_text": "gemma3", "hunyuan_v1_dense": "hunyuan-dense"}
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
SIGNS = [chr(code) for code in range(ord("!"), ord("~") + 1)]
TEXTS = {
    "gpt2": {"model": "gpt2", "pre": "gpt-2", "tokens": ["<pad>", "<s>", "</s>", *SIGNS, "AB", "CD"]}
    | {"token_type": [3] * 3 + [1] * 96, "merges": ["A B", "C D"]},
    "llama": {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", *SIGNS, "AB", "\u2581"]}
    | {"token_type": [2, 3, 3] + [1] * 96, "scores": [-float(i) for i in range(99)]},
}


def random_blocks(rng: np.random.Generator, name: str, rows: int, columns: int, size: float) -> np.ndarray:
    """Random blocks, uint8 [rows, bytes]; a ``size`` above 0 sets the scales so that numbers are of about that size."""
    width, length = gguf.GGML_QUANT_SIZES[Types[name]]
    blocks = rng.integers(0, 256, (rows * columns // width, length), dtype=np.uint8)
    for at, most in SCALES.get(name, ()) if size else ():
        scales = np.abs(rng.standard_normal((len(blocks), 1))) * size / most
        blocks[:, at : at + 2] = scales.astype("<f2").view(np.uint8)
    return blocks.reshape(rows, -1)


def write_file(case: Case, path: Path, model: Any) -> None:
    """Write the model's file, and set the model's parameters to the dequantized tensors."""
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
    architecture = next(key for key, title in gguf.MODEL_ARCH_NAMES.items() if title == name)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    if getattr(config, "rope_parameters", {}).get("rope_type") == "llama3":
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
        dequantized = torch.from_numpy(gguf.quants.dequantize(data, Types[kind]).copy())
        parameter.copy_(dequantized.T if turned else dequantized)
        if case.base in ("llama", "smollm3") and part in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            data = data.reshape(heads, 2, -1, *data.shape[1:]).swapaxes(1, 2).reshape(data.shape)
        elif case.base == "gpt_neox" and part == "attn_qkv":
            data = data.reshape(config.num_attention_heads, 3, -1, *data.shape[1:]).swapaxes(0, 1).reshape(data.shape)
        elif "gemma" in case.base and "norm" in part:
            data = data + np.float32(1)
        writer.add_tensor(ours, np.ascontiguousarray(data), raw_dtype=Types[kind])
    finish(writer)


def _metadata(config: Any, fewest: bool) -> dict[str, Any]:
    """The keys that llama.cpp's converter writes; with ``fewest``, keys with their usual value are left out."""
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
    rope = config.rope_parameters
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


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
