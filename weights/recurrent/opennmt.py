"""OpenNMT-py's recurrent models, of version 3 or later: one .pt file with options, tensors and vocabularies.

Its options choose among the entries of ``mappings/opennmt.toml``; what they ask for and a RecurrentSpec cannot say is
refused by name. Versions before 3 pickled objects of torchtext, which are refused too.
"""

from collections.abc import Mapping
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import GREATEST, ModelSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers.json_file import JsonObject, is_text, shorten
from fastattn.weights.containers.pytorch import TrainerFile
from fastattn.weights.containers.torch_pickle import Namespace
from fastattn.weights.folder import Folder
from fastattn.weights.recurrent.mapping import checked, make_text, map_arrays, merged, shipped
from fastattn.weights.tensor_mapping import stored_precision

# Option -> what it may be; without it the first.
OPTIONS: dict[str, tuple[Any, ...]] = {
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
    "copy_attn": (False,),
    "coverage_attn": (False,),
    "context_gate": (None,),
    "position_encoding": (False,),
    "n_src_feats": (0,),
}
# Kind of attention -> its score here, what its query and its context become.
ATTENTIONS = {"general": ("general", "tanh"), "dot": ("dot", "tanh"), "mlp": ("additive", "none")}


def read(folder: Folder, whole: TrainerFile) -> Checkpoint:
    """Read a checkpoint; raises CheckpointError for what is malformed or not supported."""
    where = whole.where
    stored = whole.tensors("model", "generator")
    given = read_options(whole, "opt")
    options, layers = known_options(given, OPTIONS, where), count(given, "dec_layers", where)
    base, changes = shipped("opennmt"), _changes(options, layers, "generator.0.weight" in stored)
    mapping = JsonObject(merged(base, changes), where)
    spec, tensors = map_arrays(mapping, stored, where)
    vocabularies, start = read_vocabularies(whole, spec)
    text = make_text(base["text"] | {"decoder_start_token": start}, vocabularies, where)
    return Checkpoint(spec, tensors, text, stored_precision(stored), "opennmt-py", files=tuple(folder.used))


def read_options(whole: TrainerFile, name: str) -> dict[str, Any]:
    """The options of a training, which a trainer's checkpoint has as ``name``."""
    given = whole.entries.get(name)
    if type(given) is not Namespace:
        raise CheckpointError(f"{whole.where}: {name} should hold the options of a training")
    return given


def known_options(given: dict[str, Any], known: Mapping[str, tuple[Any, ...]], where: str) -> dict[str, Any]:
    """The options that matter; ``known``: what each may be, first what it is where it is not given."""
    options = {name: given.get(name, values[0]) for name, values in known.items()}
    for name, value in options.items():
        plain = value is None or isinstance(value, str | int)
        if not plain or value not in known[name]:
            said = shorten(value) if plain else f"a {type(value).__name__}"
            raise CheckpointError(f"{where}: option {name} should be {' or '.join(map(repr, known[name]))}, is {said}")
    return options


def count(given: dict[str, Any], name: str, where: str) -> int:
    """An option that is a number of layers, heads or units."""
    value = given.get(name)
    if type(value) is not int or not 1 <= value <= GREATEST:
        raise CheckpointError(f"{where}: option {name} should be a number from 1 on")
    return value


def read_vocabularies(whole: TrainerFile, spec: ModelSpec) -> tuple[dict[str, Any], str]:
    """({source_vocabulary: tokens, target_vocabulary: tokens}, the decoder's start token) of a checkpoint."""
    vocab, where = whole.entries.get("vocab"), whole.where
    if type(vocab) is not dict:
        raise CheckpointError(f"{where}: vocab should be a dict of lists of tokens")
    start = vocab.get("decoder_start_token", "<s>")
    if not is_text(start):
        raise CheckpointError(f"{where}: vocab's decoder_start_token should be a token")
    vocabularies = {}
    for field, side, stack in zip(("source", "target"), ("src", "tgt"), spec.stacks.values()):
        tokens = vocab.get(side)
        if type(tokens) is not list or not all(map(is_text, tokens)):
            raise CheckpointError(f"{where}: vocab should have a list of tokens as {side}")
        vocabularies[f"{field}_vocabulary"] = checked(tokens, stack.vocabulary, where)
    return vocabularies, start


def _changes(options: dict[str, Any], layers: int, is_sequence: bool) -> dict[str, Any]:
    """The entries of a mapping that depend on the options; whether the generator is a sequence of modules."""
    cell = options["rnn_type"].lower()
    decoder: dict[str, Any] = {"cell": cell, "feeds": bool(options["input_feed"])}
    tensors: dict[str, Any] = {"decoder.projection.*": f"generator.{'0.' * is_sequence}*"}
    if options["input_feed"]:  # cells, not a stack of layers
        tensors["decoder.layers.#.input.*"] = "model.decoder.rnn.layers.#.*_ih"
        tensors["decoder.layers.#.state.*"] = "model.decoder.rnn.layers.#.*_hh"
    if options["global_attention"] in ATTENTIONS:
        score, activation = ATTENTIONS[options["global_attention"]]
        decoder["attention"] = {"score": score, "after": layers}
        decoder["readout"] = {"parts": ["context", "hidden"], "activation": activation}
        if score == "general":  # (W h) . s = h . (W' s)
            turned = {"names": "model.decoder.attn.linear_in.weight", "transposed": True}
            tensors["decoder.attention.key.weight"] = turned
    encoder = {"cell": cell, "bidirectional": bool(options["brnn"] or options["encoder_type"] == "brnn")}
    if encoder["bidirectional"]:
        tensors["encoder.layers.#.input.*"] = ["model.encoder.rnn.*_ih_l#", "model.encoder.rnn.*_ih_l#_reverse"]
    return {"encoder": encoder, "decoder": decoder, "tensors": tensors}
