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

NEAR, MOST_NEAR = 0.75, 3  # the least similarity of a fuzzy match, and how many are given
# Calls with these options go past the cache: it does not store what they return, or they sample.
UNKEPT = ("return_attention", "callback", "return_alternatives", *SAMPLING)


class Near(NamedTuple):
    """A fuzzy match: a similar text of a memory, its translation, and the similarity, 0 to 1."""

    source: str
    translation: str
    similarity: float


@dataclass(frozen=True)
class RememberedTranslation:
    """A translation with its matches in a memory: ``exact`` if the memory has the text itself, else ``near`` ones.

    look   computes ``near``, which takes a second for some ten thousand texts
    first  of a chain, as in ChainedTranslation
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    parts: list[TokenTranslation]
    exact: bool
    look: Callable[[], tuple[Near, ...]]
    first: Translation | None = None

    @lazy
    def near(self) -> tuple[Near, ...]:
        """The fuzzy matches, the most similar first."""
        return self.look()


class MemoryTranslator(StreamedTranslator):
    """Takes translations from a memory and translates the other texts; ``Translator.with_memory`` makes it.

    memory  text -> translation; blanks around a text do not count
    Details are RememberedTranslations.
    """

    window = 256

    def __init__(self, translator: Any, memory: Mapping[str, str]):
        super().__init__(translator)
        self._memory = {source.strip(): target.strip() for source, target in memory.items()}

    def _translated(self, texts: list[str], call: StreamCall, own: list[dict[str, Any]]) -> Iterator[Any]:
        matches = {b: self._memory.get(text.strip()) for b, text in enumerate(texts) if isinstance(text, str)}
        unknown = [b for b in range(len(texts)) if matches.get(b) is None]
        options = call.of([own[b] for b in unknown]) | {"details": call.details, "return_exceptions": True}
        answers = self._translator.translate_iter([texts[b] for b in unknown], **options)
        for b, text in enumerate(texts):
            if (translation := matches.get(b)) is not None:
                core = text.strip()
                written = text.replace(core, translation, 1) if core else text
                yield RememberedTranslation(written, [written], [0.0], [], True, tuple) if call.details else written
                continue
            answer = next(answers)
            if call.details and not isinstance(answer, FastattnError):
                answer = RememberedTranslation(**details_of(answer), exact=False, look=partial(self.near, text))
            yield answer

    def near(self, text: str) -> tuple[Near, ...]:
        """The memory's texts that are most similar to a text, by common substrings (Ratcliff and Metzener 1988)."""
        matcher, matches = difflib.SequenceMatcher(autojunk=False), list[Near]()
        matcher.set_seq2(text.strip())
        for source, translation in self._memory.items():
            matcher.set_seq1(source)
            if matcher.real_quick_ratio() >= NEAR and matcher.quick_ratio() >= NEAR:
                if (similarity := matcher.ratio()) >= NEAR:
                    matches.append(Near(source, translation, similarity))
        return tuple(sorted(matches, key=lambda near: -near.similarity)[:MOST_NEAR])


class CachedTranslator(StreamedTranslator):
    """Takes translations from a file and stores new ones there; ``fastattn translate --cache`` makes it.

    path   an SQLite database, created if missing; processes may share it
    model  identifies the translator: entries of other models are not used
    most   the most entries of the file: the least recently used ones are deleted
    Results have no parts, which the file does not store; sampled translations are not stored.
    """

    window = 256

    def __init__(self, translator: Any, path: str, model: str, most: int = 1_000_000):
        super().__init__(translator)
        self._model, self._most = model, check_count("most", most)
        try:
            self._database = sqlite3.connect(path, timeout=60.0, isolation_level=None, check_same_thread=False)
            with suppress(sqlite3.OperationalError):  # despite the timeout, while another process does it
                self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma synchronous = normal")
            self._database.execute(
                "create table if not exists translations (key blob primary key, result text, used real) without rowid"
            )
            self._database.execute("create index if not exists by_use on translations (used)")
        except sqlite3.Error as error:
            raise InputError(f"{path} cannot be a cache of translations: {error}") from None

    def _results(self, texts: Iterator[str], call: StreamCall) -> Iterator[Any]:
        options = call.shared | call.each
        if any(options.get(name) or options.get(name) == 0 and name in SAMPLING for name in UNKEPT):
            options |= {"details": call.details, "return_exceptions": call.return_exceptions}
            return iter(self._translator.translate_iter(texts, **options))
        return super()._results(texts, call)

    def _translated(self, texts: list[str], call: StreamCall, own: list[dict[str, Any]]) -> Iterator[Any]:
        keys = [self._key(call.shared | options, text) for options, text in zip(own, texts)]
        rows = self._known(keys)
        unknown = [b for b, key in enumerate(keys) if key not in rows]
        options = call.of([own[b] for b in unknown]) | {"details": True, "return_exceptions": True}
        answers = self._translator.translate_iter([texts[b] for b in unknown], **options)
        new: dict[bytes, str] = {}
        try:
            for key in keys:
                if key in rows:
                    yield Translation(*rows[key], [])
                    continue
                answer = next(answers)
                if not isinstance(answer, FastattnError):
                    new[key] = json.dumps([answer.text, answer.hypotheses, answer.scores])
                yield answer
        finally:  # a caller may stop anywhere
            self._keep(new)

    def _key(self, options: dict[str, Any], text: Any) -> bytes:
        request = json.dumps([self._model, options], sort_keys=True, default=repr)
        return hashlib.sha256(f"{request}\0{text}".encode("utf-8", "surrogatepass")).digest()

    def _known(self, keys: list[bytes]) -> dict[bytes, tuple[str, list[str], list[float]]]:
        """key -> (text, hypotheses, scores) of the keys that the file has; damaged rows are left out."""
        marks = ",".join("?" * len(keys))
        rows = dict[bytes, tuple[str, list[str], list[float]]]()
        for key, result in self._execute(f"select key, result from translations where key in ({marks})", keys):
            with suppress(ValueError, TypeError, RecursionError):
                text, hypotheses, scores = json.loads(result)
                if isinstance(text, str) and isinstance(hypotheses, list) and isinstance(scores, list):
                    rows[key] = text, hypotheses, scores
        if rows:
            marks = ",".join("?" * len(rows))
            self._execute(f"update translations set used = ? where key in ({marks})", [time.time(), *rows])
        return rows

    def _keep(self, new: Mapping[bytes, str]) -> None:
        if not new:
            return
        now = time.time()
        try:
            self._database.execute("begin immediate")
            rows = [(key, result, now) for key, result in new.items()]
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
