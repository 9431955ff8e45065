"""``fastattn inspect``: describes a checkpoint, this machine and the installation, as named facts."""

import contextlib
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastattn._version import VERSION
from fastattn.cli.printing import say
from fastattn.printable import counted

if TYPE_CHECKING:
    from fastattn.simd.target import Target
    from fastattn.spec.architecture import HeadSpec, StackSpec
    from fastattn.spec.checkpoint import Checkpoint
    from fastattn.spec.recurrent import RecurrentSpec
    from fastattn.spec.text_spec import DecodingSettings, EncoderText, GeneratorText, LanguageTokens, TranslationText

_NOTABLE_FEATURES = (
    "sse4.2 avx avx2 fma f16c avxvnni avx512f avx512vl avx512bw avx512vnni avx512bf16 avx512fp16 amx-int8 amx-bf16 "
    "neon fullfp16 bf16 dotprod i8mm sve sve2"
).split()

# Extra of the package -> what the extra adds.
_EXTRAS = {
    "documents": "Markdown, Word, OpenDocument, EPUB, XLIFF and PO",
    "pdf": "PDF",
    "detect": "--from auto",
    "serve": "the HTTP server",
    "chat": "chat templates",
    "constrain": "answers by a regular expression or a JSON schema",
    "images": "pictures",
    "ray": "corpora on clusters",
    "cuda": "NVIDIA cards",
}

Facts = Iterator[tuple[str, str]]


@click.command(
    epilog="""\b
Examples:
  fastattn inspect zh-en
  fastattn inspect ./my-model
  fastattn inspect                this machine: CPU, extras, cache, versions
"""
)
@click.argument("model", required=False)
def inspect(model: str | None) -> None:
    """Describe MODEL (layers, sizes, precision, tokenizer), this CPU and what is installed."""
    if model is not None:
        from fastattn.weights import download, read

        path = download.resolve(model)
        checkpoint = read(path)
        print_facts([("checkpoint", str(path)), *_origin_facts(path), *model_facts(checkpoint)])
        say()
    print_facts(machine_facts())


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    for name, value in facts:
        say(f"{name:<14} {value}")


def model_facts(checkpoint: "Checkpoint") -> Facts:
    """The facts about a checkpoint: architecture, weights, text settings."""
    from fastattn.spec.text_spec import EncoderText, GeneratorText, TranslationText

    spec = checkpoint.spec
    yield "format", checkpoint.format or "unknown"
    stack_kinds = {stack.kind for stack in spec.stacks.values()}
    family = "Transformer" if stack_kinds & {"attention", "patches"} else " and ".join(sorted(stack_kinds))
    yield "model", f"{family} {spec.kind}"
    for name, stack in spec.stacks.items():
        describe = _STACK_DESCRIPTIONS.get(stack.kind)
        summary = f"{stack.kind}, {counted(stack.layers, 'layer')}, width {stack.width}"
        yield name, describe(stack) if describe else summary
    if spec.head is not None:
        yield "head", _describe_head(spec.head, getattr(checkpoint.input, "labels", ()))
    yield from _weight_facts(checkpoint)
    if isinstance(checkpoint.input, TranslationText):
        yield from _translation_facts(checkpoint.input)
        if checkpoint.shortlist is not None:
            common, by_source = len(checkpoint.shortlist.always), len(checkpoint.shortlist.targets)
            yield "shortlist", f"{common:,} target words, and {by_source:,} for those of the source"
    elif isinstance(checkpoint.input, EncoderText):
        yield from _encoder_facts(checkpoint.input)
    elif isinstance(checkpoint.input, GeneratorText):
        yield from _generator_facts(checkpoint.input)
    else:
        yield "input", checkpoint.input.description
    yield from checkpoint.details.items()


