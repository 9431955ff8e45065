"""``fastattn translate``: lines in, their translations out, in order and as they come."""

import json
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import click

from fastattn.cli.lines import Lines, open_lines
from fastattn.cli.loading import loading
from fastattn.cli.options import (
    given,
    input_option,
    located,
    located_name,
    model_option,
    precision_option,
    threads_option,
    verbose_option,
)
from fastattn.cli.output import Output, open_output
from fastattn.cli.progress import Compiling, Progress, pace, rate


@click.command(
    epilog="""\b
Examples:
  fastattn translate "Hello world"
  fastattn translate --from pt --to en < portuguese.txt
  fastattn translate -m zh-en "我们明天去北京开会。"
  fastattn translate -m zh-en -i chinese.txt -o english.txt -v
  zcat big.gz | fastattn translate -m zh-en --beam-size 1 | head
  fastattn translate -m zh-en --beam-size 5 -n 5 --scores "你好"
  fastattn translate -m zh-en -b 1 --sampling-topk 10 --seed 7 -n 3 "你好"
  fastattn translate -m ./my-model --json < input.txt

\b
Without --json one input line gives one output line; an empty line stays empty.
  --scores  puts the score and a tab before the text
  -n 2 ...  gives a line for each hypothesis, its input line's number and a tab first
  --json    gives null for a score that is not finite, which only damaged weights lead to
"""
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@model_option
@click.option("--from", "source", metavar="LANGUAGE", help="Choose the catalog's model: from LANGUAGE (default: en).")
@click.option("--to", "target", metavar="LANGUAGE", help="Choose the catalog's model: to LANGUAGE (default: pt).")
@input_option
@click.option("-o", "--output", "output_path", metavar="FILE", help="Write to FILE, which appears once complete.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: source, hypotheses, scores.")
@click.option("-b", "--beam-size", type=int, help="Hypotheses kept at each step; 1 is greedy search.")
@click.option("-n", "--num-hypotheses", type=int, help="How many translations of each line, best first.")
@click.option("--scores", is_flag=True, help="Print each hypothesis' score.")
@click.option("--patience", type=float, help="Go on until beam size x patience hypotheses have ended.")
@click.option("--length-penalty", type=float, help="Divide scores by length to this power.")
@click.option("--coverage-penalty", type=float, help="Weight of what is left untranslated in scores; 0: none.")
@click.option("--repetition-penalty", type=float, help="Above 1: discourage tokens that came already.")
@click.option(
    "--no-repeat-ngram", "no_repeat_ngram_size", type=int, help="Never produce so many tokens in a row twice."
)
@click.option("--min-length", "min_decoding_length", type=int, help="Least tokens of a translation.")
@click.option("--max-length", "max_decoding_length", type=int, help="Most tokens of a translation.")
@click.option("--target-prefix", metavar="TEXT", help="What every translation shall begin with.")
@click.option("--prefix-bias", "prefix_bias_beta", type=float, help="Only wish for the prefix: 0 (no) to below 1.")
@click.option("--alternatives", "return_alternatives", is_flag=True, help="With -n: branch after the target prefix.")
@click.option(
    "--min-alternative-prob", "min_alternative_expansion_prob", type=float, help="Drop alternatives less probable."
)
@click.option(
    "--no-shortlist",
    "shortlist",
    flag_value=False,
    default=None,
    help="Choose from all words, not from the checkpoint's list for the source.",
)
@click.option("--disable-unk", is_flag=True, help="Never produce the unknown token.")
@click.option("--replace-unknowns", is_flag=True, help="Put source words in the place of unknown tokens.")
@click.option(
    "--suppress",
    "suppress_sequences",
    metavar="TEXT",
    multiple=True,
    help="Never produce TEXT, as the tokenizer splits it.",
)
@click.option("--sampling-topk", type=int, help="With -b 1: draw from so many best tokens; 0: from all.")
@click.option("--sampling-topp", type=float, help="Draw from the best tokens of this probability in all.")
@click.option("--sampling-temperature", type=float, help="Above 1 evens the draw out, below 1 sharpens it.")
@click.option("--seed", type=int, help="Of the draws; the same seed gives the same samples.")
@click.option(
    "--split",
    type=click.Choice(["long", "sentences", "never"]),
    help="What is split at sentences and rejoined: lines over the model's length, all lines (default for a Marian's "
    "checkpoint; else long), or none.",
)
@precision_option
@threads_option
@verbose_option
def translate(
    texts: tuple[str, ...],
    model: str | None,
    source: str | None,
    target: str | None,
    input_path: str | None,
    output_path: str | None,
    as_json: bool,
    scores: bool,
    precision: str | None,
    threads: int | None,
    verbose: bool,
    **search: Any,
) -> None:
    """Translate TEXTs, the lines of a file, or standard input."""
    if model is not None and (source is not None or target is not None):
        raise click.UsageError("give --model, or --from and --to, not both")
    name = _name_between(source, target) if model is None else model
    lines = open_lines(texts, input_path)
    with open_output(output_path) as output, Progress() as progress:
        start = time.monotonic()
        with loading():
            compiling = Compiling(progress)
            progress.show(f"loading {name}")
            if model is None:  # a folder of that name is not meant
                remark = "" if source or target else " (--from, --to or -m choose another model)"
                name = located_name(name, progress, remark)
            else:
                name = located(model, progress)
            from fastattn.translator import Translator

            translator = Translator(name, **given(precision=precision, threads=threads))
        options = given(**search) | {"details": True}
        loaded = time.monotonic()
        progress.enabled &= not output.is_terminal()
        printing = Printing(output, as_json, scores, search["num_hypotheses"] or 1)
        for result in _results(translator, lines, options, progress, loaded):
            printing.write(*result)
    if verbose:
        seconds = time.monotonic() - loaded
        click.echo(
            f"{rate(lines, seconds)} in {seconds:.2f} s (loaded in {loaded - start:.2f} s{compiling.remark()})",
            err=True,
        )


def _name_between(source: str | None, target: str | None) -> str:
    from fastattn.weights.catalog import translation_between

    return translation_between(source, target).name


def _results(translator: Any, lines: Lines, options: dict, progress: Progress, start: float) -> Iterator[tuple]:
    """(source, result) for each line, in order; only what the translator reads ahead is kept."""
    waiting: deque[str] = deque()

    def read() -> Iterator[str]:
        for line in lines:
            waiting.append(line)
            yield line

    results: Iterable = translator.translate_iter(read(), **options)
    if lines.terminal:  # a person waits for the answer to each line
        results = (translator.translate(line, **options) for line in read())
    for result in results:
        lines.finish(1)
        progress.show(pace(lines, time.monotonic() - start))
        yield waiting.popleft(), result


class Printing:
    """One result after the other, as text or as JSON lines; flushed, so that a reader sees each at once."""

    def __init__(self, output: Output, as_json: bool, scores: bool, hypotheses: int):
        self.lines = 0
        self._output = output
        self._as_json = as_json
        self._scores = scores
        self._numbered = hypotheses > 1

    def write(self, source: str, result: Any) -> None:
        self.lines += 1
        if self._as_json:
            record = {
                "source": source,
                "translation": result.text,
                "hypotheses": [
                    {"text": text, "score": score if math.isfinite(score) else None}
                    for text, score in zip(result.hypotheses, result.scores)
                ],
            }
            text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        else:
            text = "\n".join(map(self._line, result.hypotheses, result.scores))
        self._output.write((text + "\n").encode("utf-8", "surrogatepass"))
        self._output.flush()

    def _line(self, hypothesis: str, score: float) -> str:
        text = hypothesis.replace("\r", " ").replace("\n", " ")  # one line stays one line
        if self._scores:
            text = f"{score:.6f}\t{text}"
        return f"{self.lines}\t{text}" if self._numbered else text
