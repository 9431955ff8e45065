"""Writes gguf.npz: blocks of each type of GGUF and what the gguf package makes of them, and a file that it writes; and
gguf_models.npz: small models of transformers, with its results, that llama.cpp's converter has written.

python -m tests.goldens.make_gguf LLAMA_CPP, where torch and transformers are installed. LLAMA_CPP is a folder with its
sources, where ``conversion`` and ``gguf-py`` are. Weights are multiples of 1/4, so that the files compress.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as hf

from tests.goldens.writing import write_arrays
from tests.weights.gguf.writer import random_blocks

sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/gguf-py"]
import gguf  # noqa: E402
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class  # noqa: E402

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
V, T, KEPT = 64, 12, 4  # tokens, those of a text, the last ones whose results are kept
SIZES = {
    "vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "tie_word_embeddings": False, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
TIED = SIZES | {"tie_word_embeddings": True}
GEMMA = TIED | {"head_dim": 16, "sliding_window": 4}
STRETCHED = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 8}
GROWN = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0}
NEOX = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
CONFIGS = {
    "llama": hf.LlamaConfig(**SIZES),
    "llama 3": hf.LlamaConfig(
        **TIED | {"max_position_embeddings": 65536},
        rope_parameters=STRETCHED | {"original_max_position_embeddings": 8192},
    ),
    "llama, biased": hf.LlamaConfig(**SIZES, attention_bias=True, rope_parameters=LINEAR),
    "mistral": hf.MistralConfig(**SIZES, sliding_window=None, head_dim=16),
    "qwen2": hf.Qwen2Config(**SIZES, rope_parameters=YARN),
    "qwen3": hf.Qwen3Config(**SIZES, head_dim=16),
    "gemma2": hf.Gemma2Config(**GEMMA, query_pre_attn_scalar=16),
    "gemma3": hf.Gemma3TextConfig(**GEMMA | {"num_hidden_layers": 7}, query_pre_attn_scalar=16),
    "phi3": hf.Phi3Config(**SIZES, sliding_window=4),
    "gpt2": hf.GPT2Config(V, 32, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2),
    "gptneox": hf.GPTNeoXConfig(**NEOX, rotary_pct=0.25),
    "gptneox, one after another": hf.GPTNeoXConfig(**NEOX, rotary_pct=0.5, use_parallel_residual=False),
    "olmo2": hf.Olmo2Config(**SIZES),
    "smollm3": hf.SmolLM3Config(**SIZES | {"num_hidden_layers": 4}),
    "hunyuan-dense": hf.HunYuanDenseV1Config(
        **SIZES | {"max_position_embeddings": 32768}, head_dim=16, rope_parameters=GROWN
    ),
}  # fmt: skip


def tokens(self: object) -> None:
    """A vocabulary for the converter's, whatever the architecture's own is."""
    writer = self.gguf_writer
    signs = [chr(code) for code in range(ord("!"), ord("!") + V - 4)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<pad>", "<s>", "</s>", *signs, "AB"])
    writer.add_token_types([3] * 3 + [1] * (V - 3))
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def make(name: str, config: object, folder: Path) -> dict[str, np.ndarray]:
    torch.manual_seed(len(name))
    model = hf.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randint(-2, 3, parameter.shape).float() / 4
            parameter.copy_(drawn if parameter.ndim > 1 else parameter + drawn.abs())
        ids = torch.randint(3, V, (1, T))
        log_probs = torch.log_softmax(model(ids).logits[0], -1)
    model.save_pretrained(folder)
    vocabulary = {"added_tokens": [], "model": {"vocab": {f"t{i}": i for i in range(V)}}}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    settings = ModelBase.load_hparams(folder, False)
    if "rope_parameters" in settings and name.startswith("gptneox"):  # which the converter does not know yet
        settings["rotary_pct"] = settings["rope_parameters"]["partial_rotary_factor"]
    settings.setdefault("n_ctx", 32)
    ModelBase.load_hparams = staticmethod(lambda *_, **__: dict(settings))
    kind = get_model_class(get_model_architecture(settings, ModelType.TEXT))
    kind.set_vocab = tokens
    path = folder / "model.gguf"
    kind(folder, gguf.LlamaFileType.ALL_F32, path).write()
    return {
        f"{name}: file": np.fromfile(path, np.uint8),
        f"{name}: ids": ids[0].numpy().astype(np.int32),
        f"{name}: log probs": log_probs[-KEPT:].numpy(),
    }


def blocks(name: str, generator: np.random.Generator) -> np.ndarray:
    """Two rows: quantized by the package, or of random bytes where it cannot quantize."""
    if name.endswith("_K"):
        return np.frombuffer(random_blocks(generator, name, (2, 256)).data, np.uint8).reshape(2, -1)
    values = generator.standard_normal((2, 64)).astype(np.float32)
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)


def written(data: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_custom_alignment(64)
        writer.add_string("a.text", "naïve 明天")
        writer.add_array("a.list", ["one", "", "three"])
        writer.add_array("some.numbers", [1.5, -2.0])
        writer.add_bool("a.truth", True)
        writer.add_uint64("a.count", 1 << 40)
        writer.add_tensor("floats", np.arange(6, dtype=np.float32).reshape(2, 3))
        writer.add_tensor("blocks", data, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return np.fromfile(path, np.uint8)


if __name__ == "__main__":
    generator, arrays = np.random.default_rng(31), {}
    for name in TYPES:
        arrays[f"{name} blocks"] = data = blocks(name, generator)
        numbers = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name])
        arrays[f"{name} numbers"] = numbers.astype(np.float32)
    write_arrays("gguf", arrays | {"written": written(arrays["Q4_1 blocks"])})
    models, load = {}, ModelBase.load_hparams
    for name, config in CONFIGS.items():
        ModelBase.load_hparams = staticmethod(load)
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            models |= make(name, config, Path(folder))
    write_arrays("gguf_models", models, hf, torch)