def _origin_facts(path: Path) -> Facts:
    """The licence and origin that a pulled folder's SOURCE_FILE names; if no licence is there, the model card's."""
    from fastattn.weights.download import hub
    from fastattn.weights.download.pull import SOURCE_FILE

    fields = {}
    if (path / SOURCE_FILE).is_file():
        text = (path / SOURCE_FILE).read_text(encoding="utf-8", errors="replace")
        fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    licence = fields.get("licence") or hub.licence(path)
    for name, value in (("licence", licence), ("origin", fields.get("origin", ""))):
        if value:
            yield name, value


_RECURRENCES = {"ssru": "SSRU in place of self-attention", "average-attention": "average attention"}


def _describe_recurrent(stack: "RecurrentSpec") -> str:
    directions = " in both directions" * stack.bidirectional + " from the end" * stack.backward
    parts = [f"{counted(stack.layers, 'layer')} of {stack.cell}, {stack.units} units{directions}"]
    if stack.attention is not None:
        heads = f" of {counted(stack.attention.heads, 'head')}" if stack.attention.heads > 1 else ""
        parts.append(f"{stack.attention.score} attention{heads}")
    return ", ".join([*parts, f"width {stack.width}"])


def _describe_stack(stack: "StackSpec") -> str:
    attention, feed_forward = stack.attention, stack.feed_forward
    heads = f"{counted(attention.heads, 'head')} of {attention.head_width}"
    if attention.key_heads != attention.heads:
        heads += f" on {counted(attention.key_heads, 'key head')}"
    positions = f"{stack.positions.kind} positions"
    if stack.positions.limit:
        positions += f" (at most {stack.positions.limit:,})"
    parts = [counted(stack.layers, "layer"), f"width {stack.width}"]
    if stack.recurrence is not None:
        parts.append(_RECURRENCES[stack.recurrence.kind])
    activation = "gated " * feed_forward.gated + feed_forward.activation
    parts += [heads, f"feed-forward {feed_forward.inner_width} ({activation})"]
    parts += [f"{'pre' if stack.norms.before else 'post'}-norm ({stack.norms.kind})", positions]
    if stack.local is not None:
        layers = counted(len(stack.local.layers), "layer")
        parts.append(f"{layers} local ({stack.local.before} before, {stack.local.after} after)")
    if stack.causal:
        parts.append("causal")
    if stack.convolution is not None:
        parts.append(f"convolution of {counted(stack.convolution.width, 'row')}")
    return ", ".join(parts)


_STACK_DESCRIPTIONS: dict[str, Callable[[Any], str]] = {"attention": _describe_stack, "recurrent": _describe_recurrent}


def _describe_head(head: "HeadSpec", labels: Sequence[str]) -> str:
    """The rows that a head reads, its first layer if it has one, its outputs and some of their labels."""
    rows = "each row" if head.rows == "each" else "the mean row" if head.rows == "mean" else f"the {head.rows} row"
    layer = [f"a layer of {head.inner_width} ({head.activation})"] if head.inner_width else []
    outputs = counted(head.outputs, "output")
    if labels:
        outputs += f": {', '.join(labels[:5])}{', ...' * (len(labels) > 5)}"
    return ", ".join([rows, *layer, outputs])


_BYTES_PER_NUMBER = {"float32": 4, "bfloat16": 2, "int8": 1}


def _weight_facts(checkpoint: "Checkpoint") -> Facts:
    from fastattn.spec.checkpoint import resolve_precision
    from fastattn.weights.native.convert import weight_bytes

    tensors = {id(tensor): tensor for tensor in checkpoint.tensors.values()}.values()  # tied weights count once
    parameters = sum(tensor.size for tensor in tensors)
    yield "parameters", f"{parameters:,}"
    precision = resolve_precision("auto", checkpoint).name
    # In a model of int4, tables and projections are int8.
    is_mixed = precision == "int4"
    size = weight_bytes(checkpoint, precision) if is_mixed else _BYTES_PER_NUMBER[precision] * parameters
    stored_precision = checkpoint.precision
    if any(getattr(tensor, "input_scale", None) is not None for tensor in tensors):
        stored_precision += " with scales for its inputs (intgemm)"
    memory = f"about {size / 1e6:,.1f} MB in memory"
    yield "precision", f"{stored_precision} in the file; auto is {precision}, {memory}"


