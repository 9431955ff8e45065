"""Constrained decoding: masks of the next tokens for answers that match a regular expression or a JSON schema.

llguidance runs a grammar over the trie of all tokens, with bounds on the work: a mask takes ten microseconds or more.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from os.path import commonprefix
from typing import Any

import numpy as np

from fastattn.errors import FastattnError, InputError, warn
from fastattn.system.records import dataclass

# Between JSON's tokens: nothing, a space, or a new line with its indentation; if more were allowed, a model might write
# blanks up to its limit of tokens. "lenient": a keyword that llguidance does not know gives a warning, no error.
SCHEMA_OPTIONS = {"whitespace_pattern": "( |\n[ \t]{0,20})?", "coerce_one_of": True, "lenient": True}
# llguidance's warning -> ours, for schemas that answers may not match fully. Other warnings are raised as errors.
WARNINGS = {
    "oneOf not fully supported": "oneOf is followed as anyOf",
    'Unimplemented keys: ["uniqueItems"]': "uniqueItems is not followed",
}
MOST_COMPILED = 8  # compiled grammars that are kept
LONGEST_SCHEMA = 1 << 16  # characters: so many take at most two seconds to compile


class Constraints:
    """Compiles constraints for one tokenizer.json and a model with ``vocabulary`` ids."""

    def __init__(self, tokenizer_json: bytes, vocabulary: int):
        self._tokenizer_json, self._vocabulary = tokenizer_json, vocabulary
        self._tokens, self._compile_cached = lru_cache(1)(self._load_tokens), lru_cache(MOST_COMPILED)(self._compile)

    def constraint(self, regex: Any, json_schema: Any, end_ids: Sequence[int]) -> "Constraint | None":
        """The constraint of a call whose answers end with one of ``end_ids``; None without regex and json_schema.

        Raises InputError for a constraint that cannot be compiled or followed, FastattnError without llguidance.
        """
        if regex is None and json_schema is None:
            return None
        if regex is not None and json_schema is not None:
            raise InputError("give regex or json_schema, not both")
        if not end_ids:
            raise InputError("regex and json_schema need an end token, the checkpoint names none: give end_token")
        if regex is not None and not isinstance(regex, str):
            raise InputError(f"regex should be a str, got {type(regex).__name__}")
        return self._compile_cached(regex, None if regex is not None else _schema_text(json_schema), tuple(end_ids))

    def _load_tokens(self, end_ids: tuple[int, ...]) -> Any:
        """(the library's module, its table of the tokenizer's tokens)."""
        try:
            import llguidance
        except ImportError as error:
            install = "regex and json_schema need the extra: pip install 'fastattn[constrain]'"
            raise FastattnError(f"{install} ({error})") from None
        text = self._tokenizer_json.decode()
        try:
            tokenizer = llguidance.LLTokenizer(text, eos_token=list(end_ids))
            # made again with the model's ids that the tokenizer lacks, which no grammar allows
            return llguidance, llguidance.LLTokenizer(text, max(tokenizer.vocab_size, self._vocabulary), list(end_ids))
        except ValueError as error:
            raise InputError(f"this tokenizer cannot be constrained: {_first_line(error)}") from None

    def _compile(self, regex: str | None, schema: str | None, end_ids: tuple[int, ...]) -> "Constraint":
        llguidance, tokens = self._tokens(end_ids)
        name, limits = ("regex", "json_schema")[regex is None], llguidance.LLParserLimits(verbose_errors=False)
        try:
            if regex is not None:
                grammar = llguidance.LLMatcher.grammar_from_regex(regex)
            else:
                grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, SCHEMA_OPTIONS)
            matcher = llguidance.LLMatcher(tokens, grammar, log_level=0, limits=limits)
        except ValueError as error:
            raise InputError(f"{name}: {_first_line(error)}") from None
        for library_warning in matcher.get_grammar_warnings():
            warning = next((text for start, text in WARNINGS.items() if library_warning.startswith(start)), None)
            if warning is None and '"lenient"' not in str(schema):  # a schema's "x-guidance" may set its own options
                raise InputError(f"{name}: {_first_line(library_warning)}")
            warn(f"{name}: {warning or _first_line(library_warning)}")
        constraint = Constraint(name, matcher, self._vocabulary)
        constraint().allowed([])  # raises an error if no text matches
        return constraint


@dataclass(frozen=True)
class Constraint:
    """A compiled constraint; called, it makes the Matcher of one answer."""

    name: str
    matcher: Any
    vocabulary: int

    def __call__(self) -> "Matcher":
        return Matcher(self.name, self.matcher.deep_copy(), self.vocabulary)


class Matcher:
    """Tells which ids may come next in one answer; its calls may alternate between the beams of a search."""

    def __init__(self, name: str, matcher: Any, vocabulary: int):
        self._name, self._matcher, self._vocabulary = name, matcher, vocabulary
        self._ids: list[int] = []  # ids that the library's matcher has consumed

    def allowed(self, ids: list[int]) -> np.ndarray:
        """The mask of the next ids, bool [vocabulary]; all False after ids that begin no answer.

        End ids are allowed where an answer may end. If only one text may follow, only the tokens by which the tokenizer
        encodes it are allowed. Raises InputError for a grammar that exceeds its bounds or that no text matches.
        """
        common = len(commonprefix([self._ids, ids]))
        if common < len(self._ids):
            self._matcher.rollback(len(self._ids) - common)
        count = common + self._matcher.try_consume_tokens(ids[common:])
        self._ids = ids[:count]
        if count < len(ids) and not self._matcher.is_error():
            return np.zeros(self._vocabulary, bool)
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            reason = _first_line(self._matcher.get_error())
            raise InputError(f"{self._name}: {'no text matches it' if reason.startswith('NoExtension') else reason}")
        return np.unpackbits(mask, count=self._vocabulary, bitorder="little").view(bool)


def _schema_text(schema: Any) -> str:
    if schema is True or (isinstance(schema, str) and schema.strip() == "true"):
        return "{}"
    if not isinstance(schema, str | Mapping):
        raise InputError(f"json_schema should be a dict or its JSON text, got {type(schema).__name__}")
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"json_schema is no JSON: {_first_line(error)}") from None
    if len(text) > LONGEST_SCHEMA:
        raise InputError(f"json_schema should have at most {LONGEST_SCHEMA} characters, has {len(text)}")
    return text


def _first_line(error: object) -> str:
    """The message of the library's error, without the excerpt of the grammar in it."""
    return str(error).rpartition("error: ")[2].partition("\n")[0][:300]
