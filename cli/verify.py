"""``fastattn verify``: compares a model in fastattn with the same model in its source framework, layer by layer."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fastattn.cli.inspect import machine_facts, model_facts, print_facts
from fastattn.cli.options import TEXT, declare, find_model, pause_gc
from fastattn.cli.printing import Compilation, Progress, as_json, say
from fastattn.printable import counted

if TYPE_CHECKING:
    from fastattn.spec.checkpoint import Checkpoint
    from fastattn.verification import Verification
    from fastattn.verification.comparison import Comparison

# A plain sentence, a sentence beyond ASCII, and a sentence that is repeated to more ids than most encoders take.
SENTENCES = (
    "The library opens at nine on weekdays.",
    "Zoë's café in Łódź charges €4½ for a naïve “crème brûlée” — 好吃!",
    "On the third morning the rain stopped, and the whole village went down to the river to see what was left. ",
)
REPEATS = 40  # how often the last sentence is repeated for an encoder
MOST_SPECIAL = 16  # special tokens that are compared; some tokenizers have hundreds
OUTSIDE_BOUND = 1  # the exit code


@click.command(
    epilog="""\b
Examples:
  fastattn verify minilm
  fastattn verify ./my-model "A sentence that comes out wrong."
  fastattn verify minilm --precision int8
  fastattn verify ./my-model --json > report.json

\b
What is installed beside fastattn computes the same texts in float32:
  Hugging Face folders   transformers, torch
  sentence-transformers  these and sentence-transformers
  CTranslate2            ctranslate2

\b
A line for each layer, of the text and token where both sides are farthest
apart:
  largest   difference of two numbers, or of two log-probabilities
  relative  to the largest number that the framework has in this layer
  cosine    the least one of a row here and there
Tokens come first: where they differ, all else would, so the layers get the
tokens from here. Translations may differ where the log-probabilities that
fastattn gives to both are within the bound.

\b
Exit codes: 0 all is within the bound, 1 something is not, 2 no framework to
compare with, 3 a checkpoint that one of the two sides cannot read.
"""
)
@click.argument("model")
@click.argument("texts", nargs=-1, metavar="[TEXT]...", type=TEXT)
@declare(
    """
--precision [float32|bfloat16|int8|intgemm|int4|auto]
--bound NUMBER: The most that rows may differ, relatively, and log-probabilities (default: 0.0001 and 0.001 in float32,
    more in other precisions).
--json -> as_json: Print one JSON object.
""",
    bound={"type": click.FloatRange(min=0)},
)
@click.pass_context
def verify(
    context: click.Context,
    model: str,
    texts: tuple[str, ...],
    precision: str | None,
    bound: float | None,
    as_json: bool,
) -> None:
    """Compare MODEL with its source framework, for an issue report: every layer, vectors or translations.

    Without TEXT a plain sentence, one beyond ASCII, and for encoders a long one and special tokens are compared.
    """
    if bound is not None and not math.isfinite(bound):
        raise click.UsageError(f"--bound should be a finite number, got {bound}")
    from fastattn.weights import download, read

    with Progress() as progress:
        progress.show(f"loading {model}")
        with pause_gc():
            path = download.resolve(find_model(model, progress))
            Compilation(progress)
            from fastattn.verification import Verification

            checkpoint = read(path, "encoder")  # of T5 the encoder: no whole encoder-decoder but MarianMT is compared
            verification = Verification(path, checkpoint, precision or "auto", bound)
        compared_texts = texts or _default_texts(checkpoint)
        progress.show(f"comparing {counted(len(compared_texts), 'text')}")
        comparisons = verification.compare(compared_texts)
    machine = dict(machine_facts())
    machine = {name: machine[name] for name in ("versions", "cpu", "features", "compiled for")}
    facts = machine, _model_facts(model, checkpoint, verification)
    if as_json:
        click.echo(_json(*facts, compared_texts, comparisons))
    else:
        _print_report(*facts, compared_texts, comparisons)
    if not all(comparison.within for comparison in comparisons):
        context.exit(OUTSIDE_BOUND)


def _default_texts(checkpoint: "Checkpoint") -> tuple[str, ...]:
    """The built-in sentences, the last repeated for an encoder only.

    An encoder also gets a text with its tokenizer's special tokens: padding in a text shifts positions in some models.
    """
    from fastattn.spec.text_spec import EncoderText

    plain, accented, long = SENTENCES
    if not isinstance(checkpoint.text, EncoderText):
        return (plain, accented, long.strip())
    added_tokens = json.loads(checkpoint.text.tokenizer).get("added_tokens") or ()
    specials = [token["content"] for token in added_tokens if token.get("special")][:MOST_SPECIAL]
    return (plain, accented, long * REPEATS, *([" a ".join([*specials, plain])] if specials else []))


def _model_facts(model: str, checkpoint: "Checkpoint", verification: "Verification") -> dict[str, str]:
    bounds = verification.bounds
    log_probs = f", log-probabilities {bounds.log_probs:g}" if checkpoint.spec.decoder is not None else ""
    return {
        "model": model,
        **{name if name != "model" else "kind": value for name, value in model_facts(checkpoint)},
        "here": f"fastattn, {verification.precision}",
        "there": f"{verification.source}, float32",
        "bound": f"rows {bounds.rows:g}{log_probs}",
    }


def _print_report(
    machine: dict[str, str], model: dict[str, str], texts: Sequence[str], comparisons: Sequence["Comparison"]
) -> None:
    print_facts([*machine.items(), *model.items()])
    for number, text in enumerate(texts, 1):
        print_facts([(f"text {number}", text if len(text) <= 90 else f"{text[:80]}... ({len(text):,} characters)")])
    say()
    width = max(len(comparison.name) for comparison in comparisons)
    say(f"{'':<{width}}  {'largest':>8}  {'relative':>8}  {'cosine':>9}")
    for comparison in comparisons:
        largest, relative = _number(comparison.largest, ".1e"), _number(comparison.relative, ".1e")
        mark = "" if comparison.within else "PAST THE BOUND  "
        line = f"{comparison.name:<{width}}  {largest:>8}  {relative:>8}  {_number(comparison.cosine, '.7f'):>9}"
        say(f"{line}  {mark}{comparison.remark}".rstrip())
        if comparison.here is not None and comparison.there is not None and comparison.here != comparison.there:
            say(f"{'':<{width}}  here   {' '.join(comparison.here)}")
            say(f"{'':<{width}}  there  {' '.join(comparison.there)}")
    names = [comparison.name for comparison in comparisons if not comparison.within]
    remainder = f" and {len(names) - 3} more" if len(names) > 3 else ""
    say(f"past the bound: {', '.join(names[:3])}{remainder}" if names else "all is within the bound")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _json(
    machine: dict[str, str], model: dict[str, str], texts: Sequence[str], comparisons: Iterable["Comparison"]
) -> str:
    """The report as JSON; null for a number that is not finite."""
    records = [asdict(comparison) for comparison in comparisons]
    for record in records:
        infinite = [name for name, value in record.items() if isinstance(value, float) and not math.isfinite(value)]
        record.update(dict.fromkeys(infinite))
    is_within = all(record["within"] for record in records)
    report = {"machine": machine, "model": model, "texts": list(texts), "comparisons": records, "within": is_within}
    return as_json(report, allow_nan=False)
