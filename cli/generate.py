"""``fastattn generate``: prompts in, a language model's answers out, as they come."""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from fastattn.cli.lines import InputLine, InputLines, open_lines, open_output, open_prompts, pace, report
from fastattn.cli.options import Command, declare, open_model, without_none
from fastattn.cli.printing import Progress, as_json
from fastattn.cli.search_options import generation_options, typed_names
from fastattn.system.files import OutputFile, one_line


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  fastattn generate -m ./my-llm "Once upon a time"
  fastattn generate -m OWNER/NAME --max-new-tokens 50 < prompt.txt
  fastattn generate -m ./my-llm -i questions.txt --lines -o answers.txt
  fastattn generate -m ./my-llm --stop Q: --sampling-temperature 0.8 "Q: Who?"
  fastattn generate -m ./my-llm --regex "yes|no" "Is water wet?"
  fastattn generate -m ./my-llm -n 3 --seed 7 --sampling-minp 0.1 "The"
  fastattn generate -m ./my-llm --json "Once upon a time"
  fastattn generate -m ./my-llm --speculate -i code-to-edit.txt
  fastattn generate -m ./my-llm --chat --system "Be brief." "Who was Euler?"
  fastattn generate -m ./my-llm --score -i text.txt

\b
The prompt is all of standard input or of a file, but for its last line end;
with --lines every line is one.
The answer to a single prompt is written as it comes, without the prompt.
Of several prompts, or with -n 2 ..., each answer is a line.

\b
  --json   {"prompt", "text", "tokens", "score", "finish_reason",
           "prompt_length", "alternatives"}; --log-probs adds "log_probs"
  --score  the perplexity, a tab and the text; with --json
           {"text", "tokens", "log_probs", "perplexity"}
""",
)
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@declare("""
--model
--input
--output
--lines -> by_line: Every line of the input is a prompt.
--json: Write one JSON object a prompt.
-n, --num-hypotheses INTEGER: How many answers to each prompt, best first (default: 1).
--log-probs: With --json: the log-probability of each token.
--chat: Each prompt is a message, for the model's chat template (fastattn[chat]).
--system TEXT: With --chat: what the model is told before.
--score: Generate nothing: write how probable the texts are.
--precision [float32|bfloat16|int8|int4|auto]
--cache-precision
--threads
--device
--verbose
""")
@generation_options
def generate(
    prompts: tuple[str, ...],
    model: str | None,
    by_line: bool,
    json: bool,
    log_probs: bool,
    chat: bool,
    system: str | None,
    score: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Continue PROMPTs, or standard input, with a language model.

    -m names the model.
    """
    if model is None:
        raise click.UsageError("there is no default model to generate with; name one with -m")
    if log_probs and not json:
        raise click.UsageError("--log-probs needs --json")
    if system is not None and not chat:
        raise click.UsageError("--system needs --chat")
    if score and chat:
        raise click.UsageError("give --score or --chat, not both")
    if options["speculate"] and options["draft_model"]:
        raise click.UsageError("give --speculate or --draft-model, not both")
    lines = (open_lines if by_line else open_prompts)(prompts, options.pop("input_path"))
    with open_output(options.pop("output_path")) as output, Progress() as progress:
        start = time.monotonic()
        model_options = {name: options.pop(name) for name in ("precision", "cache_precision", "threads", "device")}
        generator, compiling = open_model("Generator", model, progress, **model_options)
        if (draft := options.pop("draft_model")) is not None:
            options["speculate"], _ = open_model("Generator", draft, progress, **model_options)
        search, loaded = without_none(**options), time.monotonic()
        as_prompt: Callable[[str], str] = str
        if chat:  # the template writes the special tokens
            as_prompt, search["special_tokens"] = partial(_conversation, generator.chat_template, system), False
        progress.enabled &= not output.is_terminal()
        with typed_names():
            generator.generate_iter((), details=True, **search)  # checks the options before any text is read
        if "timeout" in search:  # compiling kernels does not count
            generator.generate("a", **search | {"timeout": None, "max_new_tokens": 1, "min_new_tokens": 0})
        one_answer = search.get("num_hypotheses", 1) == 1 and generator.default_options.num_hypotheses == 1
        if score:
            _score(generator, lines, output, json, search.get("special_tokens", True))
        elif one_answer and not (by_line or json or len(prompts) > 1) and search.get("beam_size", 1) == 1:
            _stream(generator, lines, output, as_prompt, search)
        else:
            for line, answer in _answers(generator, lines, as_prompt, search | {"return_log_probs": log_probs}):
                ranked = [answer, *answer.alternatives]
                if json:
                    best, *alternatives = map(_record, ranked)
                    text = as_json({"prompt": line.text} | best | {"alternatives": alternatives})
                else:
                    text = "\n".join(one_line(answer.text) for answer in ranked)
                _write(output, text + "\n")
                progress.show(pace(lines, time.monotonic() - loaded))
    if verbose:
        report(lines, start, loaded, compiling)


def _conversation(template: Any, system: str | None, text: str) -> str:
    before = [] if system is None else [{"role": "system", "content": system}]
    return template.render([*before, {"role": "user", "content": text}])  # type: ignore[no-any-return]


def _stream(
    generator: Any, lines: InputLines, output: OutputFile, as_prompt: Callable[[str], str], search: dict[str, Any]
) -> None:
    for burst in lines.bursts():
        for prompt in burst:
            for piece in generator.stream(as_prompt(prompt), **search):
                _write(output, piece)
            lines.finish()
            _write(output, "\n")


def _answers(
    generator: Any, lines: InputLines, as_prompt: Callable[[str], str], search: dict[str, Any]
) -> Iterator[tuple[InputLine, Any]]:
    """(line, Generation) for each line, in order; only lines that the generator reads ahead are in memory."""
    for burst in lines.bursts():
        for answer in generator.generate_iter(map(as_prompt, burst), details=True, **search):
            yield lines.finish(), answer


def _score(generator: Any, lines: InputLines, output: OutputFile, json: bool, special_tokens: bool) -> None:
    for burst in lines.bursts():
        for text in burst:
            scored = generator.score(text, special_tokens=special_tokens)
            perplexity = scored.perplexity if math.isfinite(scored.perplexity) else None
            lines.finish()
            if json:
                record = {"text": text, "tokens": scored.tokens, "log_probs": scored.log_probs.tolist()}
                _write(output, as_json(record | {"perplexity": perplexity}) + "\n")
            else:
                _write(output, f"{scored.perplexity:.4f}\t{one_line(text)}\n")


def _record(answer: Any) -> dict[str, Any]:
    record = {name: getattr(answer, name) for name in ("text", "tokens", "score", "finish_reason", "prompt_length")}
    record["score"] = answer.score if math.isfinite(answer.score) else None
    return record if answer.log_probs is None else record | {"log_probs": answer.log_probs.tolist()}


def _write(output: OutputFile, text: str) -> None:
    output.write(text.encode("utf-8", "surrogatepass"))
    output.flush()
