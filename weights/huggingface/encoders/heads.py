"""Forms of heads that several architectures share, with the names of their tensors."""

from collections.abc import Callable, Mapping

from fastattn.spec import HeadSpec, NormSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import Head, activation
from fastattn.weights.plan import Part, of

SEQUENCE, TOKENS, MASKED = "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"


def dense_head(rows: str, inner: str, outer: str, act: str | Callable[[JsonObject], str]) -> Head:
    """A classifier of two layers, the first of the stack's width; ``act``: its activation, perhaps by config.json."""

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        return HeadSpec(rows, labels, inner_width=stack.width, activation=_named(act, config))

    return Head(spec, _fixed({"head.inner.*": of(f"{inner}.*"), "head.output.*": of(f"{outer}.*")}))


def linear_head(rows: str, outer: str, bias: bool = True) -> Head:
    """A classifier of one layer."""

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        return HeadSpec(rows, labels, bias)

    return Head(spec, _fixed({"head.output.*": of(f"{outer}.*")}))


def masked_head(
    inner: str,
    norm: str,
    output: str,
    bias: str = "",
    act: str | Callable[[JsonObject], str] = activation,
    embedding: str = "embeddings.word_embeddings",
) -> Head:
    """A prediction of tokens: a layer of the embedding's width, a norm, and the embedding itself or a layer like it.

    output  the last layer, where it is not tied to the embedding
    bias    of a last layer that is tied; "": the last layer's own
    act     the activation of the first layer, perhaps by config.json
    """

    def spec(config: JsonObject, stack: StackSpec, labels: int) -> HeadSpec:
        width = stack.embedding_width or stack.width
        norms = NormSpec(epsilon=stack.norms.epsilon)
        return HeadSpec("each", stack.vocabulary, inner_width=width, activation=_named(act, config), norm=norms)

    def table(config: JsonObject, stack: StackSpec) -> Mapping[str, Part]:
        parts = {"head.inner.*": of(f"{inner}.*"), "head.norm.*": of(f"{norm}.*")}
        if not config.boolean("tie_word_embeddings", True):
            return parts | {"head.output.*": of(f"{output}.*")}
        return parts | {
            "head.output.weight": of(f"{embedding}.weight"),
            "head.output.bias": of(bias or f"{output}.bias"),
        }

    return Head(spec, table, labelled=False)


def _named(act: str | Callable[[JsonObject], str], config: JsonObject) -> str:
    return act if isinstance(act, str) else act(config)


def _fixed(table: Mapping[str, Part]) -> Callable[[JsonObject, StackSpec], Mapping[str, Part]]:
    return lambda config, stack: table
