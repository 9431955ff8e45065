"""``fastattn generate``: reads prompts and writes a language model's answers, piece by piece or line by line."""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from fastattn.cli.lines import InputLine, InputLines, open_lines, open_output, open_prompts, print_report, progress_text
from fastattn.cli.options import Command, declare, open_model, without_none
from fastattn.cli.printing import Progress, as_json
from fastattn.cli.search_options import generation_options, options_as_typed
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
        generator, compilation = open_model("Generator", model, progress, **model_options)
        if (draft_model := options.pop("draft_model")) is not None:
            options["speculate"], _ = open_model("Generator", draft_model, progress, **model_options)
        call_options, load_end = without_none(**options), time.monotonic()
        make_prompt: Callable[[str], str] = str
        if chat:  # the template writes the special tokens itself
            make_prompt, call_options["special_tokens"] = partial(_conversation, generator.chat_template, system), False
        progress.enabled &= not output.is_terminal()
        with options_as_typed():
            generator.generate_iter((), details=True, **call_options)  # checks the options before any text is read
        if "timeout" in call_options:  # kernels are compiled first, since the timeout does not cover that
            generator.generate("a", **call_options | {"timeout": None, "max_new_tokens": 1, "min_new_tokens": 0})
        has_one_answer = call_options.get("num_hypotheses", 1) == 1 and generator.default_options.num_hypotheses == 1
        if score:
            _write_scores(generator, lines, output, json, call_options.get("special_tokens", True))
        elif has_one_answer and not (by_line or json or len(prompts) > 1) and call_options.get("beam_size", 1) == 1:
            _write_pieces(generator, lines, output, make_prompt, call_options)
        else:
            for line, best in _answers(generator, lines, make_prompt, call_options | {"return_log_probs": log_probs}):
                answers = [best, *best.alternatives]
                if json:
                    fields, *alternatives = map(_answer_fields, answers)
                    text = as_json({"prompt": line.text} | fields | {"alternatives": alternatives})
                else:
                    text = "\n".join(one_line(answer.text) for answer in answers)
                _write(output, text + "\n")
                progress.show(progress_text(lines, time.monotonic() - load_end))
    if verbose:
        print_report(lines, start, load_end, compilation)


def _conversation(template: Any, system: str | None, text: str) -> str:
    system_messages = [] if system is None else [{"role": "system", "content": system}]
    return template.render([*system_messages, {"role": "user", "content": text}])  # type: ignore[no-any-return]


def _write_pieces(
    generator: Any, lines: InputLines, output: OutputFile, make_prompt: Callable[[str], str], options: dict[str, Any]
) -> None:
    for burst in lines.bursts():
        for prompt in burst:
            for piece in generator.stream(make_prompt(prompt), **options):
                _write(output, piece)
            lines.finish()
            _write(output, "\n")


def _answers(
    generator: Any, lines: InputLines, make_prompt: Callable[[str], str], options: dict[str, Any]
) -> Iterator[tuple[InputLine, Any]]:
    """(line, best Generation) for each line, in order. Only lines that the generator reads ahead are in memory."""
    for burst in lines.bursts():
        for answer in generator.generate_iter(map(make_prompt, burst), details=True, **options):
            yield lines.finish(), answer


def _write_scores(generator: Any, lines: InputLines, output: OutputFile, json: bool, special_tokens: bool) -> None:
    for burst in lines.bursts():
        for text in burst:
            scores = generator.score(text, special_tokens=special_tokens)
            perplexity = scores.perplexity if math.isfinite(scores.perplexity) else None
            lines.finish()
            if json:
                record = {"text": text, "tokens": scores.tokens, "log_probs": scores.log_probs.tolist()}
                _write(output, as_json(record | {"perplexity": perplexity}) + "\n")
            else:
                _write(output, f"{scores.perplexity:.4f}\t{one_line(text)}\n")


def _answer_fields(answer: Any) -> dict[str, Any]:
    fields = {name: getattr(answer, name) for name in ("text", "tokens", "score", "finish_reason", "prompt_length")}
    fields["score"] = answer.score if math.isfinite(answer.score) else None
    return fields if answer.log_probs is None else fields | {"log_probs": answer.log_probs.tolist()}


def _write(output: OutputFile, text: str) -> None:
    output.write(text.encode("utf-8", "surrogatepass"))
    output.flush()
