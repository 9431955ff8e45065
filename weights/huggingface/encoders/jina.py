"""jina-embeddings-v2's BERT (Günther 2023): linear biases to both sides instead of positions, gates."""

from dataclasses import replace

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import Alibi, PositionSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.encoders.architecture import Architecture
from fastattn.weights.huggingface.encoders.bert import EMBEDDING, HEADS, IGNORED, LAYERS, OLD_NORM_ENDS, bert_spec
from fastattn.weights.tensor_mapping import TensorSources, sources

GATES_AND_INNER = "encoder.layer.#.mlp.gated_layers.weight"
GATED = {
    "encoder.layers.#.feed_forward.inner.weight": sources(GATES_AND_INNER, piece=(0, 2)),
    "encoder.layers.#.feed_forward.inner_linear.weight": sources(GATES_AND_INNER, piece=(1, 2)),
    "encoder.layers.#.feed_forward.inner.bias": sources(None),
    "encoder.layers.#.feed_forward.inner_linear.bias": sources(None),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layer.#.mlp.wo.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layer.#.mlp.layernorm.*"),
}
# Its feed-forwards -> the activation of those with gates.
GATES = {"geglu": "gelu", "reglu": "relu"}


def _spec(config: JsonObject) -> StackSpec:
    code = config.nested("auto_map").string("AutoModel", "")
    if "-qk-" in code:  # nothing else in config.json tells base-code's and base-es's architecture from base-en's
        raise CheckpointError(f"{config.where}: not supported: norms of queries and keys, by {shorten(code)}")
    stack = bert_spec(config, positions="alibi")
    kind = config.choice("feed_forward_type", ("original", *GATES), "original")
    feed_forward = stack.feed_forward
    if kind != "original":
        feed_forward = replace(feed_forward, activation=GATES[kind], gated=True)
    positions = PositionSpec("alibi", limit=stack.positions.limit, alibi=Alibi(symmetric=True))
    return replace(stack, positions=positions, feed_forward=feed_forward)


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    return LAYERS | EMBEDDING | (GATED if spec.feed_forward.gated else {})


ARCHITECTURE = Architecture(_spec, _table, ("bert.",), IGNORED, renamed=OLD_NORM_ENDS, heads=HEADS)
