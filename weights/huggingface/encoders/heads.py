"""Forms of heads that several architectures share, with the names of their tensors."""

from collections.abc import Mapping

from fastattn.spec.architecture import HeadSpec, NormSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import HeadSource, fixed
from fastattn.weights.tensor_mapping import TensorSources, sources

SEQUENCE, TOKENS, MASKED = "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"


def dense_head(rows: str, inner: str, outer: str, act: str) -> HeadSource:
    """A classifier of two layers, the first of the stack's width, with the activation ``act``."""

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        return HeadSpec(rows, labels, inner_width=stack.width, activation=act)

    return HeadSource(spec, fixed({"head.inner.*": sources(f"{inner}.*"), "head.output.*": sources(f"{outer}.*")}))


def linear_head(rows: str, outer: str, bias: bool = True) -> HeadSource:
    """A classifier of one layer."""

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        return HeadSpec(rows, labels, bias)

    return HeadSource(spec, fixed({"head.output.*": sources(f"{outer}.*")}))


def last_head(outer: str, padding: int = -1) -> HeadSource:
    """A classifier of one layer without a bias, of the last row that is no padding's.

    padding  the id where config.json does not name one; -1: none, as where it is null
    """

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        usual = -1 if "pad_token_id" in config.values else padding
        return HeadSpec("last", labels, bias=False, padding=config.integer("pad_token_id", usual, minimum=-1))

    return HeadSource(spec, fixed({"head.output.*": sources(f"{outer}.*")}))


def masked_head(
    inner: str,
    norm: str,
    output: str,
    bias: str = "",
    act: str = "",
    embedding: str = "embeddings.word_embeddings",
) -> HeadSource:
    """A prediction of tokens: a layer of the embedding's width, a norm, and the embedding itself or a layer like it.

    output  the last layer, where it is not tied to the embedding
    bias    of a last layer that is tied; "": the last layer's own
    act     the activation of the first layer; "": that of the feed-forwards
    """

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        width, name = stack.embedding_width or stack.width, act or stack.feed_forward.activation
        norms = NormSpec(epsilon=stack.norms.epsilon)
        return HeadSpec("each", stack.vocabulary, inner_width=width, activation=name, norm=norms)

    def table(config: JsonObject, stack: StackSpec) -> Mapping[str, TensorSources]:
        parts = {"head.inner.*": sources(f"{inner}.*"), "head.norm.*": sources(f"{norm}.*")}
        return parts | tied_output(config, output, bias or f"{output}.bias", embedding)

    return HeadSource(spec, table, labelled=False)


def tied_output(config: JsonObject, output: str, bias: str, embedding: str) -> dict[str, TensorSources]:
    """A last layer that is the embedding with a bias, or a layer of its own: the end of ``masked_head``'s table."""
    if not config.boolean("tie_word_embeddings", True):
        return {"head.output.*": sources(f"{output}.*")}
    return {"head.output.weight": sources(f"{embedding}.weight"), "head.output.bias": sources(bias)}
