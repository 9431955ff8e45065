"""Writes encoders.npz: the last hidden states of encoder_cases.CASES as Hugging Face transformers computes them.

Run in an environment with torch and transformers, from the repository's root: python -m tests.goldens.make_encoders
"""

from pathlib import Path

import numpy as np
import torch
import transformers

from tests.models.encoder_cases import CASES, EncoderCase, make_checkpoint, make_ids

HERE = Path(__file__).resolve().parent

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}


def _split(tensors: dict, layer: str, names: tuple[str, str, str], biases: bool) -> dict:
    """The fused rows of queries, keys and values under three names."""
    state = {}
    for kind in ("weight", "bias") if biases else ("weight",):
        thirds = np.split(tensors[f"{layer}.self_attention.qkv.{kind}"], 3)
        state |= {f"{name}.{kind}": third for name, third in zip(names, thirds, strict=True)}
    return state


def _renamed(tensors: dict, pairs: dict[str, str], biases: bool) -> dict:
    kinds = ("weight", "bias") if biases else ("weight",)
    return {f"{theirs}.{kind}": tensors[f"{ours}.{kind}"] for ours, theirs in pairs.items() for kind in kinds}


def bert(case: EncoderCase, tensors: dict) -> tuple[torch.nn.Module, dict]:
    spec = case.spec
    model = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=spec.vocabulary,
            hidden_size=spec.width,
            num_hidden_layers=spec.layers,
            num_attention_heads=spec.attention.heads,
            intermediate_size=spec.feed_forward.inner_width,
            hidden_act=ACTIVATIONS[spec.feed_forward.activation],
            max_position_embeddings=spec.positions.limit,
            layer_norm_eps=spec.norms.epsilon,
        ),
        add_pooling_layer=False,
    )
    # The first token type's row is part of the position table on our side.
    state = {
        "embeddings.word_embeddings.weight": tensors["encoder.embedding.weight"],
        "embeddings.position_embeddings.weight": tensors["encoder.positions"],
        "embeddings.token_type_embeddings.weight": np.zeros((2, spec.width), np.float32),
    } | _renamed(tensors, {"encoder.embedding_norm": "embeddings.LayerNorm"}, True)
    for i in range(spec.layers):
        ours, theirs = f"encoder.layers.{i}", f"encoder.layer.{i}"
        names = tuple(f"{theirs}.attention.self.{part}" for part in ("query", "key", "value"))
        state |= _split(tensors, ours, names, True)
        pairs = {
            f"{ours}.self_attention.output": f"{theirs}.attention.output.dense",
            f"{ours}.self_attention.norm": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.feed_forward.inner": f"{theirs}.intermediate.dense",
            f"{ours}.feed_forward.outer": f"{theirs}.output.dense",
            f"{ours}.feed_forward.norm": f"{theirs}.output.LayerNorm",
        }
        state |= _renamed(tensors, pairs, True)
    return model, state


