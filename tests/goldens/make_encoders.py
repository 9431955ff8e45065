"""Writes encoders.npz: the last hidden states of encoder_cases.CASES as Hugging Face transformers computes them."""

import re

import numpy as np
import torch
import transformers as hf

from tests.goldens.writing import write_arrays
from tests.models.encoder_cases import CASES, EncoderCase, make_checkpoint, make_ids

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
# Family -> (a layer's place, what queries, keys and values are called, the other parts, those beside the layers).
NAMES: dict[str, tuple[str, str, dict[str, str], dict[str, str]]] = {
    "bert": (
        "encoder.layer.{}.", "attention.self.query attention.self.key attention.self.value",
        {
            "self_attention.output": "attention.output.dense", "self_attention.norm": "attention.output.LayerNorm",
            "feed_forward.inner": "intermediate.dense", "feed_forward.outer": "output.dense",
            "feed_forward.norm": "output.LayerNorm",
        },
        {"embedding": "embeddings.word_embeddings", "embedding_norm": "embeddings.LayerNorm"},
    ),
    "t5": (
        "encoder.block.{}.layer.", "0.SelfAttention.q 0.SelfAttention.k 0.SelfAttention.v",
        {
            "self_attention.output": "0.SelfAttention.o", "self_attention.norm": "0.layer_norm",
            "feed_forward.inner": "1.DenseReluDense.wi", "feed_forward.inner_linear": "1.DenseReluDense.wi_1",
            "feed_forward.outer": "1.DenseReluDense.wo", "feed_forward.norm": "1.layer_norm",
        },
        {"embedding": "shared", "final_norm": "encoder.final_layer_norm"},
    ),
    "mbart": (
        "layers.{}.", "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
        {
            "self_attention.output": "self_attn.out_proj", "self_attention.norm": "self_attn_layer_norm",
            "feed_forward.inner": "fc1", "feed_forward.outer": "fc2", "feed_forward.norm": "final_layer_norm",
        },
        {"embedding": "embed_tokens", "embedding_norm": "layernorm_embedding", "final_norm": "layer_norm"},
    ),
}  # fmt: skip


def renamed(case: EncoderCase, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights and biases under the names of transformers, which has the fused rows of attention apart."""
    place, fused, parts, others = NAMES[case.family]
    if case.spec.feed_forward.gated:
        parts = parts | {"feed_forward.inner": "1.DenseReluDense.wi_0"}
    state = {}
    for name, value in tensors.items():
        found = re.fullmatch(r"encoder\.(?:layers\.(\d+)\.)?(.+)\.(weight|bias)", name)
        if found is None:  # positions, which each family has elsewhere
            continue
        layer, part, kind = found.groups()
        if part == "self_attention.qkv":
            theirs = dict(zip(fused.split(), np.split(value, 3), strict=True))
        else:
            theirs = {(parts if layer else others)[part]: value}
        state |= {f"{place.format(layer) if layer else ''}{name}.{kind}": each for name, each in theirs.items()}
    return state


def bert(case: EncoderCase, tensors: dict) -> tuple[torch.nn.Module, dict]:
    spec = case.spec
    config = hf.BertConfig(
        vocab_size=spec.vocabulary, hidden_size=spec.width, num_hidden_layers=spec.layers,
        num_attention_heads=spec.attention.heads, intermediate_size=spec.feed_forward.inner_width,
        hidden_act=ACTIVATIONS[spec.feed_forward.activation], max_position_embeddings=spec.positions.limit,
        layer_norm_eps=spec.norms.epsilon,
    )  # fmt: skip
    # The first token type's row is part of the position table on our side.
    types = np.zeros((2, spec.width), np.float32)
    state = {"position_embeddings": tensors["encoder.positions"], "token_type_embeddings": types}
    return hf.BertModel(config, add_pooling_layer=False), {f"embeddings.{n}.weight": one for n, one in state.items()}


def t5(case: EncoderCase, tensors: dict) -> tuple[torch.nn.Module, dict]:
    spec = case.spec
    config = hf.T5Config(
        vocab_size=spec.vocabulary, d_model=spec.width, d_kv=spec.attention.head_width,
        d_ff=spec.feed_forward.inner_width, num_layers=spec.layers, num_heads=spec.attention.heads,
        relative_attention_num_buckets=spec.positions.buckets,
        relative_attention_max_distance=spec.positions.max_distance, layer_norm_epsilon=spec.norms.epsilon,
        feed_forward_proj="gated-gelu" if spec.feed_forward.gated else "relu",
    )  # fmt: skip
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return hf.T5EncoderModel(config), {bias: tensors["encoder.relative_bias"]}


def mbart(case: EncoderCase, tensors: dict) -> tuple[torch.nn.Module, dict]:
    spec = case.spec
    assert spec.embedding_scale == spec.width**0.5
    config = hf.MBartConfig(
        vocab_size=spec.vocabulary, d_model=spec.width, encoder_layers=spec.layers,
        encoder_attention_heads=spec.attention.heads, encoder_ffn_dim=spec.feed_forward.inner_width,
        decoder_layers=1, decoder_attention_heads=spec.attention.heads,
        decoder_ffn_dim=spec.feed_forward.inner_width,
        activation_function=ACTIVATIONS[spec.feed_forward.activation], max_position_embeddings=spec.positions.limit,
        scale_embedding=True,
    )  # fmt: skip
    # Positions begin at row 2.
    positions = np.concatenate([np.zeros((2, spec.width), np.float32), tensors["encoder.positions"]])
    return hf.MBartModel(config).encoder, {"embed_positions.weight": positions}


FAMILIES = {"bert": bert, "t5": t5, "mbart": mbart}


@torch.inference_mode()
def states(case: EncoderCase) -> np.ndarray:
    tensors = make_checkpoint(case).tensors
    model, state = FAMILIES[case.family](case, tensors)
    whole = {n: torch.from_numpy(np.ascontiguousarray(one)) for n, one in (state | renamed(case, tensors)).items()}
    missing, unexpected = model.load_state_dict(whole, strict=False)
    # T5 lists its shared embedding a second time; BERT a buffer of token types.
    left = [name for name in missing if not name.endswith(("embed_tokens.weight", "token_type_ids"))]
    assert not left and not unexpected, (left, unexpected)
    model = model.double().eval()
    ids_of = [torch.from_numpy(ids.astype(np.int64))[None] for ids in make_ids(case)]
    rows = [model(input_ids=ids).last_hidden_state[0].numpy() for ids in ids_of]
    return np.concatenate(rows).astype(np.float32)


if __name__ == "__main__":
    write_arrays("encoders", {case.name: states(case) for case in CASES}, hf, torch)
