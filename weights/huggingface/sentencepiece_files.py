"""A tokenizer.json from a sentencepiece model: sentencepiece.bpe.model, spiece.model, spm.model or tokenizer.model.

Each is what transformers builds from the same file. DeBERTa's is that of its converter (convert_slow_tokenizer), which
normalizes as sentencepiece does; the class that replaces it in transformers 5 leaves out the file's own rules.
"""

import base64
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from fastattn.errors import CheckpointError, TokenizerError
from fastattn.text.sentencepiece import check_spm, read_bytes, read_fields, read_int
from fastattn.weights.containers.json_file import JsonObject, first_repeated, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.vocabulary_files import (
    BERT,
    MOST_ADDED,
    ROBERTA,
    AddedTokens,
    OlderFiles,
    Token,
    added_with_ids,
    assembled,
    pairs_model,
    template,
)

UNIGRAM, PAIRS = 1, 2
NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4
SPACE = "\u2581"
# Of pairs all ways to cut a piece in two are tried; real vocabularies have two or three merges a piece.
LONGEST_PIECE, MOST_MERGES = 256, 16
UNLIKELY = -100.0  # of a piece that no text should become
XLM_ROBERTA: dict[str, str | Token] = {**ROBERTA}
CAMEMBERT = XLM_ROBERTA | {"mask_token": {"content": "<mask>", "lstrip": True}}
LLAMA: dict[str, str | Token] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
T5: dict[str, str | Token] = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
DEBERTA: dict[str, str | Token] = {"bos_token": "[CLS]", "eos_token": "[SEP]", **BERT}
ALBERT = DEBERTA | {"unk_token": "<unk>", "pad_token": "<pad>"}

# mBART's languages, in the order of their ids, and behind them those of mBART-50 alone.
MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN "
    "pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
MBART_FIRST = 25

_FLOAT = struct.Struct("<f")

Scores = list[tuple[str, float]]


@dataclass(frozen=True)
class Spm:
    """The contents of a sentencepiece model: its pieces with scores and types, and the rules of its normalizer."""

    pieces: Scores
    types: list[int]
    rules: bytes
    where: str

    @property
    def unknown(self) -> int:
        """The id of the unknown piece."""
        if UNKNOWN not in self.types:
            raise CheckpointError(f"{self.where}: no unknown piece")
        return self.types.index(UNKNOWN)

    @property
    def symbols(self) -> list[Token]:
        """Its control pieces and user's symbols, as added tokens: text does not run through them."""
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        return [
            {"content": piece} | flags | {"special": kind == CONTROL}
            for (piece, _), kind in zip(self.pieces, self.types)
            if kind in (CONTROL, USER)
        ]

    def normalizers(self) -> list[dict[str, Any]]:
        rules = base64.b64encode(self.rules).decode()
        return [{"type": "Precompiled", "precompiled_charsmap": rules}] if self.rules else []


def xlm_roberta_tokenizer(files: OlderFiles) -> dict[str, Any]:
    """The pieces after the first three, which are fairseq's own four, and a mask after the last."""
    spm = read_spm(files.folder, files.prefix + "sentencepiece.bpe.model", files.rows)
    if NORMAL in spm.types[:3]:
        raise CheckpointError(f"{spm.where}: the first three pieces should be unknown and control pieces")
    names = ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token")
    *first, mask = ((_content(files.tokens, ROBERTA, name), 0.0) for name in names)
    scores = [*first, *spm.pieces[3:], mask]
    return _fairseq(spm, scores, files, XLM_ROBERTA)


def camembert_tokenizer(files: OlderFiles) -> dict[str, Any]:
    """The pieces after the first, which are five of fairseq's, and a mask after the last."""
    spm = read_spm(files.folder, files.prefix + "sentencepiece.bpe.model", files.rows)
    pad, unk, mask = (_content(files.tokens, ROBERTA, name) for name in ("pad_token", "unk_token", "mask_token"))
    first = [("<s>NOTUSED", 0.0), (pad, 0.0), ("</s>NOTUSED", 0.0), (unk, 0.0), ("<unk>NOTUSED", UNLIKELY)]
    return _fairseq(spm, [*first, *spm.pieces[1:], (mask, 0.0)], files, CAMEMBERT)


