"""The tokenizer of a translation model: from text to tokens and back; the splitting of long text into parts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from fastattn.errors import CheckpointError, InputError, warn
from fastattn.spec.text_spec import TranslationText
from fastattn.system.records import dataclass, lazy
from fastattn.text import check_text
from fastattn.text.languages import LanguagePair, Languages, language_pair
from fastattn.text.sentencepiece import SPACE, SentencePiece
from fastattn.text.splitting import split_sentences, split_to_fit

if TYPE_CHECKING:
    from fastattn.text.huggingface import HuggingFaceTokenizer
    from fastattn.text.subword_units import MosesUnits, SubwordUnits

    Pieces = SentencePiece | HuggingFaceTokenizer | SubwordUnits | MosesUnits

SPLITS = ("long", "sentences", "never")
# A vocabulary with more tokens that begin with SPACE is sentencepiece's; a smaller one may be written by hand.
MOST_HANDWRITTEN = 1000

LINE_ENDS = re.compile(r"(\r\n|\n|\r)")
# Languages that are written without spaces between sentences.
SPACELESS_LANGUAGES = frozenset("zh zho cmn yue wuu ja jpn th tha lo lao km khm my mya bo bod dz dzo".split())
# First and last characters of such scripts, for unknown languages: Thai, Lao and Tibetan, Myanmar, Khmer, punctuation
# and kana, Han, full-width punctuation. (A regular expression of these ranges takes 1.4 ms to compile.)
SPACELESS_SCRIPTS = (
    ("\u0e00", "\u0fff"),
    ("\u1000", "\u109f"),
    ("\u1780", "\u17ff"),
    ("\u3000", "\u30ff"),
    ("\u3400", "\u9fff"),
    ("\uff00", "\uff65"),
)


class TranslationTokenizer:
    """Turns texts into the tokens and ids of a model's source and target vocabularies, and back.

    Pieces are looked up by their text, not by the .spm's ids: a vocabulary may have tokens that its .spm lacks. The
    .spm files are loaded in the background; ``wait`` returns once they are loaded.

    models      bytes of a .spm file -> the SentencePiece that loads it already
    token_pair  the language pair of sources that are given as tokens
    """

    def __init__(self, text: TranslationText, models: Mapping[bytes, SentencePiece] = MappingProxyType({})):
        self.text = text
        self._source_ids = _ids_by_token(text.source_vocabulary)
        is_shared = text.target_vocabulary is text.source_vocabulary
        self._target_ids = self._source_ids if is_shared else _ids_by_token(text.target_vocabulary)
        model: Pieces | None = None
        if text.tokenizer is not None:
            from fastattn.text import huggingface  # imports a library that few models need

            model = huggingface.HuggingFaceTokenizer(text.tokenizer, huggingface.NO_LIMIT)
        if text.codes is not None:
            from fastattn.text.subword_units import MosesUnits, SubwordUnits

            units = SubwordUnits(text.codes)
            model = MosesUnits(units, text) if text.words else units
        elif text.source_model is not None:
            model = models.get(text.source_model) or SentencePiece(text.source_model, background=True)
        self._source_model = self._target_model = model
        if text.codes is None and text.target_model is not None and text.target_model != text.source_model:
            self._target_model = models.get(text.target_model) or SentencePiece(text.target_model, background=True)
        self.end_id = self._target_ids[text.eos_token]
        # Without an unknown token, the start token stands for unknown ones, since no target contains it.
        self.unk_id = self._target_ids.get(text.unk_token, self._target_ids.get(text.decoder_start_token or "", 0))
        self.implicit_tokens = int(text.add_source_bos) + int(text.add_source_eos)
        scheme = text.languages
        self.languages = None if scheme is None else Languages(scheme.tokens)
        for token in scheme.tokens.values() if scheme is not None and (scheme.source or scheme.target) else ():
            if token not in self._source_ids or token not in self._target_ids:
                raise CheckpointError(f"the vocabularies should have the language token {token!r}, and lack it")
        self._pairs: dict[tuple[str | None, str | None], LanguagePair] = {}
        start = text.decoding.forced_tokens
        self.token_pair = LanguagePair("", "", start=start, forced_tokens=len(start))
        self._should_warn = lacks_sentencepiece(text)
        self._has_unk_token = text.unk_token in self._source_ids

    def wait(self) -> None:
        """Return once the .spm files are loaded; TokenizerError for a file that is not supported."""
        for model in (self._source_model, self._target_model):
            if isinstance(model, SentencePiece):
                model.wait()

    @lazy
    def vocabulary_map(self) -> "VocabularyMap | None":
        """The checkpoint's vocabulary map, read at first use; CheckpointError if it is malformed."""
        return None if self.text.vocabulary_map is None else VocabularyMap(self.text, self._target_ids)

    def source_tokens(self, text: str) -> list[str]:
        """The tokens of a text with its language tag; the first call warns if the sentencepiece model is missing."""
        if self._should_warn:
            self._should_warn = False
            warn(
                "no sentencepiece model lies beside this checkpoint: texts are taken as tokens separated by spaces; "
                "put source.spm and target.spm, or sentencepiece.model for both, beside model.bin, or call "
                "translate_tokens"
            )
        tag, text = self.cut_language_tag(text.lower() if self.text.lowercase else text)
        tokens = tag + _tokens(text, self._source_model, self.text.source_characters)
        return tokens if self._has_unk_token else [token for token in tokens if token in self._source_ids]

    def cut_language_tag(self, text: str) -> tuple[list[str], str]:
        """([the tag of the target language] if the text begins with a tag, else []; the text behind the tag).

        A tag (``>>de<<``, ``<2de>``) is a token of a multilingual model's source vocabulary, and no piece of its .spm.
        """
        for opening, closing in ((">>", "<<"), ("<2", ">")):
            end = text.find(closing) + len(closing)
            if text.startswith(opening) and text[:end] in self._source_ids:
                return [text[:end]], text[end:]
        return [], text

    def pair(self, source: str | None = None, target: str | None = None) -> LanguagePair:
        """The LanguagePair of two languages; None: the checkpoint's default. Raises as ``language_pair`` does."""
        pair = source, target
        if pair not in self._pairs:
            self._pairs[pair] = language_pair(self.text, self.languages, pair, self._prefix_tokens)
        return self._pairs[pair]

    def _prefix_tokens(self, prefix: str) -> list[str]:
        """The tokens of a prefix that tells the model its languages, which may be one token of the vocabulary."""
        return [] if not prefix else [prefix] if prefix in self._source_ids else self.source_tokens(prefix)

    def surrounding_tokens(self, tag: list[str], pair: LanguagePair) -> tuple[list[str], list[str]]:
        """The tokens before and after a text's source tokens; ``tag``: the tag at the beginning of the text."""
        if pair.needs_tag and not tag:
            raise InputError(f"target_lang should be given; this model knows {self.languages}")
        return tag or list(pair.before), list(pair.after)

    def surrounded_tokens(self, text: str, pair: LanguagePair) -> list[str]:
        """The tokens of a text, with the surrounding tokens of its language pair."""
        tag, untagged = self.cut_language_tag(text)
        before, after = self.surrounding_tokens(tag, pair)
        return [*before, *self.source_tokens(untagged), *after]

    def target_tokens(self, text: str) -> list[str]:
        return _tokens(text, self._target_model, self.text.target_characters)

    def source_ids(self, tokens: Sequence[str]) -> np.ndarray:
        """The int32 ids of source tokens, with the special tokens that the model expects."""
        text, unknown = self.text, self._source_ids.get(self.text.unk_token, -1)
        ids = [self._source_ids.get(token, unknown) for token in tokens]
        if unknown < 0 and unknown in ids:
            raise InputError(f"{tokens[ids.index(unknown)]!r} is no token of the source vocabulary")
        if text.add_source_bos:
            ids.insert(0, self._source_ids.get(text.bos_token, unknown))
        if text.add_source_eos:
            ids.append(self._source_ids.get(text.eos_token, unknown))
        return np.array(ids, np.int32)

    def cut(self, tokens: Sequence[str], longest: int | None) -> list[str]:
        """The first tokens, at most ``longest`` together with the special tokens of ``source_ids``; None or 0: all.

        An end token at the end stays, also with a language token behind it (CTranslate2's rule).
        """
        room = max((longest or 0) - self.implicit_tokens, 0)
        if not longest or len(tokens) <= room:
            return list(tokens)
        final_count = 0  # how many tokens at the end stay
        if not self.text.add_source_eos and self.text.eos_token in tokens[-2:]:
            final_count = 1 if tokens[-1] == self.text.eos_token else 2
        final_count = final_count if final_count <= room else 0
        return [*tokens[: room - final_count], *tokens[len(tokens) - final_count :]]

    def target_ids(self, tokens: Sequence[str], pair: LanguagePair | None = None) -> list[int]:
        """Ids of the decoder's start token, of the pair's start and of ``tokens``; ``pair`` is by default token_pair.

        If the checkpoint names no start token, the pair's start or ``tokens`` begin with a start token.
        """
        ids = [self._target_ids.get(token, self.unk_id) for token in (*(pair or self.token_pair).start, *tokens)]
        start = self.text.decoder_start_token
        if start is not None:
            # Marian's models have no start token in their vocabulary: they start from a zero embedding.
            return [self._target_ids.get(start, self.unk_id), *ids]
        if not ids:
            raise InputError("the target should begin with this model's start token (a language's, say); got no tokens")
        return ids

    def known_target_ids(self, tokens: Sequence[str]) -> list[int]:
        """The ids of tokens; InputError for a token that is not in the target vocabulary."""
        for token in tokens:
            if token not in self._target_ids:
                raise InputError(f"{token!r} is no token of the target vocabulary")
        return [self._target_ids[token] for token in tokens]

    def target_surfaces(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        vocabulary = self.text.target_vocabulary
        return [vocabulary[index] for index in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]

    def is_empty(self, tokens: Sequence[str]) -> bool:
        """Whether a source has only special tokens (CTranslate2's rule)."""
        bos_token, eos_token = self.text.bos_token, self.text.eos_token
        if len(tokens) < 2:
            return not tokens or tokens[0] in (bos_token, eos_token)
        text_tokens = len(tokens) - (tokens[0] == bos_token)
        if tokens[-1] == eos_token:
            text_tokens -= 1
        elif tokens[-2] == eos_token:  # a language token follows the end token
            text_tokens -= 2
        return text_tokens <= 0

    def join(self, tokens: Sequence[str]) -> str:
        """The text of target tokens, without the end token."""
        if self.text.eos_token in tokens:
            tokens = [token for token in tokens if token != self.text.eos_token]
        if self._target_model is not None:
            return self._target_model.text(tokens)
        if self._source_model is None:
            return ("" if self.text.target_characters else " ").join(tokens)
        return "".join(tokens).replace(SPACE, " ").strip(" ")

    def join_sentences(self, sentences: Sequence[str], language: str) -> str:
        """Join the translations of a line's sentences, with spaces if ``language``, the target's, uses spaces."""
        language = re.split("[-_@]", language.lower())[0]
        joined = ""
        for sentence in filter(None, sentences):
            has_no_spaces = language in SPACELESS_LANGUAGES
            if not language:
                has_no_spaces = is_spaceless(sentence[0]) or is_spaceless(joined[-1:])
            joined += sentence if has_no_spaces or not joined else " " + sentence
        return joined


def is_spaceless(character: str) -> bool:
    """Whether a character's script has no spaces between words."""
    return any(first <= character <= last for first, last in SPACELESS_SCRIPTS)


def lacks_sentencepiece(text: TranslationText) -> bool:
    """Whether the source vocabulary is clearly sentencepiece's, but the sentencepiece model is missing."""
    if any(model is not None for model in (text.source_model, text.tokenizer, text.codes)):
        return False
    return sum(token.startswith(SPACE) for token in text.source_vocabulary) > MOST_HANDWRITTEN


@dataclass
class Line:
    """A line of a text: the tokens of the parts to translate, or text that stays untranslated, and the line end."""

    parts: list[list[str]] = field(default_factory=list)
    untranslated: str = ""
    end: str = ""


@dataclass(frozen=True)
class Document:
    """A text's lines, the target prefix of the text's first part, and the text's language pair."""

    lines: list[Line]
    prefix: list[str]
    pair: LanguagePair

    @property
    def parts(self) -> list[list[str]]:
        return [part for line in self.lines for part in line.parts]

    @property
    def prefixes(self) -> list[list[str]]:
        """The target prefix of each part."""
        return [self.prefix if b == 0 else [] for b in range(len(self.parts))]


def split_lines(
    text: str,
    tokenizer: TranslationTokenizer,
    limit: int,
    split: str,
    longest: int | None = None,
    pair: LanguagePair | None = None,
) -> list[Line]:
    """The lines of a text, each cut after ``longest`` source tokens, in parts of at most ``limit`` tokens.

    Each part has the surrounding tokens of the language pair (None: the checkpoint's), and the tag that begins the line
    if it has one; ``longest`` counts these tokens once a line. A line without other tokens has no part.

    split  "long": split a line over the limit at its sentences; "sentences": split every line; "never": InputError for
           a line over the limit. A sentence over the limit is split by ``split_to_fit``. A blank line stays as it is
    """
    pair = pair or tokenizer.pair()
    contents_and_ends = LINE_ENDS.split(text)
    arguments = tokenizer, limit, split, longest, pair
    return [
        Line(_parts(content, *arguments), end=end) if content.strip() else Line(untranslated=content, end=end)
        for content, end in zip(contents_and_ends[::2], [*contents_and_ends[1::2], ""])
    ]


def _parts(
    content: str, tokenizer: TranslationTokenizer, limit: int, split: str, longest: int | None, pair: LanguagePair
) -> list[list[str]]:
    tag, untagged = tokenizer.cut_language_tag(content)
    before, after = tokenizer.surrounding_tokens(tag, pair)
    surrounding_count = len(before) + len(after)
    if split != "sentences":
        tokens = tokenizer.cut(tokenizer.surrounded_tokens(content, pair), longest)
        if surrounding_count and len(tokens) <= surrounding_count:
            return []
        if len(tokens) <= limit:
            return [tokens]
        if split == "never":
            raise InputError(f"a line has {len(tokens)} tokens, the model takes {limit}; split it, or use split='long'")
    room = limit - surrounding_count
    parts: list[list[str]] = []
    for sentence in split_sentences(untagged, pair.source):
        tokens = tokenizer.source_tokens(sentence)
        if len(tokens) <= room:
            parts.append(tokens)
        else:
            texts = split_to_fit(sentence, lambda text: len(tokenizer.source_tokens(text)), room, pair.source)
            parts += map(tokenizer.source_tokens, texts)
    parts = list(filter(None, parts))
    if longest:
        starts = [0, *accumulate(map(len, parts))]
        room = longest - tokenizer.implicit_tokens - surrounding_count
        parts = [part[: room - start] for part, start in zip(parts, starts) if start < room]
    return [[*before, *part, *after] for part in parts]


def _tokens(text: str, model: "Pieces | None", characters: bool) -> list[str]:
    check_text(text)
    if characters:
        return list(text)
    return text.split() if model is None else model.pieces(text)


def _ids_by_token(vocabulary: tuple[str, ...]) -> dict[str, int]:
    """token -> id; the first id of a token that occurs twice."""
    return dict(zip(reversed(vocabulary), reversed(range(len(vocabulary)))))


MAP_NAME = "vmap.txt"
LONGEST_NGRAM = 64  # tokens, of which a map's n-grams have about four; all n-grams of a source are looked up


class VocabularyMap:
    """CTranslate2's vocabulary map, ``vmap.txt``: the target tokens that each n-gram of a source makes likely.

    A line is an n-gram of source tokens, a tab, and target tokens, with spaces between tokens. The line of the empty
    n-gram lists tokens that every sentence may choose. If an n-gram has several lines, the last one counts.
    (CTranslate2, src/vocabulary_map.cc.) Raises CheckpointError for any other line.
    """

    def __init__(self, text: TranslationText, target_ids: Mapping[str, int]):
        assert text.vocabulary_map is not None
        self._target_ids, self._unk_id = target_ids, target_ids[text.unk_token]
        self._targets: dict[tuple[str, ...], str] = {}
        # Bytes that are not UTF-8 are part of no token.
        lines = text.vocabulary_map.decode("utf-8", "surrogateescape").split("\n")
        for number, line in enumerate(lines if lines[-1] else lines[:-1], start=1):
            source, *targets = line.removesuffix("\r").split("\t")
            if len(targets) != 1:
                raise CheckpointError(f"{MAP_NAME}: line {number} should be source tokens, one tab and target tokens")
            ngram = tuple(source.split(" "))
            if len(ngram) > LONGEST_NGRAM:
                length = f"{len(ngram)} source tokens, more than {LONGEST_NGRAM}"
                raise CheckpointError(f"{MAP_NAME}: line {number} has {length}")
            self._targets[ngram] = targets[0]
        self._longest_ngram = max(map(len, self._targets), default=0)
        special = (text.unk_token, text.bos_token, text.eos_token)
        self._common_ids = {target_ids.get(token, self._unk_id) for token in special} | self._ids_of(("",))

    def candidates(self, tokens: Sequence[str]) -> np.ndarray:
        """The ids that a sentence with these source tokens may choose: int32, ascending."""
        # A set, so that the line of an n-gram, which may be as long as the file, is read once.
        ngrams = {
            ngram
            for start in range(len(tokens))
            for end in range(start + 1, min(start + self._longest_ngram, len(tokens)) + 1)
            if (ngram := tuple(tokens[start:end])) in self._targets
        }
        return np.array(sorted(self._common_ids.union(*map(self._ids_of, ngrams))), np.int32)

    def _ids_of(self, ngram: tuple[str, ...]) -> set[int]:
        """The ids on the n-gram's line; the unknown token's id for a token outside the vocabulary."""
        targets = self._targets.get(ngram)
        if not targets:
            return set()
        tokens = targets.removesuffix(" ").split(" ")
        return {self._target_ids.get(token, self._unk_id) for token in tokens}
