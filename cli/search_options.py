"""The options of searches: those of every command that translates, and of the one that generates."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import click

from fastattn.cli.options import TEXT, Option, with_options


class _TextFile(click.ParamType):
    """The text of a file."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            return Path(value).read_text(encoding="utf-8")
        except OSError as error:
            self.fail(f"{value}: {error.strerror}", param, context)
        except UnicodeDecodeError:
            self.fail(f"{value}: expected UTF-8", param, context)


_search = partial(click.option, cls=Option, heading="Search options")
_sampling = partial(click.option, cls=Option, heading="Sampling options")
# Texts, of an option that may be given several times; None: it is not given.
_texts = partial(_search, type=TEXT, multiple=True, callback=lambda context, param, texts: list(texts) or None)

split_option = click.option(
    "--split",
    type=click.Choice(["long", "sentences", "never"]),
    help="Which lines are split at sentences and joined again: those over the model's length, all, or none (default: "
    "sentences for a Marian checkpoint, else long).",
)
# The fields of DecodingOptions, by their names; None for each that is not given. Those of every search come first.
_scores = (
    _search("--patience", type=float, help="Go on until beam size x patience hypotheses have ended (default: 1)."),
    _search(
        "--length-penalty",
        type=float,
        help="Divide scores by the length to this power (default: the checkpoint's own, else 1).",
    ),
)
_repetitions = (
    _search(
        "--repetition-penalty",
        type=float,
        help="Above 1: discourage tokens produced already (default: the checkpoint's own, else 1).",
    ),
    _search(
        "--presence-penalty",
        type=float,
        help="Subtract this from the logits of tokens produced already (default: 0).",
    ),
    _search(
        "--frequency-penalty",
        type=float,
        help="Subtract this from a token's logit each time that it was produced (default: 0).",
    ),
    _search(
        "--no-repeat-ngram",
        "no_repeat_ngram_size",
        type=int,
        help="Never produce an n-gram of this size twice (default: the checkpoint's own, else 0, no such rule).",
    ),
)
_limits = (
    _search(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="Give up a line whose search takes longer; lines in one batch share the time (default: no limit but the "
        "length).",
    ),
    _texts(
        "--suppress",
        "suppress_sequences",
        metavar="TEXT",
        help="Never produce TEXT, as the tokenizer splits it; may be given several times.",
    ),
)
_samples = (
    _sampling(
        "--sampling-topk",
        type=int,
        help="Sample from this many best tokens; 0: from all (default: the checkpoint's own, else 1).",
    ),
    _sampling(
        "--sampling-topp",
        type=float,
        help="Sample from the best tokens with this total probability (default: the checkpoint's own, else 1).",
    ),
    _sampling(
        "--sampling-minp",
        type=float,
        help="Leave out tokens less probable than this times the best one (default: the checkpoint's own, else 0).",
    ),
    _sampling(
        "--sampling-temperature",
        type=float,
        help="Above 1 flattens the distribution, below 1 sharpens it (default: the checkpoint's own, else 1).",
    ),
    _sampling("--seed", type=int, help="The same seed gives the same samples (default: a new one each time)."),
)
search_options = with_options(
    _search(
        "-b",
        "--beam-size",
        type=int,
        help="Hypotheses kept at each step; 1 is greedy search (default: the checkpoint's own, else 2; 1 for sampling, "
        "and never less than -n).",
    ),
    *_scores,
    _search(
        "--word-penalty",
        type=float,
        help="Subtract this from a score for each token (default: the checkpoint's own, else 0).",
    ),
    _search(
        "--coverage-penalty", type=float, help="Weight of a penalty for untranslated source words (default: 0, none)."
    ),
    *_repetitions,
    _search(
        "--min-length",
        "min_decoding_length",
        type=int,
        help="Least tokens of a translation (default: the checkpoint's own, else 1).",
    ),
    _search(
        "--max-length",
        "max_decoding_length",
        type=int,
        help="Most tokens of a translation (default: the checkpoint's own, else 256, or twice the source's if that is "
        "more).",
    ),
    _search(
        "--max-length-factor",
        type=float,
        help="Most tokens of a translation for each source token (default: the checkpoint's own, else no such limit).",
    ),
    _search(
        "--target-prefix", type=TEXT, metavar="TEXT", help="The beginning of every translation (default: nothing)."
    ),
    _search(
        "--prefix-bias",
        "prefix_bias_beta",
        type=float,
        help="Favour the prefix instead of imposing it, more strongly nearer to 1 (default: 0, it is imposed).",
    ),
    _search(
        "--alternatives",
        "return_alternatives",
        is_flag=True,
        default=None,
        help="With -n: branch after the target prefix.",
    ),
    _search(
        "--min-alternative-prob",
        "min_alternative_expansion_prob",
        type=float,
        help="Leave out alternatives less probable than this (default: 0).",
    ),
    _search(
        "--no-shortlist",
        "shortlist",
        flag_value=False,
        default=None,
        help="Choose from all words (default: from the checkpoint's shortlist for the source, if it has one).",
    ),
    _search("--disable-unk", is_flag=True, default=None, help="Never produce the unknown token."),
    _search("--replace-unknowns", is_flag=True, default=None, help="Replace unknown tokens by source words."),
    *_limits,
    *_samples,
)
generation_options = with_options(
    _search(
        "-b",
        "--beam-size",
        type=int,
        help="Hypotheses kept at each step; 1 is greedy search (default: the checkpoint's own, else 1, and never less "
        "than -n).",
    ),
    *_scores,
    *_repetitions,
    _search(
        "--max-new-tokens",
        type=int,
        help="Most tokens of an answer (default: the checkpoint's own, else 256; the context is a limit too).",
    ),
    _search(
        "--min-new-tokens",
        type=int,
        help="Suppress end tokens for so many tokens (default: the checkpoint's own, else 0).",
    ),
    _texts(
        "--stop",
        metavar="TEXT",
        help="End an answer before TEXT; may be given several times.",
    ),
    _texts(
        "--end-token",
        metavar="TOKEN",
        help="A token that ends an answer, instead of the checkpoint's own; may be given several times.",
    ),
    _search("--regex", type=TEXT, metavar="REGEX", help="The answer matches REGEX as a whole (fastattn[constrain])."),
    _search(
        "--json-schema",
        type=_TextFile(),
        metavar="FILE",
        help="The answer is JSON by the schema in FILE (fastattn[constrain]).",
    ),
    _search(
        "--context",
        type=click.Choice(["refuse", "cut"]),
        help="What happens to a prompt that leaves no room in the model's context: refuse it, or cut its beginning "
        "(default: refuse).",
    ),
    _search(
        "--no-special-tokens",
        "special_tokens",
        flag_value=False,
        default=None,
        help="The prompt has all special tokens already, such as a template's.",
    ),
    _search(
        "--speculate",
        flag_value="prompt",
        default=None,
        help="Propose what stood behind the last tokens before: the same answer, sooner where it repeats the prompt.",
    ),
    _search(
        "--draft-model",
        metavar="MODEL",
        help="Propose what this smaller model with the same vocabulary says: the same answer, sooner where they agree.",
    ),
    *_limits,
    *_samples,
)


def as_typed(message: str) -> str:
    """An error message of the API with the command line's names of the options."""
    known = click.get_current_context().command.params
    typed = {option.name: option.opts[-1] for option in known if isinstance(option, Option)}
    typed |= {"num_hypotheses": "--num-hypotheses", "source_lang": "--from", "target_lang": "--to"}
    names = "|".join(map(str, typed))
    return re.sub(rf"\b({names})\b(=?)", lambda found: typed[found[1]] + found[2].replace("=", " "), message)