def _fairseq(spm: Spm, scores: Scores, files: OlderFiles, defaults: dict[str, str | Token]) -> dict[str, Any]:
    needed = ("unk_token", "bos_token", "eos_token")
    tokenizer, ids = _assembled(spm, scores, 3, files.tokens, defaults, needed, spm.normalizers(), _words(files.config))
    bos, eos = (_content(files.tokens, ROBERTA, name) for name in ("bos_token", "eos_token"))
    processor = template([bos, "A", eos], [bos, "A", eos, eos, "B", eos], ids, second_type=0)
    return tokenizer | {"post_processor": processor}


def mbart_tokenizer(files: OlderFiles, languages: int = MBART_FIRST) -> dict[str, Any]:
    """As XLM-RoBERTa's, with languages before the mask; what stands around a text is left to the model's reader."""
    spm = read_spm(files.folder, files.prefix + "sentencepiece.bpe.model", files.rows)
    first = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    codes = MBART_LANGUAGES.split()[:languages]
    scores = [*first, *spm.pieces[3:], *((token, 0.0) for token in (*codes, "<mask>"))]
    steps = [*spm.normalizers(), _replaced({"Regex": " {2,}"}, " ")]
    needed = ("unk_token", "eos_token")
    return _assembled(spm, scores, 3, files.tokens, XLM_ROBERTA, needed, steps, [_metaspace("always")], codes)[0]


mbart50_tokenizer = partial(mbart_tokenizer, languages=len(MBART_LANGUAGES.split()))


def pegasus_tokenizer(files: OlderFiles) -> dict[str, Any]:
    """Two masks and tokens of training before the pieces, of which the first two are the padding and the end."""
    spm = read_spm(files.folder, files.prefix + "spiece.model", files.rows)
    offset = files.config.integer("offset", 103, minimum=2)
    if offset + len(spm.pieces) > files.rows:
        most = files.rows - len(spm.pieces)
        raise files.config.error("offset", f"at most {most}, the embedding's rows without a piece", offset)
    special = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, offset))]
    scores = [*((token, 0.0 if i < 4 else UNLIKELY) for i, token in enumerate(special)), *spm.pieces[2:]]
    steps = [*spm.normalizers(), _replaced({"Regex": " {2,}"}, " ")]
    tokenizer, ids = _assembled(
        spm, scores, spm.unknown + offset, files.tokens, T5, ("eos_token",), steps, [_metaspace("always")], special
    )
    return tokenizer | {"post_processor": template(["A", "</s>"], ["A", "B", "</s>"], ids, second_type=0)}


def albert_tokenizer(files: OlderFiles) -> dict[str, Any]:
    spm = read_spm(files.folder, files.prefix + "spiece.model", files.rows)
    steps: list[dict[str, Any]] = [_replaced({"String": quotes}, '"') for quotes in ("``", "''")]
    if not files.config.boolean("keep_accents", False):
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if files.config.boolean("do_lower_case", True):
        steps.append({"type": "Lowercase"})
    return _between_cls_and_sep(spm, files.tokens, ALBERT, steps + spm.normalizers(), _words(files.config))


def deberta_tokenizer(files: OlderFiles) -> dict[str, Any]:
    spm = read_spm(files.folder, files.prefix + "spm.model", files.rows)
    steps: list[dict[str, Any]] = [{"type": "Lowercase"}] if files.config.boolean("do_lower_case", False) else []
    steps += [{"type": "Strip", "strip_left": True, "strip_right": True}, *spm.normalizers()]
    steps.append(_replaced({"Regex": " {2,}"}, " "))
    by_punctuation = files.config.boolean("split_by_punct", False)
    splits: list[dict[str, Any]] = [{"type": "Punctuation", "behavior": "Isolated"}] * by_punctuation
    return _between_cls_and_sep(spm, files.tokens, DEBERTA, steps, [*splits, _metaspace("always")])


def _between_cls_and_sep(
    spm: Spm,
    tokens: AddedTokens,
    defaults: dict[str, str | Token],
    normalizers: list[dict[str, Any]],
    pre_tokenizers: list[dict[str, Any]],
) -> dict[str, Any]:
    needed = ("cls_token", "sep_token")
    tokenizer, ids = _assembled(spm, spm.pieces, spm.unknown, tokens, defaults, needed, normalizers, pre_tokenizers)
    cls, sep = (_content(tokens, DEBERTA, name) for name in needed)
    return tokenizer | {"post_processor": template([cls, "A", sep], [cls, "A", sep, "B", sep], ids)}


