"""The options of searches, for the commands that translate and for ``fastattn generate``."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fastattn.cli.options import DEFAULT_HEADING, TEXT, declare
from fastattn.errors import InputError


class _TextFile(click.ParamType):
    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            return Path(value).read_text(encoding="utf-8")
        except OSError as error:
            self.fail(f"{value}: {error.strerror}", param, context)
        except UnicodeDecodeError:
            self.fail(f"{value}: expected UTF-8", param, context)


TEXT_LIST: dict[str, Any] = {"type": TEXT, "callback": lambda context, param, texts: list(texts) or None}
# Options of searches; most parameters are fields of DecodingOptions, and None where the option is not given.
_SCORE_OPTIONS = """
--patience FLOAT: Go on until beam size x patience hypotheses have ended (default: 1).
--length-penalty FLOAT: Divide scores by the length to this power (default: the checkpoint's own, else 1)."""
_REPETITION_OPTIONS = """
--repetition-penalty FLOAT: Above 1: discourage tokens produced already (default: the checkpoint's own, else 1).
--presence-penalty FLOAT: Subtract this from the logits of tokens produced already (default: 0).
--frequency-penalty FLOAT: Subtract this from a token's logit each time that it was produced (default: 0).
--no-repeat-ngram INTEGER -> no_repeat_ngram_size: Never produce an n-gram of this size twice (default: the checkpoint's
    own, else 0, no such rule)."""
_LIMIT_AND_SAMPLING_OPTIONS = """
--timeout SECONDS: Give up a line whose search takes longer; lines in one batch share the time (default: no limit but
    the length).
--suppress TEXT ... -> suppress_sequences: Never produce TEXT, as the tokenizer splits it; may be given several times.
Sampling options
--sampling-topk INTEGER: Sample from this many best tokens; 0: from all (default: the checkpoint's own, else 1).
--sampling-topp FLOAT: Sample from the best tokens with this total probability (default: the checkpoint's own, else 1).
--sampling-minp FLOAT: Leave out tokens less probable than this times the best one (default: the checkpoint's own, else
    0).
--sampling-temperature FLOAT: Above 1 flattens the distribution, below 1 sharpens it (default: the checkpoint's own,
    else 1).
--seed INTEGER: The same seed gives the same samples (default: a new one each time)."""
search_options = declare(
    f"""
Search options
-b, --beam-size INTEGER: Hypotheses kept at each step; 1 is greedy search (default: the checkpoint's own, else 2; 1 for
    sampling, and never less than -n).{_SCORE_OPTIONS}
--word-penalty FLOAT: Subtract this from a score for each token (default: the checkpoint's own, else 0).
--coverage-penalty FLOAT: Weight of a penalty for untranslated source words (default: 0, none).{_REPETITION_OPTIONS}
--min-length INTEGER -> min_decoding_length: Least tokens of a translation (default: the checkpoint's own, else 1).
--max-length INTEGER -> max_decoding_length: Most tokens of a translation (default: the checkpoint's own, else 256, or
    twice the source's if that is more).
--max-length-factor FLOAT: Most tokens of a translation for each source token (default: the checkpoint's own, else no
    such limit).
--target-prefix TEXT: The beginning of every translation (default: nothing).
--prefix-bias FLOAT -> prefix_bias_beta: Favour the prefix instead of imposing it, more strongly nearer to 1 (default:
    0, it is imposed).
--alternatives -> return_alternatives=True: With -n: branch after the target prefix.
--min-alternative-prob FLOAT -> min_alternative_expansion_prob: Leave out alternatives less probable than this (default:
    0).
--no-shortlist -> shortlist=False: Choose from all words (default: from the checkpoint's shortlist for the source, if it
    has one).
--disable-unk -> disable_unk=True: Never produce the unknown token.
--replace-unknowns -> replace_unknowns=True: Replace unknown tokens by source words.{_LIMIT_AND_SAMPLING_OPTIONS}
""",
    timeout={"type": float},
    suppress_sequences=TEXT_LIST,
)
generation_options = declare(
    f"""
Search options
-b, --beam-size INTEGER: Hypotheses kept at each step; 1 is greedy search (default: the checkpoint's own, else 1, and
    never less than -n).{_SCORE_OPTIONS}{_REPETITION_OPTIONS}
--max-new-tokens INTEGER: Most tokens of an answer (default: the checkpoint's own, else 256; the context is a limit
    too).
--min-new-tokens INTEGER: Suppress end tokens for so many tokens (default: the checkpoint's own, else 0).
--stop TEXT ...: End an answer before TEXT; may be given several times.
--end-token TOKEN ...: A token that ends an answer, instead of the checkpoint's own; may be given several times.
--regex REGEX: The answer matches REGEX as a whole (fastattn[constrain]).
--json-schema FILE: The answer is JSON by the schema in FILE (fastattn[constrain]).
--context [refuse|cut]: What happens to a prompt that leaves no room in the model's context: refuse it, or cut its
    beginning (default: refuse).
--no-special-tokens -> special_tokens=False: The prompt has all special tokens already, such as a template's.
--speculate -> speculate=prompt: Propose what stood behind the last tokens before: the same answer, sooner where it
    repeats the prompt.
--draft-model MODEL: Propose what this smaller model with the same vocabulary says: the same answer, sooner where they
    agree.{_LIMIT_AND_SAMPLING_OPTIONS}
""",
    stop=TEXT_LIST,
    end_token=TEXT_LIST,
    regex={"type": TEXT},
    json_schema={"type": _TextFile()},
    timeout={"type": float},
    suppress_sequences=TEXT_LIST,
)


@contextlib.contextmanager
def options_as_typed() -> Iterator[None]:
    """Replace names of arguments in an InputError of the API by options as they are typed."""
    try:
        yield
    except InputError as error:
        raise InputError(_with_typed_options(str(error))) from None


def _with_typed_options(message: str) -> str:
    parameters = click.get_current_context().command.params
    headings = {option: getattr(option, "heading", DEFAULT_HEADING) for option in parameters}
    options = {option.name: option.opts[-1] for option, heading in headings.items() if heading != DEFAULT_HEADING}
    options |= {"num_hypotheses": "--num-hypotheses", "source_lang": "--from", "target_lang": "--to"}
    names = "|".join(map(str, options))
    return re.sub(rf"\b({names})\b(=?)", lambda match: options[match[1]] + match[2].replace("=", " "), message)