def _translation_facts(text: "TranslationText") -> Facts:
    from fastattn.text.translation import lacks_sentencepiece

    if text.languages is not None:
        from fastattn.text.languages import Languages

        yield "languages", str(Languages(text.languages.tokens))
        yield "told by", _describe_languages(text.languages)
    if text.source_language or text.target_language:
        yield "languages", f"{text.source_language or '?'} to {text.target_language or '?'}"
    is_shared = text.source_vocabulary == text.target_vocabulary
    sizes = f"{len(text.source_vocabulary):,} source, {len(text.target_vocabulary):,} target"
    yield "vocabulary", f"{len(text.source_vocabulary):,}, shared" if is_shared else sizes
    remark = " (no sentencepiece model lies beside this checkpoint)" if lacks_sentencepiece(text) else ""
    pieces = f"characters{', lower case' * text.lowercase}" if text.source_characters else "tokens separated by spaces"
    files = {"sentencepiece": text.source_model, "tokenizer.json": text.tokenizer}
    yield "tokenizer", next((kind for kind, data in files.items() if data is not None), f"{pieces}{remark}")
    yield from _decoding_facts(text.decoding)


def _describe_languages(scheme: "LanguageTokens") -> str:
    """Where a multilingual model's input and output name the languages; the first language's token is the example."""
    code, token = next(iter(scheme.tokens.items()))
    source = {"before": f"{token} ... </s>", "after": f"... </s> {token}", "": f"{scheme.prefix} ..."}[scheme.source]
    target = {"first": f", the target begins with {token}", "start": f", the target starts from {token}", "": ""}
    return f"{source.replace('{target}', token)}{target[scheme.target]} (for {code})"


def _decoding_facts(decoding: "DecodingSettings") -> Facts:
    rules = {} if decoding.rules is None else vars(decoding.rules)
    settings = {name: value for name, value in decoding.options().items() if name != "rules"} | rules
    settings |= {"forced_tokens": decoding.forced_tokens} if decoding.forced_tokens else {}
    text = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
    yield "decoding", f"{text} (the checkpoint's own)" if settings else "the checkpoint asks for nothing of its own"
    for remark in decoding.not_followed:
        yield "not followed", remark


def _generator_facts(text: "GeneratorText") -> Facts:
    yield "tokenizer", "tokenizer.json"
    yield "context", f"{text.max_length:,} ids, prompt and answer" if text.max_length else "no limit"
    yield "ends", ", ".join(map(str, text.end_ids)) or "none"
    yield "chat template", f"{len(text.chat_template):,} characters" if text.chat_template else "none"
    yield from _decoding_facts(text.decoding)


def _encoder_facts(text: "EncoderText") -> Facts:
    yield "tokenizer", f"tokenizer.json, at most {text.max_length:,} ids" + (", lower case" if text.lowercase else "")
    normalization = ", then unit length" if text.normalize else ""
    if text.sparse is not None:
        yield "vectors", f"sparse, the {text.sparse.pooling} of each text's tokens ({text.sparse.activation})"
    elif text.multi_vector is not None:
        length = text.multi_vector.expansion
        expansion = f", queries filled up to {length}" if length else ""
        yield "vectors", f"one a token{expansion}{normalization}"
    else:
        yield "pooling", ", ".join(text.pooling) + normalization
    for weight, _, kind in text.dense:
        yield "dense", f"{weight.shape[1]} to {weight.shape[0]}, {kind}" if weight.ndim == 2 else kind.replace("_", " ")
    for name, prompt in text.prompts.items():
        default = " (default)" if name == text.default_prompt else ""
        yield "prompt", f"{name}{default}: {prompt!r}"
    yield "similarity", text.similarity