def t5(case: EncoderCase, tensors: dict) -> tuple[torch.nn.Module, dict]:
    spec = case.spec
    model = transformers.T5EncoderModel(
        transformers.T5Config(
            vocab_size=spec.vocabulary, d_model=spec.width, d_kv=spec.attention.head_width,
            d_ff=spec.feed_forward.inner_width, num_layers=spec.layers, num_heads=spec.attention.heads,
            relative_attention_num_buckets=spec.positions.buckets,
            relative_attention_max_distance=spec.positions.max_distance, layer_norm_epsilon=spec.norms.epsilon,
            feed_forward_proj="gated-gelu" if spec.feed_forward.gated else "relu",
        )
    )  # fmt: skip
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    state = {"shared.weight": tensors["encoder.embedding.weight"], bias: tensors["encoder.relative_bias"]}
    state |= _renamed(tensors, {"encoder.final_norm": "encoder.final_layer_norm"}, False)
    for i in range(spec.layers):
        ours, theirs = f"encoder.layers.{i}", f"encoder.block.{i}.layer"
        names = tuple(f"{theirs}.0.SelfAttention.{part}" for part in "qkv")
        state |= _split(tensors, ours, names, False)
        pairs = {
            f"{ours}.self_attention.output": f"{theirs}.0.SelfAttention.o",
            f"{ours}.self_attention.norm": f"{theirs}.0.layer_norm",
            f"{ours}.feed_forward.inner": f"{theirs}.1.DenseReluDense.{'wi_0' if spec.feed_forward.gated else 'wi'}",
            f"{ours}.feed_forward.outer": f"{theirs}.1.DenseReluDense.wo",
            f"{ours}.feed_forward.norm": f"{theirs}.1.layer_norm",
        }
        if spec.feed_forward.gated:
            pairs[f"{ours}.feed_forward.inner_linear"] = f"{theirs}.1.DenseReluDense.wi_1"
        state |= _renamed(tensors, pairs, False)
    return model, state


def mbart(case: EncoderCase, tensors: dict) -> tuple[torch.nn.Module, dict]:
    spec = case.spec
    whole = transformers.MBartModel(
        transformers.MBartConfig(
            vocab_size=spec.vocabulary, d_model=spec.width, encoder_layers=spec.layers,
            encoder_attention_heads=spec.attention.heads, encoder_ffn_dim=spec.feed_forward.inner_width,
            decoder_layers=1, decoder_attention_heads=spec.attention.heads,
            decoder_ffn_dim=spec.feed_forward.inner_width,
            activation_function=ACTIVATIONS[spec.feed_forward.activation], max_position_embeddings=spec.positions.limit,
            scale_embedding=True,
        )
    )  # fmt: skip
    assert spec.embedding_scale == spec.width**0.5
    # Positions begin at row 2.
    positions = np.concatenate([np.zeros((2, spec.width), np.float32), tensors["encoder.positions"]])
    state = {"embed_tokens.weight": tensors["encoder.embedding.weight"], "embed_positions.weight": positions}
    pairs = {"encoder.embedding_norm": "layernorm_embedding", "encoder.final_norm": "layer_norm"}
    for i in range(spec.layers):
        ours, theirs = f"encoder.layers.{i}", f"layers.{i}"
        names = tuple(f"{theirs}.self_attn.{part}_proj" for part in "qkv")
        state |= _split(tensors, ours, names, True)
        pairs |= {
            f"{ours}.self_attention.output": f"{theirs}.self_attn.out_proj",
            f"{ours}.self_attention.norm": f"{theirs}.self_attn_layer_norm",
            f"{ours}.feed_forward.inner": f"{theirs}.fc1",
            f"{ours}.feed_forward.outer": f"{theirs}.fc2",
            f"{ours}.feed_forward.norm": f"{theirs}.final_layer_norm",
        }
    return whole.encoder, state | _renamed(tensors, pairs, True)


FAMILIES = {"bert": bert, "t5": t5, "mbart": mbart}


def main() -> None:
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    written = {"versions": np.array(versions)}
    for case in CASES:
        model, state = FAMILIES[case.family](case, make_checkpoint(case).tensors)
        missing, unexpected = model.load_state_dict(
            {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}, strict=False
        )
        # T5 lists its shared embedding a second time; BERT a buffer of token types.
        left = [name for name in missing if not name.endswith(("embed_tokens.weight", "token_type_ids"))]
        assert not left and not unexpected, (left, unexpected)
        model = model.double().eval()
        with torch.inference_mode():
            rows = [
                model(input_ids=torch.from_numpy(ids.astype(np.int64))[None]).last_hidden_state[0].numpy()
                for ids in make_ids(case)
            ]
        written[case.name] = np.concatenate(rows).astype(np.float32)
    np.savez_compressed(HERE / "encoders.npz", **written)


if __name__ == "__main__":
    main()
