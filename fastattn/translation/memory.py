"""Translation memories (TMX), and a cache of earlier translations."""

import difflib
import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from fastattn.decoding.options import SAMPLING
from fastattn.errors import FastattnError, InputError, check_count
from fastattn.system.records import dataclass, lazy
from fastattn.translation.calls import TokenTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator, details_of

LEAST_SIMILARITY, MOST_MATCHES = 0.75, 3  # of fuzzy matches
# Calls with these options bypass the cache: it does not store all that they return, or they sample.
UNCACHED_OPTIONS = ("return_attention", "callback", "return_alternatives", *SAMPLING)


class FuzzyMatch(NamedTuple):
    """A similar text of a memory, the similar text's translation, and the similarity, 0 to 1."""

    source: str
    translation: str
    similarity: float


@dataclass(frozen=True)
class RememberedTranslation:
    """A translation with a memory: ``exact`` if the memory has the text itself; else with its ``near`` matches.

    find_near  computes ``near``, which takes a second for a memory of some ten thousand texts
    first      a chain's, as in ChainedTranslation
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]
    exact: bool
    find_near: Callable[[], tuple[FuzzyMatch, ...]]
    first: Translation | None = None

    @lazy
    def near(self) -> tuple[FuzzyMatch, ...]:
        """The fuzzy matches, the most similar first."""
        return self.find_near()


class MemoryTranslator(StreamedTranslator):
    """Takes translations from a memory and translates texts that it lacks; ``Translator.with_memory`` makes one.

    memory  text -> translation; blanks around a text do not count
    Details are RememberedTranslations.
    """

    window = 256

    def __init__(self, translator: Any, memory: Mapping[str, str]):
        super().__init__(translator)
        self._memory = {source.strip(): target.strip() for source, target in memory.items()}

    def _translate_window(self, texts: list[str], call: StreamCall, values: list[dict[str, Any]]) -> Iterator[Any]:
        matches = {b: self._memory.get(text.strip()) for b, text in enumerate(texts) if isinstance(text, str)}
        misses = [b for b in range(len(texts)) if matches.get(b) is None]
        options = call.options_for([values[b] for b in misses]) | {"details": call.details, "return_exceptions": True}
        answers = self._translator.translate_iter([texts[b] for b in misses], **options)
        for b, text in enumerate(texts):
            if (match := matches.get(b)) is not None:
                core = text.strip()
                answer: Any = text.replace(core, match, 1) if core else text
                yield RememberedTranslation(answer, [answer], [0.0], [], True, tuple) if call.details else answer
                continue
            answer = next(answers)
            if call.details and not isinstance(answer, FastattnError):
                answer = RememberedTranslation(**details_of(answer), exact=False, find_near=partial(self.near, text))
            yield answer

    def near(self, text: str) -> tuple[FuzzyMatch, ...]:
        """The memory's texts that are most similar to a text, by common substrings (Ratcliff and Metzener 1988)."""
        matcher, matches = difflib.SequenceMatcher(autojunk=False), list[FuzzyMatch]()
        matcher.set_seq2(text.strip())
        for source, translation in self._memory.items():
            matcher.set_seq1(source)
            if matcher.real_quick_ratio() >= LEAST_SIMILARITY and matcher.quick_ratio() >= LEAST_SIMILARITY:
                if (similarity := matcher.ratio()) >= LEAST_SIMILARITY:
                    matches.append(FuzzyMatch(source, translation, similarity))
        return tuple(sorted(matches, key=lambda match: -match.similarity)[:MOST_MATCHES])