def machine_facts() -> Facts:
    """The facts about this machine: CPUs, what compiled code uses, a GPU, the cache, extras, versions."""
    from fastattn.runtime.threads import thread_limit
    from fastattn.simd.target import TARGET, compiled_features, compiled_name, tiles_refusal
    from fastattn.system.cache_folder import NOWHERE, cache_root
    from fastattn.system.cpus import usable_cpus

    root, features, cpus = cache_root(), compiled_features(), usable_cpus()

    import llvmlite  # after fastattn's runtime, which checks the environment variables of Numba
    import numba
    import numpy

    counts = f"{os.cpu_count()} CPUs, this process may run on {cpus.affinity}"
    yield "cpu", f"{compiled_name()} ({platform.machine()}), {counts}"
    yield "quota", "none" if cpus.quota is None else f"time of {cpus.quota.cpus:.3g} CPUs, by {cpus.quota.file}"
    yield "features", " ".join(name for name in _NOTABLE_FEATURES if name in features) or "none of note"
    fma = "with" if TARGET.fma else "without"
    yield "compiled for", f"{TARGET.name}: vectors of {TARGET.lanes} float32, {fma} fused multiply-add"
    yield "products", ", ".join(f"{name} by {_describe_products(name, TARGET)}" for name in ("bfloat16", "int8"))
    if refusal := tiles_refusal():
        yield "AMX", f"not used: {refusal}"
    from fastattn.errors import FastattnError
    from fastattn.ops import backend

    try:
        backend("cuda")
    except FastattnError as error:
        card = f"none: {error}"
    else:
        from fastattn.ops.cuda.card import description

        card = description()
    yield "card", card
    yield "threads", f"{thread_limit()} by default{', by NUMBA_NUM_THREADS' * ('NUMBA_NUM_THREADS' in os.environ)}"
    yield "cache", "none: this user has no home folder; FASTATTN_CACHE names one" if root == NOWHERE else str(root)
    from fastattn.runtime.code_cache import PACKAGE, installed_folder
    from fastattn.runtime.handle import cache_folder

    own, installed = (len(list(folder.glob("*-*"))) for folder in (cache_folder(), installed_folder()))
    yield "kernels", f"{own:,} compiled for this CPU and these versions, {installed:,} in {PACKAGE}"
    yield from _extra_facts()
    versions = {"fastattn": VERSION, "numba": numba.__version__, "llvmlite": llvmlite.__version__}
    versions |= {"numpy": numpy.__version__, "python": platform.python_version()}
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items()) + f" on {sys.platform}"


def _extra_facts() -> Facts:
    """The extras whose packages are all installed, and what the missing extras add."""
    from importlib.metadata import PackageNotFoundError, distribution, requires

    packages: dict[str, list[str]] = {}
    with contextlib.suppress(PackageNotFoundError):  # fastattn runs from a clone and is not installed
        for line in requires("fastattn") or ():
            if match := re.match(r"([\w.-]+).*extra == ['\"](\w+)['\"]", line):
                packages.setdefault(match[2], []).append(match[1])

    def is_installed(package: str) -> bool:
        try:
            return bool(distribution(package))
        except PackageNotFoundError:
            return False

    installed_extras = [extra for extra in _EXTRAS if extra in packages and all(map(is_installed, packages[extra]))]
    yield "extras", ", ".join(installed_extras) or "none"
    if missing := [f"{extra}: {use}" for extra, use in _EXTRAS.items() if extra not in installed_extras]:
        yield "not installed", "; ".join(missing)


_INSTRUCTIONS = {"dot": "vdpbf16ps", "vnni": "VNNI", "pairs": "pmaddwd", "widened": "widened numbers"}


def _describe_products(precision: str, target: "Target") -> str:
    name: str = getattr(target, precision)
    instructions = _INSTRUCTIONS.get(name, name)
    if precision not in target.tiles:
        return instructions
    return "AMX's tiles" if name == "tiles" else f"AMX's tiles (few rows: {instructions})"
