"""What transformers computes: a case's folder as it saves one, and the rows or logits of its sentences."""

import json
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.architectures.case import Case, make_ids, make_types
from tests.architectures.drawing import FROZEN, draw_all
from tests.architectures.folders import write_folder, write_tokenizer
from tests.architectures.outputs import TOKENS, prompts
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json

os.environ.setdefault("HF_HUB_OFFLINE", "1")
CLASSES = {
    "encoder": "AutoModel",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "fill-mask": "AutoModelForMaskedLM",
    "decoder": "AutoModelForCausalLM",
}
# Of models with a decoder, which AutoModel has as a whole.
ENCODER_HALVES = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
# NomicBertConfig's names -> those of its authors' configuration, after GPT-2.
NOMIC_NAMES = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    "type_vocab_size": "type_vocab_size", "vocab_size": "vocab_size", "model_type": "model_type",
}  # fmt: skip


def make(case: Case, folder: Path) -> list[np.ndarray]:
    """Write the case's folder and return what its model makes of each sentence alone.

    Last hidden states [T, D], or the head's logits: [labels], [T, labels] or [T, V]. config.json is as transformers
    saves it today, or as published where it has another; the tensors' names are those that transformers saves.
    """
    if "feed_forward_type" in case.config:
        return _make_jina(case, folder)
    config = as_transformers_has_it(case.config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(case, config, folder)
        expected = _outputs(case, _load(case, folder))
    if config != case.config:
        write_json(folder / "config.json", case.config)
    return expected


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the tensors in a folder's safetensors file."""
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def as_transformers_has_it(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of the same model there, where the published one is of remote code."""
    if config["model_type"] == "new":
        base, scaling = config["rope_theta"], config["rope_scaling"]
        rotary: dict[str, Any] = {"rope_type": "default", "rope_theta": float(base)}
        if scaling is not None:
            # Fixed NTK scaling by f: a base f times as large, then every frequency divided by f^(2/K).
            factor, width = scaling["factor"], config["hidden_size"] // config["num_attention_heads"]
            rotary = {"rope_type": "linear", "rope_theta": base * factor, "factor": factor ** (2 / width)}
        dropped = ("rope_theta", "rope_scaling", "auto_map", "position_embedding_type")
        kept = {name: value for name, value in config.items() if name not in dropped}
        return kept | {"model_type": "gte", "rope_parameters": rotary}
    if "n_embd" in config and config["model_type"] == "nomic_bert":
        rotary = {"rope_type": "default", "rope_theta": float(config["rotary_emb_base"])}
        named = {ours: config[theirs] for ours, theirs in NOMIC_NAMES.items()}
        return named | {"rope_parameters": rotary, "pad_token_id": 0}
    return config


def save(case: Case, config: dict[str, Any], folder: Path) -> None:
    """``save_pretrained``, then drawn weights instead of its own, and a tiny tokenizer."""
    import transformers

    made = transformers.AutoConfig.for_model(**config)
    kind = _class_of(case)
    (kind.from_config if hasattr(kind, "from_config") else kind)(made).save_pretrained(folder)
    shapes = {name: shape for name, shape in shapes_of(folder).items() if not name.endswith(FROZEN)}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(draw_all(shapes, case.seed)))
    write_tokenizer(folder, case.model_type)


def _class_of(case: Case) -> Any:
    import transformers

    half = ENCODER_HALVES.get(case.model_type) if case.task == "encoder" else None
    return getattr(transformers, half or CLASSES[case.task])


def _load(case: Case, folder: Path) -> Any:
    """The model in a folder, as everyone loads it, in float32 with the plain attention; all weights are from there."""
    import torch

    model, report = _class_of(case).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    left = {kind: names for kind, names in report.items() if names}
    assert not left, left
    return model.eval()


def _outputs(case: Case, model: Any) -> list[np.ndarray]:
    import torch

    found = []
    types_B = make_types(case)
    with torch.no_grad():
        for b, ids in enumerate(make_ids(case)):
            given = {} if types_B is None else {"token_type_ids": torch.from_numpy(types_B[b].astype(np.int64))[None]}
            output = model(input_ids=torch.from_numpy(ids.astype(np.int64))[None], **given)
            found.append((output.last_hidden_state if case.task == "encoder" else output.logits)[0].numpy())
    return found


def continuations(case: Case, folder: Path) -> np.ndarray:
    """tokens_BT that transformers' greedy search puts behind the prompts of a decoder's case, with its own cache."""
    import torch

    torch.set_num_threads(1)  # more would wait for each other
    model, found = _load(case, folder), []
    lengths = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    for prompt in prompts(case):
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, eos_token_id=2, **lengths)
        found.append(out[0, len(prompt) :].numpy())
    return np.array(found)


def _make_jina(case: Case, folder: Path) -> list[np.ndarray]:
    tensors = draw_all(jina_shapes(case.config, case.task), case.seed)
    write_folder(folder, case.config, tensors)
    model = JinaBert(case.config, tensors)
    compute = model.rows if case.task == "encoder" else model.logits
    types_B = make_types(case) or [None] * len(case.lengths)
    return [compute(ids, types) for ids, types in zip(make_ids(case), types_B)]


def jina_shapes(config: Mapping[str, Any], task: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a JinaBert with a pooler; ``bert.`` before them where a classifier follows it."""
    D, F = config["hidden_size"], config["intermediate_size"]
    linear, norms = {"pooler.dense": (D, D)}, ["embeddings.LayerNorm"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], D),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], D),
    }
    for layer in (f"encoder.layer.{i}" for i in range(config["num_hidden_layers"])):
        parts = ("self.query", "self.key", "self.value", "output.dense")
        linear |= {f"{layer}.attention.{part}": (D, D) for part in parts}
        if config["feed_forward_type"] == "original":
            linear |= {f"{layer}.intermediate.dense": (F, D), f"{layer}.output.dense": (D, F)}
        else:
            shapes[f"{layer}.mlp.gated_layers.weight"] = (2 * F, D)
            linear[f"{layer}.mlp.wo"] = (D, F)
        last = "output.LayerNorm" if config["feed_forward_type"] == "original" else "mlp.layernorm"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.{last}"]
    shapes |= {f"{name}.weight": shape for name, shape in linear.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linear.items()}
    shapes |= {f"{name}.{kind}": (D,) for name in norms for kind in ("weight", "bias")}
    if task == "encoder":
        return shapes
    labels = len(config["id2label"])
    classifier = {"classifier.weight": (labels, D), "classifier.bias": (labels,)}
    return {f"bert.{name}": shape for name, shape in shapes.items()} | classifier


