"""The tokenizer of a tokenizer.json, by the ``tokenizers`` library; it cuts texts as sentence-transformers does."""

import base64
import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
from tokenizers import AddedToken, Encoding, Tokenizer, models, normalizers

from fastattn.errors import InputError, TokenizerError
from fastattn.spec.text_spec import TRUNCATION_SIDES
from fastattn.system.records import dataclass, lazy
from fastattn.text import check_text

BATCH = 1024  # texts for each call of the library, which makes a large object of each
# The most characters that a normalizer may make of one character. A compiled table of NFKC counts 18, and one or two
# replacements of runs of spaces double that.
GREATEST_GROWTH = 1024
# The name of a normalizer's table, whose characters may be escaped; to parse 20 MB of JSON for it would take 0.2 s.
_CHARSMAP = re.compile(
    '"' + "".join(f"(?:{letter}|\\\\u{ord(letter):04x})" for letter in "precompiled_charsmap") + '"', re.IGNORECASE
)
NO_LIMIT = 2**31 - 1  # as a ``max_length``; also the greatest id or token type
_IMPORTING_PROCESS = os.getpid()  # after a fork the library would wait for ever for its threads
Ids = TypeVar("Ids", np.ndarray, list[int])


class TokenSpans(NamedTuple):
    """The tokens of a text and their offsets, int32."""

    ids_T: np.ndarray
    offsets_T2: np.ndarray  # [start, end) in characters of the text; 0, 0 for special tokens


class TextToken(NamedTuple):
    """A token, whether it is special, and its [start, end) in characters of the text."""

    id: int
    token: str
    special: bool
    span: tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Special tokens around texts: (id, token type) before each text and after the last text; each text's type."""

    special_tokens: tuple[tuple[tuple[int, int], ...], ...]
    types: tuple[int, ...]

    @lazy
    def count(self) -> int:
        """The number of special tokens."""
        return sum(map(len, self.special_tokens))

    @lazy
    def ids(self) -> tuple[np.ndarray, ...]:
        """The special ids before each text and after the last text, int32."""
        return tuple(np.array([index for index, _ in tokens], dtype=np.int32) for tokens in self.special_tokens)

    def join(self, ids: Sequence[np.ndarray]) -> np.ndarray:
        """The ids of texts with the special ids around them, int32."""
        return np.concatenate([self.ids[0], *chain.from_iterable(zip(ids, self.ids[1:]))], dtype=np.int32)

    def join_types(self, lengths: Sequence[int]) -> np.ndarray:
        """The token types of ``join``'s ids for texts of these lengths, int32."""
        types, counts = [token_type for _, token_type in self.special_tokens[0]], [1] * len(self.special_tokens[0])
        for length, text_type, after in zip(lengths, self.types, self.special_tokens[1:]):
            types += [text_type, *(token_type for _, token_type in after)]
            counts += [length, *[1] * len(after)]
        return np.repeat(np.array(types, dtype=np.int32), counts)


def read_layout(tokenizer: Tokenizer, texts: int) -> Layout:
    """The layout of one text or of a pair; TokenizerError unless the post-processor has each text once, in order.

    The layout is read from what another tokenizer with the same post-processor makes of texts of one word.
    """
    probe = Tokenizer(models.WordLevel({"x": 0}, unk_token="x"))
    if tokenizer.post_processor is not None:
        probe.post_processor = tokenizer.post_processor
    encoding = probe.encode("x") if texts == 1 else probe.encode("x", "x")
    if max([*encoding.ids, *encoding.type_ids], default=0) > NO_LIMIT:
        raise TokenizerError(f"tokenizer.json: the post-processor should give numbers of at most {NO_LIMIT}")
    special_tokens: list[list[tuple[int, int]]] = [[]]
    types, is_ordered = list[int](), True
    tokens = zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, encoding.special_tokens_mask)
    for index, token_type, text, is_special in tokens:
        if is_special:
            special_tokens[-1].append((index, token_type))
        else:
            is_ordered = is_ordered and text == len(types)
            types.append(token_type)
            special_tokens.append([])
    if not is_ordered or len(types) != texts:
        raise TokenizerError("tokenizer.json: the post-processor should have each text once, in order")
    return Layout(tuple(map(tuple, special_tokens)), tuple(types))


