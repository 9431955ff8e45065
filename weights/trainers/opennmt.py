"""OpenNMT-py's models, of version 3 or later: one .pt file with options, tensors and vocabularies.

In OpenNMT-py's Transformers, norms come before each sublayer, and positions are a table in the file. Recurrent models
have the mapping ``recurrent/mappings/opennmt.toml``, with changes by their options. An option that no spec can express
is refused by name. Versions before 3 pickled objects of torchtext, which are refused too.
"""

import math
from dataclasses import replace
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import DecodingSettings, TranslationText
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.containers.pytorch import TrainerFile
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.recurrent.mapping import make_text, map_arrays, merge, shipped_mapping
from fastattn.weights.tensor_mapping import canonical_tensors, sources, stored_precision, zeros
from fastattn.weights.trainers.files import (
    checked_options,
    read_options,
    read_size,
    read_tokenizers,
    read_vocabularies,
)

BEAM_SIZE = 5  # of OpenNMT-py's own translate
# Activation -> (fastattn's name, whether a third layer multiplies the activation).
ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "fast_gelu": ("gelu_tanh", False),
    "silu": ("swish", True),
    "gated-gelu": ("gelu", True),
}
NORMS = {"standard": "layer", "rms": "rms"}
_BOOLEAN: tuple[Any, ...] = (False, True)
# Option -> its supported values, the default first.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    **dict.fromkeys(("encoder_type", "decoder_type"), ("transformer",)),
    "copy_attn": (False,),
    "layer_norm": tuple(NORMS),
    **dict.fromkeys(("max_relative_positions", "n_src_feats", "num_experts", "num_kv"), (0,)),
    "parallel_residual": (False,),
    "pos_ffn_activation_fn": tuple(ACTIVATIONS),
    "position_encoding": _BOOLEAN,
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    **dict.fromkeys(("share_decoder_embeddings", "share_embeddings"), _BOOLEAN),
    "sliding_window": (0,),
}
RECURRENT_OPTIONS: dict[str, tuple[Any, ...]] = {
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    "encoder_type": ("rnn", "brnn"),
    "decoder_type": ("rnn",),
    "brnn": (False, True),
    "rnn_type": ("LSTM", "GRU"),
    "input_feed": (True, False),
    "bridge": (False,),
    "global_attention": ("general", "dot", "mlp", "none", None),
    "global_attention_function": ("softmax",),
    **dict.fromkeys(("copy_attn", "coverage_attn"), (False,)),
    "context_gate": (None,),
    "position_encoding": (False,),
    "n_src_feats": (0,),
}
# Kind of attention -> (fastattn's score, the activation of the readout).
ATTENTIONS = {"general": ("general", "tanh"), "dot": ("dot", "tanh"), "mlp": ("additive", "none")}
EPSILON = 1e-6
WORDS = "model.STACK.embeddings.make_embedding.emb_luts.0.weight"
POSITIONS = "model.STACK.embeddings.make_embedding.pe.pe"
BLOCKS = {"encoder": "model.encoder.transformer.#", "decoder": "model.decoder.transformer_layers.#"}
# End of a layer's canonical name -> ends of the layer's names in the file. A bias that the file lacks is zeros.
LINEAR_LAYERS = {
    "self_attention.qkv": ("self_attn.linear_query", "self_attn.linear_keys", "self_attn.linear_values"),
    "self_attention.output": ("self_attn.final_linear",),
    "cross_attention.query": ("context_attn.linear_query",),
    "cross_attention.key_value": ("context_attn.linear_keys", "context_attn.linear_values"),
    "cross_attention.output": ("context_attn.final_linear",),
    "feed_forward.inner": ("feed_forward.w_1",),
    "feed_forward.inner_linear": ("feed_forward.w_3",),
    "feed_forward.outer": ("feed_forward.w_2",),
}
# Stack -> {a layer: the end of its norm's name in the file}.
NORM_NAMES = {
    "encoder": {"self_attention": "layer_norm"},
    "decoder": {"self_attention": "layer_norm_1", "cross_attention": "layer_norm_2"},
}