class JinaBert:
    """jina-embeddings-v2's BERT in float64: no transformers has it, its authors publish it as remote code.

    BERT with symmetric linear biases (Günther et al. 2023, section 4; slopes by Press 2022) instead of positions, and a
    gated feed-forward (Shazeer 2020): act(first half) * second half of one product without a bias.
    """

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]):
        self.config = config
        self.tensors = {name.removeprefix("bert."): x.astype(np.float64) for name, x in tensors.items()}

    def rows(self, ids: np.ndarray, types: np.ndarray | None) -> np.ndarray:
        """The last hidden states [T, D] of a sentence."""
        words, kinds = (self.tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type"))
        x_TD = self._norm("embeddings.LayerNorm", words[ids] + kinds[0 if types is None else types])
        for layer in (f"encoder.layer.{i}" for i in range(self.config["num_hidden_layers"])):
            attended_TD = self._linear(f"{layer}.attention.output.dense", self._attend(f"{layer}.attention.self", x_TD))
            x_TD = self._feed(layer, self._norm(f"{layer}.attention.output.LayerNorm", x_TD + attended_TD))
        return x_TD

    def logits(self, ids: np.ndarray, types: np.ndarray | None) -> np.ndarray:
        """Of the first row, through the pooler."""
        return self._linear("classifier", np.tanh(self._linear("pooler.dense", self.rows(ids, types)[0])))

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0)

    def _norm(self, name: str, x_TD: np.ndarray) -> np.ndarray:
        variance_T1 = x_TD.var(axis=1, keepdims=True) + self.config["layer_norm_eps"]
        unit_TD = (x_TD - x_TD.mean(axis=1, keepdims=True)) / np.sqrt(variance_T1)
        return unit_TD * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def _attend(self, name: str, x_TD: np.ndarray) -> np.ndarray:
        T, heads = len(x_TD), self.config["num_attention_heads"]
        query_HTK, key_HTK, value_HTK = (
            self._linear(f"{name}.{part}", x_TD).reshape(T, heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        # 2^(-8 i / H) where H is a power of two; else those of the power below, then every second of twice as many
        power = 2 ** math.floor(math.log2(heads))
        slopes_H = np.append(2.0 ** (-8 * np.arange(1, power + 1) / power), 2.0 ** (-4 * np.arange(1, power) / power))
        slopes_H = np.append(slopes_H[:power], slopes_H[power::2][: heads - power])
        distance_TS = np.abs(np.arange(T)[:, None] - np.arange(T))
        scores_HTS = query_HTK @ key_HTK.swapaxes(1, 2) / math.sqrt(query_HTK.shape[2])
        powers_HTS = np.exp(scores_HTS - slopes_H[:, None, None] * distance_TS)
        weights_HTS = powers_HTS / powers_HTS.sum(axis=2, keepdims=True)
        return (weights_HTS @ value_HTK).swapaxes(0, 1).reshape(x_TD.shape)

    def _feed(self, layer: str, x_TD: np.ndarray) -> np.ndarray:
        kind = self.config["feed_forward_type"]
        if kind == "original":
            inner_TF = _gelu(self._linear(f"{layer}.intermediate.dense", x_TD))
            return self._norm(f"{layer}.output.LayerNorm", x_TD + self._linear(f"{layer}.output.dense", inner_TF))
        gate_TF, rest_TF = np.split(self._linear(f"{layer}.mlp.gated_layers", x_TD), 2, axis=1)
        inner_TF = (np.maximum(gate_TF, 0) if kind == "reglu" else _gelu(gate_TF)) * rest_TF
        return self._norm(f"{layer}.mlp.layernorm", x_TD + self._linear(f"{layer}.mlp.wo", inner_TF))


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))) / 2
