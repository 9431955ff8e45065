"""``fastattn translate``: lines in, their translations out, in order and as they come."""

import json
import math
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from fastattn.cli.command import Command, Option
from fastattn.cli.lines import Line, Lines, open_lines
from fastattn.cli.loading import loading
from fastattn.cli.options import (
    TEXT,
    announce_default,
    given,
    input_option,
    located,
    located_name,
    model_option,
    on_error_option,
    output_option,
    precision_option,
    threads_option,
    verbose_option,
)
from fastattn.cli.output import Output, open_output
from fastattn.cli.progress import Compiling, Progress, pace, rate
from fastattn.errors import FastattnError, InputError
from fastattn.files import one_line

_search = partial(click.option, cls=Option, heading="Search options")
_sampling = partial(click.option, cls=Option, heading="Sampling options")


@click.command(
    cls=Command,
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
Without --json an input line gives an output line; an empty one stays empty.
  --scores  puts the score and a tab before the text
  -n 2 ...  gives a line for each hypothesis, with the number of its input
            line and a tab before it
  --json    gives null for a score that is not finite, which only damaged
            weights lead to

\b
A line is answered at once where the next is yet to come: through a pipe, from
a FIFO, at a terminal. With --on-error skip or mark a line that fails keeps
its place in the output, so that input and output stay aligned:
  skip      an empty line; with --json one without hypotheses
  mark      [not translated: REASON]; with --json "error" beside the rest
Such lines are counted on stderr at the end, and the exit code is 5.

\b
What bounds a line's time is its length, which is split into parts, the most
tokens of each part's translation (--max-length), the beam, and --timeout.
""",
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@model_option
@click.option(
    "--from",
    "source",
    metavar="LANGUAGE",
    help="The texts' language, a code such as en, to choose one of the catalog's models by.",
)
@click.option(
    "--to",
    "target",
    metavar="LANGUAGE",
    help="The language to translate to, likewise (default, where neither is given: from en to pt).",
)
@input_option
@output_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='Write one JSON object a line: "source", "translation", "hypotheses": [{"text", "score"}].',
)
@click.option("-n", "--num-hypotheses", type=int, help="How many translations of each line, best first (default: 1).")
@click.option("--scores", is_flag=True, help="Write each translation's score before it.")
@click.option(
    "--split",
    type=click.Choice(["long", "sentences", "never"]),
    help="What is split at sentences, to be rejoined: lines over the model's length, all lines, or none (default: "
    "sentences for a Marian's checkpoint, else long).",
)
@on_error_option
@precision_option("float32", "bfloat16", "int8", "intgemm", "auto")
@threads_option
@verbose_option
@_search(
    "-b",
    "--beam-size",
    type=int,
    help="Hypotheses kept at each step; 1 is greedy search (default: the checkpoint's own, else 2; 1 where tokens are "
    "drawn, and never less than -n).",
)
@_search("--patience", type=float, help="Go on until beam size x patience hypotheses have ended (default: 1).")
@_search(
    "--length-penalty",
    type=float,
    help="Divide scores by the length to this power (default: the checkpoint's own, else 1).",
)
@_search(
    "--word-penalty",
    type=float,
    help="Take this off a score for each token (default: the checkpoint's own, else 0).",
)
@_search("--coverage-penalty", type=float, help="Weight of what is left untranslated in scores (default: 0, none).")
@_search(
    "--repetition-penalty",
    type=float,
    help="Above 1: discourage tokens that came already (default: the checkpoint's own, else 1).",
)
@_search(
    "--no-repeat-ngram",
    "no_repeat_ngram_size",
    type=int,
    help="Never produce so many tokens in a row twice (default: the checkpoint's own, else 0, no such rule).",
)
@_search(
    "--min-length",
    "min_decoding_length",
    type=int,
    help="Least tokens of a translation (default: the checkpoint's own, else 1).",
)
@_search(
    "--max-length",
    "max_decoding_length",
    type=int,
    help="Most tokens of a translation (default: the checkpoint's own, else 256, or twice the source's where that is "
    "more).",
)
@_search(
    "--max-length-factor",
    type=float,
    help="Most tokens of a translation for each of the source's (default: the checkpoint's own, else no such limit).",
)
@_search(
    "--timeout",
    type=float,
    metavar="SECONDS",
    help="Give a line up whose search takes longer; lines that are searched together share the time (default: no "
    "limit but that of the length).",
)
@_search(
    "--target-prefix", type=TEXT, metavar="TEXT", help="What every translation shall begin with (default: nothing)."
)
@_search(
    "--prefix-bias",
    "prefix_bias_beta",
    type=float,
    help="Only wish for the prefix, the more the nearer to 1 (default: 0, it is imposed).",
)
@_search("--alternatives", "return_alternatives", is_flag=True, help="With -n: branch after the target prefix.")
@_search(
    "--min-alternative-prob",
    "min_alternative_expansion_prob",
    type=float,
    help="Leave out alternatives less probable than this (default: 0).",
)
@_search(
    "--no-shortlist",
    "shortlist",
    flag_value=False,
    default=None,
    help="Choose from all words (default: from the checkpoint's list for the source, where it has one).",
)
@_search("--disable-unk", is_flag=True, help="Never produce the unknown token.")
@_search("--replace-unknowns", is_flag=True, help="Put source words in the place of unknown tokens.")
@_search(
    "--suppress",
    "suppress_sequences",
    type=TEXT,
    metavar="TEXT",
    multiple=True,
    help="Never produce TEXT, as the tokenizer splits it; may be given several times.",
)
@_sampling(
    "--sampling-topk",
    type=int,
    help="Draw from so many best tokens; 0: from all (default: the checkpoint's own, else 1).",
)
@_sampling(
    "--sampling-topp",
    type=float,
    help="Draw from the best tokens of this probability in all (default: the checkpoint's own, else 1).",
)
@_sampling(
    "--sampling-temperature",
    type=float,
    help="Above 1 evens the draw out, below 1 sharpens it (default: the checkpoint's own, else 1).",
)
@_sampling("--seed", type=int, help="The same seed gives the same samples (default: another one each time).")
def translate(
    texts: tuple[str, ...],
    model: str | None,
    source: str | None,
    target: str | None,
    input_path: str | None,
    output_path: str | None,
    as_json: bool,
    scores: bool,
    on_error: str,
    precision: str | None,
    threads: int | None,
    verbose: bool,
    **search: Any,
) -> None:
    """Translate TEXTs, the lines of a file, or standard input.

    The model is that of -m, or the catalog's for the languages of --from and --to. Without any of the three it is
    en-pt, English to Portuguese.
    """
    if model is not None and (source is not None or target is not None):
        raise click.UsageError("give --model, or --from and --to, not both")
    name = _name_between(source, target) if model is None else model
    if model is None and source is None and target is None:
        announce_default(name, "--from, --to or -m choose another")
    lines = open_lines(texts, input_path, on_error)
    with open_output(output_path) as output, Progress() as progress:
        start = time.monotonic()
        with loading():
            compiling = Compiling(progress)
            progress.show(f"loading {name}")
            if model is None:  # a folder of that name is not meant
                name = located_name(name, progress)
            else:
                name = located(model, progress)
            from fastattn.translator import Translator

            translator = Translator(name, **given(precision=precision, threads=threads))
        # A greedy search is quicker where nobody asks for scores.
        options = given(**search) | {"details": True, "return_scores": scores or as_json}
        loaded = time.monotonic()
        progress.enabled &= not output.is_terminal()
        printing = Printing(output, as_json, scores, search["num_hypotheses"] or 1, on_error == "mark")
        for result in _results(translator, lines, options, progress, loaded):
            printing.write(*result)
    if verbose:
        seconds = time.monotonic() - loaded
        click.echo(
            f"{rate(lines, seconds)} in {seconds:.2f} s (loaded in {loaded - start:.2f} s{compiling.remark()})",
            err=True,
        )
    lines.check("translated")


def _name_between(source: str | None, target: str | None) -> str:
    from fastattn.weights.download.catalog import translation_between

    return translation_between(source, target).name


def _results(
    translator: Any, lines: Lines, options: dict, progress: Progress, start: float
) -> Iterator[tuple[Line, Any]]:
    """(line, result) for each line, in order; only what the translator reads ahead is kept."""
    try:
        translator.translate_iter((), **options)  # options are looked at before any text is
    except InputError as error:
        raise InputError(_as_typed(str(error))) from None
    if "timeout" in options:  # kernels are compiled on nobody's time
        translator.translate("a", **options | {"timeout": None})
    for burst in lines.bursts():
        for result in translator.translate_iter(burst, return_exceptions=True, **options):
            line = lines.finish(result if isinstance(result, FastattnError) else None)
            progress.show(pace(lines, time.monotonic() - start))
            yield line, result


def _as_typed(message: str) -> str:
    """What the API says of its options, with the names that they have on the command line."""
    known = click.get_current_context().command.params
    typed = {option.name: option.opts[-1] for option in known if isinstance(option, Option)}
    typed["num_hypotheses"] = "--num-hypotheses"
    names = "|".join(map(str, typed))
    return re.sub(rf"\b({names})\b(=?)", lambda found: typed[found[1]] + found[2].replace("=", " "), message)


class Printing:
    """One result after the other, as text or as JSON lines; flushed, so that a reader sees each at once.

    marks  whether the place of a line that failed says why
    """

    def __init__(self, output: Output, as_json: bool, scores: bool, hypotheses: int, marks: bool):
        self.lines = 0
        self._output = output
        self._as_json = as_json
        self._scores = scores
        self._numbered = hypotheses > 1
        self._marks = marks

    def write(self, line: Line, result: Any) -> None:
        self.lines += 1
        if self._as_json:
            text = json.dumps(self._record(line, result), ensure_ascii=False, allow_nan=False)
        elif line.error is not None:
            text = self._line(f"[not translated: {line.error}]" if self._marks else "", math.nan)
        else:
            text = "\n".join(map(self._line, result.hypotheses, result.scores))
        self._output.write((text + "\n").encode("utf-8", "surrogatepass"))
        self._output.flush()

    def _record(self, line: Line, result: Any) -> dict[str, Any]:
        if line.error is not None:
            reason = {"error": str(line.error)} if self._marks else {}
            return {"source": line.text, "translation": "", "hypotheses": []} | reason
        hypotheses = [
            {"text": text, "score": score if math.isfinite(score) else None}
            for text, score in zip(result.hypotheses, result.scores)
        ]
        return {"source": line.text, "translation": result.text, "hypotheses": hypotheses}

    def _line(self, hypothesis: str, score: float) -> str:
        text = one_line(hypothesis)
        if self._scores:
            text = f"{score:.6f}\t{text}"
        return f"{self.lines}\t{text}" if self._numbered else text