def read(folder: Folder, names: list[str], trainer_file: TrainerFile) -> Checkpoint:
    training, where = read_options(trainer_file, "opt"), trainer_file.where
    if training.get("encoder_type", "rnn") in RECURRENT_OPTIONS["encoder_type"]:
        return _read_recurrent(folder, training, trainer_file)
    options = checked_options(training, OPTIONS, where)
    stored = _normalize_tensors(trainer_file.tensors("model", "generator"), options)
    stacks = (_read_stack(name, training, options, stored, where) for name in ("encoder", "decoder"))
    spec = ModelSpec("encoder-decoder", *stacks)
    tensors = canonical_tensors(_table(stored), spec, stored, where, "tensors do not fit the options")
    vocabularies, start_token = read_vocabularies(trainer_file, spec)
    text = TranslationText(
        **vocabularies,
        decoder_start_token=start_token,
        decoding=DecodingSettings(beam_size=BEAM_SIZE),
        **read_tokenizers(folder, names, vocabularies["source_vocabulary"]),
    )
    return Checkpoint(spec, tensors, text, stored_precision(stored), "opennmt-py", files=tuple(folder.files_read))


def _normalize_tensors(stored: dict[str, StoredTensor], options: dict[str, Any]) -> dict[str, StoredTensor]:
    """The tensors: shared ones by all names, tables of positions without axes of 1, the generator without a number."""
    stored = {name.replace("generator.0.", "generator."): tensor for name, tensor in stored.items()}
    for name, tensor in stored.items():
        if name.endswith(".pe.pe") and len(tensor.shape) == 3 and tensor.shape[1] == 1 and tensor.strides is None:
            stored[name] = replace(tensor, shape=tensor.shape[::2])
    source_name, target_name = (WORDS.replace("STACK", name) for name in ("encoder", "decoder"))
    if options["share_embeddings"] and source_name in stored:
        stored[target_name] = stored[source_name]
    if options["share_decoder_embeddings"] and target_name in stored:
        stored["generator.weight"] = stored[target_name]
    return stored


