"""Language models in GGUF files against transformers' of the dequantized tensors; blocks of weights alone."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Types
from transformers import AutoModelForCausalLM

import fastattn
from bench.differences import Case, difference
from bench.differences.decoders import OWN_SIZES, SIZES
from bench.differences.folders import OPTION, VOCABULARY, config_of, loaded, write_model
from bench.differences.gguf_files import SIZE, finish, random_blocks, write_file
from fastattn.spec.quantized import as_float32
from fastattn.weights.containers.gguf import parse_gguf
from fastattn.weights.folder import map_file

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
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
    "gemma2": GEMMA
    | {"rope_parameters": ROPES[:1], "final_logit_softcapping": [5.0, None], "attn_logit_softcapping": [3.0, None]},
    "gemma3_text": GEMMA | {"num_hidden_layers": [6, 7], "rope_parameters": [GEMMA3_ROPE]},
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    **{f"{name} blocks": {"rows": [1, 3, 40], "columns": [256, 1024], "scales": ["any"]} for name in TYPES},
}


def compare(case: Case, folder: Path) -> str:
    return _blocks(case, folder) if case.base.endswith("blocks") else _model(case, folder)


def _blocks(case: Case, folder: Path) -> str:
    name, chosen = case.base.split()[0], case.chosen
    shape = chosen.get("rows", 2), chosen.get("columns", 256)
    data = random_blocks(case.rng, name, *shape, float("scales" not in chosen))
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_tensor("it", data, raw_dtype=Types[name])
    finish(writer)
    tensor = parse_gguf(map_file(folder / "model.gguf"), "model.gguf").tensors["it"]
    with np.errstate(all="ignore"):
        ours, expected = tensor.float32(), gguf.quants.dequantize(data, Types[name])
    is_number = ~np.isnan(expected)
    if not np.array_equal(is_number, ~np.isnan(ours)) or ours[is_number].tobytes() != expected[is_number].tobytes():
        return "bits of numbers differ"
    return "" if "scales" in chosen else difference("matrix", as_float32(tensor.matrix()), expected)


@torch.no_grad()
def _model(case: Case, folder: Path) -> str:
    sizes = OWN_SIZES.get(case.base, SIZES) | {"hidden_size": SIZE, "intermediate_size": SIZE}
    sizes |= {"n_embd": SIZE} if case.base == "gpt2" else {}
    # Files lack the scale of Gemma's scores: it follows from a head's width.
    sizes |= {"query_pre_attn_scalar": case.chosen.get("head_dim", 64), "head_dim": 64} if "gemma" in case.base else {}
    sizes |= {"num_hidden_layers": 4} if case.base == "smollm3" else {}
    write_model(case, folder, config_of(case, sizes), AutoModelForCausalLM)
    theirs = loaded(AutoModelForCausalLM, folder)
    write_file(case, folder / "model.gguf", theirs)
    generator = fastattn.Generator(folder / "model.gguf", precision="float32", threads=1)
    for length in (2, 11, 40):
        ids = case.rng.integers(3, VOCABULARY, length)
        logits = theirs(torch.from_numpy(ids)[None]).logits[0].double()
        expected = logits.log_softmax(-1)[range(length - 1), torch.from_numpy(ids[1:])]
        score, allowed = generator.score(ids, special_tokens=False), 1e-4 * max(1.0, float(logits.abs().max()))
        if fault := difference("log-probability", score.log_probs, expected, allowed):
            return fault
        answer = generator.generate(ids, max_new_tokens=6, details=True)
        tokens = [*answer.tokens, *[2] * (answer.finish_reason == "stop")]
        whole = torch.tensor([*ids, *tokens])
        best = theirs(whole[None]).logits[0, length - 1 : -1].double()
        if (best.amax(-1) - best[range(len(tokens)), tokens]).max() > allowed:
            return f"greedy tokens are {tokens}, theirs {best.argmax(-1).tolist()}"
    return ""