class CachedTranslator(StreamedTranslator):
    """Takes translations from a file and stores new translations there; ``fastattn translate --cache`` makes one.

    path   an SQLite database, created if missing, which processes may share
    model  identifies the translator: entries of other models are not used
    most   the most entries of the file: beyond them the least recently used entries are deleted
    Results have no parts, which the file does not store; sampled translations are not stored.
    """

    window = 256

    def __init__(self, translator: Any, path: str, model: str, most: int = 1_000_000):
        super().__init__(translator)
        self._model, self._most = model, check_count("most", most)
        try:
            self._database = sqlite3.connect(path, timeout=60.0, isolation_level=None, check_same_thread=False)
            with suppress(sqlite3.OperationalError):  # raised, despite the timeout, if another process sets the mode
                self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma synchronous = normal")
            self._database.execute(
                "create table if not exists translations (key blob primary key, result text, used real) without rowid"
            )
            self._database.execute("create index if not exists by_use on translations (used)")
        except sqlite3.Error as error:
            raise InputError(f"{path} cannot be a cache of translations: {error}") from None

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        options = call.shared | call.per_text
        if any(options.get(name) or options.get(name) == 0 and name in SAMPLING for name in UNCACHED_OPTIONS):
            options |= {"details": call.details, "return_exceptions": call.return_exceptions}
            return iter(self._translator.translate_iter(texts, **options))
        return super()._results(texts, call)

    def _translate_window(self, texts: list[str], call: StreamCall, values: list[dict[str, Any]]) -> Iterator[Any]:
        keys = [self._key(call.shared | text_values, text) for text_values, text in zip(values, texts)]
        rows = self._read_rows(keys)
        misses = [b for b, key in enumerate(keys) if key not in rows]
        options = call.options_for([values[b] for b in misses]) | {"details": True, "return_exceptions": True}
        answers = self._translator.translate_iter([texts[b] for b in misses], **options)
        new_rows: dict[bytes, str] = {}
        try:
            for key in keys:
                if key in rows:
                    yield Translation(*rows[key], [])
                    continue
                answer = next(answers)
                if not isinstance(answer, FastattnError):
                    new_rows[key] = json.dumps([answer.text, answer.hypotheses, answer.scores])
                yield answer
        finally:  # also if the caller stops before the last result
            self._write_rows(new_rows)

    def _key(self, options: dict[str, Any], text: Any) -> bytes:
        request = json.dumps([self._model, options], sort_keys=True, default=repr)
        return hashlib.sha256(f"{request}\0{text}".encode("utf-8", "surrogatepass")).digest()

    def _read_rows(self, keys: list[bytes]) -> dict[bytes, tuple[str, list[str], list[float]]]:
        """key -> (text, hypotheses, scores) of the keys that the file has; damaged rows are left out."""
        placeholders = ",".join("?" * len(keys))
        rows = dict[bytes, tuple[str, list[str], list[float]]]()
        for key, result in self._execute(f"select key, result from translations where key in ({placeholders})", keys):
            with suppress(ValueError, TypeError, RecursionError):
                text, hypotheses, scores = json.loads(result)
                if isinstance(text, str) and isinstance(hypotheses, list) and isinstance(scores, list):
                    rows[key] = text, hypotheses, scores
        if rows:
            placeholders = ",".join("?" * len(rows))
            self._execute(f"update translations set used = ? where key in ({placeholders})", [time.time(), *rows])
        return rows

    def _write_rows(self, new_rows: Mapping[bytes, str]) -> None:
        if not new_rows:
            return
        now = time.time()
        try:
            self._database.execute("begin immediate")
            rows = [(key, result, now) for key, result in new_rows.items()]
            self._database.executemany("insert or replace into translations values (?, ?, ?)", rows)
            ((count,),) = self._database.execute("select count(*) from translations")
            if count > self._most:
                self._database.execute(
                    "delete from translations where key in (select key from translations order by used limit ?)",
                    (count - self._most,),
                )
            self._database.execute("commit")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("rollback")
            raise FastattnError(f"the cache of translations cannot be written: {error}") from None

    def _execute(self, statement: str, values: list[Any]) -> Any:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise FastattnError(f"the cache of translations cannot be read: {error}") from None

    def close(self) -> None:
        """Close the file and the translator."""
        self._database.close()
        super().close()