def _read_stack(
    name: str, training: dict[str, Any], options: dict[str, Any], stored: dict[str, StoredTensor], where: str
) -> StackSpec:
    size_options = (f"{name[:3]}_hid_size", "heads", f"{name[:3]}_layers", "transformer_ff")
    if size_options[0] not in training:  # one option, which has had two names, is the size of both stacks
        size_options = ("hidden_size" if "hidden_size" in training else "rnn_size", *size_options[1:])
    width, heads, layers, inner_width = (read_size(training, option, where) for option in size_options)
    words_name, positions_name = (name_in_file.replace("STACK", name) for name_in_file in (WORDS, POSITIONS))
    words, positions = stored.get(words_name), stored.get(positions_name)
    if words is None or len(words.shape) != 2 or layers > len(stored) or width % heads:
        raise CheckpointError(
            f"{where}: {words_name} should be a table, {size_options[2]} {layers} at most the number"
            f" of tensors and {size_options[0]} {width} a multiple of heads {heads}"
        )
    has_positions = options["position_encoding"]
    if has_positions and (positions is None or len(positions.shape) != 2):
        raise CheckpointError(f"{where}: {positions_name} should be a table of positions")
    activation, gated = ACTIVATIONS[options["pos_ffn_activation_fn"]]
    epsilon = training.get("norm_eps", EPSILON)
    if type(epsilon) is not float or not 0 < epsilon < 1:
        raise CheckpointError(f"{where}: option norm_eps should be a number above 0 and below 1")
    position_spec = PositionSpec("none")
    if has_positions and positions:
        position_spec = PositionSpec("table", limit=positions.shape[0])
    return StackSpec(
        layers=layers,
        width=width,
        vocabulary=words.shape[0],
        attention=AttentionSpec(heads, heads, width // heads),
        feed_forward=FeedForwardSpec(inner_width, activation, gated),
        norms=NormSpec(NORMS[options["layer_norm"]], epsilon),
        positions=position_spec,
        embedding_scale=math.sqrt(width) if has_positions else 1.0,
        cross_attention=name == "decoder",
        projection_bias="generator.bias" in stored,
    )


def _table(stored: dict[str, StoredTensor]) -> dict[str, Any]:
    """The sources of the tensors; norms of early versions have tensors a_2 and b_2."""
    ends = ("a_2", "b_2") if "model.encoder.layer_norm.a_2" in stored else ("weight", "bias")
    table = {
        "STACK.embedding.weight": sources(WORDS),
        "STACK.positions": sources(POSITIONS),
        "STACK.final_norm.*": sources("model.STACK.layer_norm.*", ends=ends),
        "decoder.projection.*": sources("generator.*"),
    }
    for stack, block in BLOCKS.items():
        for layer_name, names in LINEAR_LAYERS.items():
            layer = f"{stack}.layers.#.{layer_name}"
            table[f"{layer}.weight"] = sources(*(f"{block}.{name}.weight" for name in names))
            table[f"{layer}.bias"] = sources(*(f"{block}.{name}.bias" for name in names), default=zeros)
        for layer_name, name in (NORM_NAMES[stack] | {"feed_forward": "feed_forward.layer_norm"}).items():
            table[f"{stack}.layers.#.{layer_name}.norm.*"] = sources(f"{block}.{name}.*", ends=ends)
    return table


def _read_recurrent(folder: Folder, training: dict[str, Any], trainer_file: TrainerFile) -> Checkpoint:
    where = trainer_file.where
    stored = trainer_file.tensors("model", "generator")
    options, layers = checked_options(training, RECURRENT_OPTIONS, where), read_size(training, "dec_layers", where)
    base, changes = shipped_mapping("opennmt"), _mapping_changes(options, layers, "generator.0.weight" in stored)
    mapping = JsonObject(merge(base, changes), where)
    spec, tensors = map_arrays(mapping, stored, where)
    vocabularies, start_token = read_vocabularies(trainer_file, spec)
    text = make_text(base["text"] | {"decoder_start_token": start_token}, vocabularies, where)
    return Checkpoint(spec, tensors, text, stored_precision(stored), "opennmt-py", files=tuple(folder.files_read))


def _mapping_changes(options: dict[str, Any], layers: int, is_sequence: bool) -> dict[str, Any]:
    """The entries of a mapping that depend on the options; ``is_sequence``: the generator is an nn.Sequential."""
    cell = options["rnn_type"].lower()
    decoder: dict[str, Any] = {"cell": cell, "feeds": bool(options["input_feed"])}
    tensors: dict[str, Any] = {"decoder.projection.*": f"generator.{'0.' * is_sequence}*"}
    if options["input_feed"]:  # the file has single cells, not one nn.LSTM or nn.GRU
        tensors["decoder.layers.#.input.*"] = "model.decoder.rnn.layers.#.*_ih"
        tensors["decoder.layers.#.state.*"] = "model.decoder.rnn.layers.#.*_hh"
    if options["global_attention"] in ATTENTIONS:
        score, activation = ATTENTIONS[options["global_attention"]]
        decoder["attention"] = {"score": score, "after": layers}
        decoder["readout"] = {"parts": ["context", "hidden"], "activation": activation}
        if score == "general":  # (W h) . s = h . (W' s), h the decoder's state, s a source row
            transposed_source = {"names": "model.decoder.attn.linear_in.weight", "transposed": True}
            tensors["decoder.attention.key.weight"] = transposed_source
    encoder = {"cell": cell, "bidirectional": bool(options["brnn"] or options["encoder_type"] == "brnn")}
    if encoder["bidirectional"]:
        tensors["encoder.layers.#.input.*"] = ["model.encoder.rnn.*_ih_l#", "model.encoder.rnn.*_ih_l#_reverse"]
    return {"encoder": encoder, "decoder": decoder, "tensors": tensors}