def t5_tokenizer(files: OlderFiles) -> dict[str, Any]:
    """The pieces, then tokens <extra_id_N>, the last of them first."""
    spm = read_spm(files.folder, files.prefix + "spiece.model", files.rows)
    count = files.config.integer("extra_ids", 100)
    most = min(files.rows - len(spm.pieces), MOST_ADDED)
    if count > most:
        raise files.config.error("extra_ids", f"at most {most}, the embedding's rows without a piece", count)
    extra = [f"<extra_id_{i}>" for i in reversed(range(count))]
    scores = spm.pieces + [(token, 0.0) for token in extra]
    tokenizer, ids = _assembled(
        spm, scores, spm.unknown, files.tokens, T5, ("eos_token",), spm.normalizers(), _words(files.config), extra
    )
    eos = _content(files.tokens, T5, "eos_token")
    return tokenizer | {"post_processor": template(["A", eos], ["A", eos, "B", eos], ids, second_type=0)}


def llama_tokenizer(files: OlderFiles) -> dict[str, Any]:
    """Pairs and bytes, without special tokens around, which tokenizer_config.json asks for."""
    spm = read_spm(files.folder, files.prefix + "tokenizer.model", files.rows, PAIRS)
    vocabulary = {piece: index for index, (piece, _) in enumerate(spm.pieces)}
    normal = [entry for entry, kind in zip(spm.pieces, spm.types) if kind == NORMAL]
    merges = merges_by_scores([piece for piece, _ in sorted(normal, key=lambda one: -one[1])], vocabulary, spm.where)
    added, ids = added_with_ids(files.tokens.and_extra(spm.symbols), vocabulary, LLAMA, (), spm.where)
    model = pairs_model(vocabulary, merges) | {"fuse_unk": True, "byte_fallback": True}
    space = files.config.boolean("add_prefix_space", True)
    scheme = ("always" if files.config.boolean("legacy", False) else "first") if space else "never"
    before, after = (
        [_content(files.tokens, LLAMA, f"{name}_token")] * files.config.boolean(f"add_{name}_token", False)
        for name in ("bos", "eos")
    )
    ends = template([*before, "A", *after], [*before, "A", *after, *before, "B", *after], ids)
    made = assembled(model, added, None, _metaspace(scheme) | {"split": False}, spaces_decoder(space))
    return made | {"post_processor": ends}


def merges_by_scores(pieces: list[str], ids: dict[str, int], where: str) -> list[list[str]]:
    """The merges that make these pieces, which are in order: every cut of one into two that there are."""
    most = MOST_MERGES * len(ids)
    cuts = (
        [piece[:cut], piece[cut:]]
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    )
    is_short = all(len(piece) <= LONGEST_PIECE for piece in pieces)
    merges = list(islice(cuts, most + 1)) if is_short else []
    if not is_short or len(merges) > most:
        raise CheckpointError(
            f"{where}: its {len(ids)} tokens should have at most {LONGEST_PIECE} characters and {most} merges"
        )
    return merges