def truncate(ids: Ids, length: int, side: str) -> Ids:
    """The ids, cut at ``side`` to at most ``length``."""
    return ids[:length] if side == "right" else ids[max(0, len(ids) - length) :]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many ids of two texts, with ``first`` and ``second`` ids, fit in ``room``: the longer text is cut first."""
    if first + second <= room:
        return first, second
    least = min(first, second, room // 2)
    return (least, room - least) if first <= second else (room - least, least)


class HuggingFaceTokenizer:
    """Turns texts into at most ``max_length`` ids each, special tokens included.

    The file's truncation and padding are ignored: they are only the settings that its exporter used last.
    Raises TokenizerError if the file is not a tokenizer.json.
    """

    def __init__(self, tokenizer_json: bytes, max_length: int, lowercase: bool = False, truncation_side: str = "right"):
        """``lowercase`` is applied before the file's normalization; ``truncation_side`` is where a long text is cut."""
        try:
            text = bytes(tokenizer_json).decode("utf-8")
        except UnicodeDecodeError:
            raise TokenizerError("tokenizer.json: not a UTF-8 text") from None
        _check_tables(text)
        with _library_errors():
            tokenizer = Tokenizer.from_str(text)
        _check_growth(tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        with _library_errors():
            self._layout = read_layout(tokenizer, 1)
        if max_length < max(1, self._layout.count):
            raise TokenizerError(f"max_length {max_length} leaves no room for the {self._layout.count} special tokens")
        if truncation_side not in TRUNCATION_SIDES:
            raise InputError(f"truncation_side should be one of {', '.join(TRUNCATION_SIDES)}, is {truncation_side!r}")
        if lowercase:
            file_normalizers = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *file_normalizers])
        self._tokenizer = tokenizer
        self._special_ids = {index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self.max_length, self.truncation_side = max_length, truncation_side
        self._fingerprints: dict[int, bytes] = {}

    @property
    def vocabulary_size(self) -> int:
        """The number of ids, added tokens included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def fingerprint(self, count: int) -> bytes:
        """A hash of the tokens whose ids are below ``count``, and of these ids."""
        if count not in self._fingerprints:  # takes 150 ms for 150,000 tokens
            entries = sorted(entry for entry in self._tokenizer.get_vocab().items() if entry[1] < count)
            self._fingerprints[count] = hashlib.blake2b(repr(entries).encode(), digest_size=16).digest()
        return self._fingerprints[count]

    def token(self, index: int) -> str | None:
        token: str | None = self._tokenizer.id_to_token(index)
        return token

    def index(self, token: str) -> int | None:
        index: int | None = self._tokenizer.token_to_id(token)
        return index

    @property
    def unknown_id(self) -> int | None:
        """The id of the unknown token, or None."""
        model = self._tokenizer.model
        if isinstance(model, models.Unigram):
            index: int | None = json.loads(model.__getstate__())["unk_id"]
            return index
        token = getattr(model, "unk_token", None)
        return None if token is None else self.index(token)

    @property
    def marks_parts(self) -> bool:
        """Whether tokens that continue a word have a prefix, such as ``##``."""
        return bool(getattr(self._tokenizer.model, "continuing_subword_prefix", None))

    def join_tokens(self, tokens: Sequence[str]) -> str:
        """The text of tokens, joined by the file's decoder, or with spaces if the file has no decoder."""
        decoder = self._tokenizer.decoder
        with _library_errors():
            return " ".join(tokens) if decoder is None else str(decoder.decode(list(tokens)))

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text, without special tokens around them; unknown tokens keep their letters."""
        (encoding,) = self._encodings([text], 1, special_tokens=False)
        return list(encoding.tokens)

    def text(self, pieces: Sequence[str]) -> str:
        """The text of pieces, without special tokens and without pieces that the vocabulary lacks."""
        ids = [index for piece in pieces if (index := self.index(piece)) is not None]
        return self.decode(ids, skip_special=True)

    def decode(self, ids: Sequence[int], skip_special: bool) -> str:
        """The text of ids, without special tokens if ``skip_special``."""
        with _library_errors():
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))

    def keep_whole(self, markers: Sequence[str]) -> None:
        """Make each marker that the vocabulary has, or else its first word, a single token wherever it occurs."""
        for marker in filter(str.split, markers):
            candidates = (token for token in (marker, marker.split()[0]) if self.index(token) is not None)
            for token in candidates:
                if self._tokenizer.encode(token, add_special_tokens=False).tokens != [token]:
                    self._tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
                break

    def is_special(self, index: int) -> bool:
        return index in self._special_ids

    @property
    def special_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """The special ids before a text and after it, int32."""
        before, after = self._layout.ids
        return before, after

    def encode(self, texts: Sequence[str], threads: int = 1, max_length: int | None = None) -> list[np.ndarray]:
        """An int32 array of ids for each text, in order.

        max_length  replaces the tokenizer's; at least the number of special tokens
        threads     1: this thread alone. More: the library's pool, if that has at most so many threads,
                    TOKENIZERS_PARALLELISM does not forbid it, and the process is not a fork.
        Raises InputError for objects that are no texts and for lone surrogates, TokenizerError if the file lacks
        something that a text needs, such as an unknown token.
        """
        longest = max_length or self.max_length
        return [_int32(self._cut(encoding.ids, longest)) for encoding in self._encodings(texts, threads, True)]

    def encode_whole(self, texts: Sequence[str], threads: int = 1) -> list[np.ndarray]:
        """All ids of each text, without special tokens; otherwise as ``encode``, which keeps ``room`` of these ids."""
        return [_int32(encoding.ids) for encoding in self._encodings(texts, threads, special_tokens=False)]

    @property
    def room(self) -> int:
        """The most ids of a text, without special tokens, that ``encode`` keeps."""
        return self.max_length - self._layout.count

    def token_types(self, length: int) -> np.ndarray:
        """The token types of a single text with ``length`` ids, special ids included, int32."""
        return self._layout.join_types([length - self._layout.count])

    def pair_lengths(self, pairs: Sequence[tuple[str, str]], threads: int = 1) -> list[int]:
        """The number of ids of each pair of texts before a pair is cut, special ids included."""
        ids_of = self._ids_of_texts(pairs, threads)
        return [self._pair_layout.count + len(ids_of[first]) + len(ids_of[second]) for first, second in pairs]

    def _ids_of_texts(self, pairs: Sequence[tuple[str, str]], threads: int) -> dict[str, np.ndarray]:
        """All ids of each text of the pairs; a text in several pairs is tokenized once."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        return dict(zip(texts, self.encode_whole(texts, threads)))

    def encode_pairs(
        self, pairs: Sequence[tuple[str, str]], threads: int = 1
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(ids, token types) of each pair of texts, int32; otherwise as ``encode``.

        In a pair that is too long, the longer text is cut first, then both equally: transformers' "longest_first".
        """
        layout = self._pair_layout
        room = self.max_length - layout.count
        if room < 0:
            raise TokenizerError(f"max_length {self.max_length} leaves no room for {layout.count} special tokens")
        for pair in pairs:
            for text in pair:
                check_text(text)
        ids_of = self._ids_of_texts(pairs, threads)
        ids_B, types_B = [], []
        for pair in pairs:
            whole_ids = [ids_of[text] for text in pair]
            lengths = longest_first(len(whole_ids[0]), len(whole_ids[1]), room)
            ids = [truncate(ids, length, self.truncation_side) for ids, length in zip(whole_ids, lengths)]
            ids_B.append(layout.join(ids))
            types_B.append(layout.join_types(lengths))
        return ids_B, types_B

    def encode_with_offsets(self, texts: Sequence[str], threads: int = 1) -> list[TokenSpans]:
        """The tokens of each text with offsets in the given text, before any normalization; otherwise as ``encode``."""
        spans = list[TokenSpans]()
        for encoding in self._encodings(texts, threads, special_tokens=True, offsets=True):
            rows = np.array(self._cut(list(range(len(encoding.ids))), self.max_length), dtype=np.intp)
            offsets_T2 = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            spans.append(TokenSpans(_int32(encoding.ids)[rows], offsets_T2[rows]))
        return spans

    def whole_tokens(self, text: str, special: bool) -> list[TextToken]:
        """All tokens of a text; ``special``: with the special tokens around them."""
        (encoding,) = self._encodings([text], 1, special)
        are_special = map(bool, encoding.special_tokens_mask)
        return list(map(TextToken, encoding.ids, encoding.tokens, are_special, encoding.offsets))

    @lazy
    def _pair_layout(self) -> Layout:
        with _library_errors():
            return read_layout(self._tokenizer, 2)

    def _cut(self, ids: list[int], longest: int) -> list[int]:
        """At most ``longest`` of a text's ids, special tokens included.

        The library's own truncation would create an object for each part that it cuts off.
        """
        if len(ids) <= longest:
            return ids
        before, after = map(len, self._layout.ids)
        text_ids = truncate(ids[before : len(ids) - after], longest - self._layout.count, self.truncation_side)
        return ids[:before] + text_ids + ids[len(ids) - after :]

    def _encodings(
        self, texts: Sequence[str], threads: int, special_tokens: bool, offsets: bool = False
    ) -> Iterator[Encoding]:
        """The library's encoding of each whole text; without ``offsets`` its offsets may be missing."""
        for text in texts:
            check_text(text)
        with _library_errors():
            if len(texts) < 2 or not _may_use_pool(threads):
                for text in texts:
                    yield self._tokenizer.encode(text, add_special_tokens=special_tokens)
                return
            encode = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
            for start in range(0, len(texts), BATCH):
                yield from encode(list(texts[start : start + BATCH]), add_special_tokens=special_tokens)


def _int32(ids: list[int]) -> np.ndarray:
    try:
        return np.array(ids, dtype=np.int32)
    except OverflowError:
        raise TokenizerError(f"tokenizer.json: ids should be at most {2**31 - 1}, {max(ids)} is one") from None


@contextlib.contextmanager
def _library_errors() -> Iterator[None]:
    """Turn the library's errors and panics into a TokenizerError."""
    try:
        yield
    except BaseException as error:  # the library's panics are no Exceptions
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
            raise
        raise TokenizerError(f"tokenizer.json: {' '.join(str(error).split())}") from None


def _check_tables(text: str) -> None:
    """Raise TokenizerError if a normalizer's table declares more bytes than it has.

    The library would allocate as many bytes as declared, and end the process if that fails.
    """
    if not _CHARSMAP.search(text):
        return
    with contextlib.suppress(ValueError, RecursionError):  # the library reports invalid JSON
        json.loads(text, object_pairs_hook=_check_charsmap_length, parse_int=str, parse_float=str)


def _check_charsmap_length(pairs: list[tuple[str, object]]) -> None:
    for name, value in pairs:
        if name == "precompiled_charsmap" and isinstance(value, str):
            length = int.from_bytes(base64.b64decode(value[:8])[:4], "little")
            if length > len(value):
                fault = f"a normalizer's table says that it has {length} bytes, and has fewer"
                raise TokenizerError(f"tokenizer.json: {fault}")


def _check_growth(tokenizer: Tokenizer) -> None:
    """Raise TokenizerError if the normalizer's steps together could lengthen a text greatly."""
    if tokenizer.normalizer is None:
        return
    growth = _growth(json.loads(tokenizer.normalizer.__getstate__()))
    if growth > GREATEST_GROWTH:
        fault = f"the normalizer could make {growth:.0e} characters of one, more than {GREATEST_GROWTH}"
        raise TokenizerError(f"tokenizer.json: {fault}")


def _growth(normalizer: dict[str, Any]) -> float:
    """The most characters with which the strings in a normalizer could replace one character.

    Unicode's normalizations, whose strings are not in the file and do not multiply, count as 1.
    """
    match normalizer:
        case {"type": "Sequence", "normalizers": steps}:
            return math.prod(map(_growth, steps), start=1.0)
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": content} if pattern:
            return max(1.0, len(content) / len(pattern))
        case {"type": "Replace", "content": content} | {"type": "Prepend", "prepend": content}:
            return 1.0 + len(content)  # besides the character, since a pattern may match empty text
        case {"type": "Precompiled", "precompiled_charsmap": table}:
            replacements = base64.b64decode(table).split(b"\0")
            return max(1.0, *(len(part.decode("utf-8", "ignore")) for part in replacements))
    return 1.0


def _may_use_pool(threads: int) -> bool:
    """Whether a caller with ``threads`` threads may use the library's thread pool, which has a thread for each CPU."""
    if threads < 2 or os.getpid() != _IMPORTING_PROCESS:
        return False
    if os.environ.get("TOKENIZERS_PARALLELISM", "true").lower() in ("", "off", "false", "f", "no", "n", "0"):
        return False
    limit = os.environ.get("RAYON_NUM_THREADS", "")
    if limit.isdigit() and int(limit) > 0:
        return int(limit) <= threads
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) <= threads