def spaces_decoder(prefix: bool) -> dict[str, Any]:
    """Marks become spaces, bytes characters; the first space goes where a text was given one."""
    decoders: list[dict[str, Any]] = [_replaced({"String": SPACE}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip: list[dict[str, Any]] = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {"type": "Sequence", "decoders": decoders + strip}


def _assembled(
    spm: Spm,
    scores: Scores,
    unknown: int,
    tokens: AddedTokens,
    defaults: dict[str, str | Token],
    needed: tuple[str, ...],
    normalizers: list[dict[str, Any]],
    pre_tokenizers: list[dict[str, Any]],
    more: Sequence[str] = (),
) -> tuple[dict[str, Any], dict[str, int]]:
    """(tokenizer.json without a post-processor, the ids of all tokens); ``more`` special tokens."""
    vocabulary = {piece: index for index, (piece, _) in enumerate(scores)}
    symbols = spm.symbols + [{"content": token, "special": True} for token in more]
    added, ids = added_with_ids(tokens.and_extra(symbols), vocabulary, defaults, needed, spm.where)
    model = {"type": "Unigram", "unk_id": unknown, "vocab": scores, "byte_fallback": False}
    normalizer = {"type": "Sequence", "normalizers": normalizers} if normalizers else None
    pre_tokenizer = {"type": "Sequence", "pretokenizers": pre_tokenizers}
    return assembled(model, added, normalizer, pre_tokenizer, _metaspace("always")), ids


def _words(config: JsonObject) -> list[dict[str, Any]]:
    """Words at spaces, each with a leading one."""
    return [{"type": "WhitespaceSplit"}, _metaspace("always" if config.boolean("add_prefix_space", True) else "never")]


def _metaspace(prepend: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": prepend, "split": True}


def _replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _content(tokens: AddedTokens, defaults: dict[str, Any], name: str) -> str:
    return tokens.content(name, defaults[name])


def read_spm(folder: Folder, name: str, rows: int, form: int = UNIGRAM) -> Spm:
    """A sentencepiece model of unigrams, or of pairs, with at most as many pieces as the embedding has rows."""
    data, where = bytes(folder.read(name)), folder.where(name)
    try:
        check_spm(data)
        spm = _parsed(data, where, rows, form)
    except TokenizerError as error:
        raise CheckpointError(f"{where}: {error}") from None
    if len({piece for piece, _ in spm.pieces}) != len(spm.pieces):
        twice = first_repeated(piece for piece, _ in spm.pieces)
        raise CheckpointError(f"{where}: the piece {shorten(twice)} is there twice")
    return spm


def _parsed(data: bytes, where: str, rows: int, form: int) -> Spm:
    pieces: Scores = []
    types: list[int] = []
    rules = b""
    for number, wire, value in read_fields(data, where):
        if number == 1:
            piece, score, kind = _piece(read_bytes(value, wire, where), where)
            pieces.append((piece, score))
            types.append(kind)
            if len(pieces) > rows:
                raise CheckpointError(f"{where}: more pieces than the embedding's {rows} rows")
        elif number == 2:
            fields = read_fields(read_bytes(value, wire, where), where)
            if {read_int(value, where) for field, _, value in fields if field == 3} - {form}:
                wanted = {UNIGRAM: "unigrams", PAIRS: "pairs (BPE)"}[form]
                raise CheckpointError(f"{where}: a sentencepiece model of {wanted} is expected here")
        elif number == 3:
            fields = read_fields(read_bytes(value, wire, where), where)
            rules = next((read_bytes(value, kind, where) for field, kind, value in fields if field == 2), b"")
    return Spm(pieces, types, rules, where)


def _piece(data: bytes, where: str) -> tuple[str, float, int]:
    """(piece, score, type) of a piece's message."""
    found = _short_piece(data) or _any_piece(data, where)
    try:
        piece, score = found[0].decode("utf-8"), found[1]
    except UnicodeDecodeError:
        raise CheckpointError(f"{where}: a piece is not UTF-8") from None
    if not piece or not math.isfinite(score):
        raise CheckpointError(f"{where}: the piece {shorten(piece)} has the score {score}")
    return piece, score, found[2]


def _short_piece(data: bytes) -> tuple[bytes, float, int] | None:
    """The fields as they usually lie: 1, of fewer than 128 bytes, 2, perhaps 3. A vocabulary has 250,000 of them."""
    end = 2 + data[1] if len(data) > 1 and data[0] == 0x0A else 0
    rest = data[end:]
    if not 2 < end < 130 or len(rest) not in (5, 7) or rest[0] != 0x15:
        return None
    if len(rest) == 7 and (rest[5] != 0x18 or rest[6] > 0x7F):
        return None
    return data[2:end], _FLOAT.unpack_from(rest, 1)[0], rest[6] if len(rest) == 7 else NORMAL


def _any_piece(data: bytes, where: str) -> tuple[bytes, float, int]:
    piece, score, kind = b"", 0.0, NORMAL
    for number, wire, value in read_fields(data, where):
        if number == 1:
            piece = read_bytes(value, wire, where)
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            (score,) = _FLOAT.unpack(value)
        elif number == 3:
            kind = read_int(value, where)
    return piece, score, kind
