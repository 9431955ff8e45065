"""Plain data about text: how it becomes ids, and how hidden states become vectors. Readers of checkpoints write it."""

from dataclasses import field
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError, InputError
from fastattn.system.records import dataclass

# From a sentence's rows to one vector, by sentence-transformers' names; mean_sqrt_len has two names.
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
# Functions from a classifier's numbers to probabilities, and from a pair's number to a score.
PROBABILITIES = ("softmax", "sigmoid", "none")
SCORES = ("none", "sigmoid", "tanh", "relu")
SPARSE_POOLINGS = ("max", "sum")  # from a head's numbers for a text's tokens to a sparse vector
SPARSE_ACTIVATIONS = ("relu", "log1p_relu")
# Layers after the pooling besides linear layers with an activation: a layer norm, a division by the length.
LAYER_NORM, UNIT_LENGTH = "layer_norm", "unit_length"
NORM_EPSILON = 1e-5  # of LAYER_NORM
# How a text becomes words: by Moses' rules as in fairseq, or as in Argos Translate, which also makes punctuation
# uniform; "": at spaces alone.
WORDS = ("", "fairseq", "argos")
TRUNCATION_SIDES = ("right", "left")  # the end from which a text that is too long is cut
EARLY_STOPPING = ("true", "false", "never")  # of transformers' beam search; see SearchRules


@dataclass(frozen=True)
class SearchRules:
    """How transformers searches, where CTranslate2 searches otherwise.

    early_stopping  "true": the search ends with as many ended hypotheses as beams; "false": if, besides, the best open
                    hypothesis scores no better at its present length than the worst ended one; "never": the same, but
                    at the greatest length if the length penalty is above 0
    renormalized    penalties and suppressed tokens change logits; else, in a beam search, they change log-probabilities
                    of the tokens concerned alone

    Penalties and n-grams count the start token too.
    """

    early_stopping: str = "false"
    forced_end: bool = False  # at the greatest length the last token is the end token, with log-probability 0
    renormalized: bool = False


@dataclass(frozen=True)
class DecodingSettings:
    """A checkpoint's own decoding settings, by DecodingOptions' names; None: the files do not have the setting."""

    beam_size: int | None = None
    length_penalty: float | None = None
    word_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    min_decoding_length: int | None = None
    max_decoding_length: int | None = None
    max_length_factor: float | None = None
    sampling_topk: int | None = None
    sampling_topp: float | None = None
    sampling_minp: float | None = None
    sampling_temperature: float | None = None
    suppress_sequences: tuple[tuple[int, ...], ...] = ()  # of ids
    begin_suppress_tokens: tuple[int, ...] = ()  # ids
    forced_tokens: tuple[str, ...] = ()  # begin every target behind the start token; the translation leaves them out
    rules: SearchRules | None = None
    not_followed: tuple[str, ...] = ()  # settings in the files that are not supported, as messages for the user

    def options(self) -> dict[str, Any]:
        """The settings as arguments of DecodingOptions."""
        settings = {name: value for name, value in vars(self).items() if value not in (None, ())}
        return {name: value for name, value in settings.items() if name not in ("forced_tokens", "not_followed")}


# Where the token of the source language may stand, and that of the target language; see LanguageTokens.
SOURCE_PLACES = ("", "before", "after")
TARGET_PLACES = ("", "first", "start")


@dataclass(frozen=True)
class LanguageTokens:
    """How a multilingual model is told the languages of a text and of its translation.

    tokens  the checkpoint's code of a language -> the language's token in the vocabularies, or its word in ``prefix``
    source  place of the source language's token: "before" the text's tokens (M2M100, NLLB, mBART-50), "after" the end
            token behind them (mBART, NLLB's legacy behaviour); "": nowhere
    target  place of the target language's token: "first" in the target, behind the start token; "start": as the start
            token, and ``decoder_start_token`` is None (mBART); "": nowhere
    prefix  the beginning of a source, a token or words, with {source} and {target} for entries of ``tokens``
            ("{target}" for MADLAD's <2xx> and Marian's >>xx<<, "translate {source} to {target}:" for T5); "": none

    Where a call names no language, ``source_language`` and ``target_language`` of TranslationText count, codes of
    ``tokens`` or "", or the language of the first forced token. A caller who passes a source as tokens passes the
    languages' tokens too, as in CTranslate2, and the end token where ``add_source_eos`` is False.
    """

    tokens: dict[str, str]
    source: str = ""
    target: str = ""
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.source not in SOURCE_PLACES or self.target not in TARGET_PLACES:
            pair = f"{self.source!r} and {self.target!r}"
            raise CheckpointError(f"places of languages should be of {SOURCE_PLACES} and {TARGET_PLACES}, are {pair}")


@dataclass(frozen=True)
class TranslationText:
    """How a translation model's text becomes ids: vocabularies, special tokens, sentencepiece files.

    Unknown tokens of a text are dropped where the source vocabulary lacks ``unk_token``.
    """

    source_vocabulary: tuple[str, ...]
    target_vocabulary: tuple[str, ...]
    unk_token: str = "<unk>"
    bos_token: str = "<s>"
    eos_token: str = "</s>"
    decoder_start_token: str | None = "<s>"  # None: the caller's target prefix begins with the start token
    add_source_bos: bool = False
    add_source_eos: bool = False
    source_characters: bool = False  # tokens are characters, which are joined without spaces
    target_characters: bool = False
    lowercase: bool = False  # whether the source is lowercased
    source_model: bytes | None = None  # a .spm file; None: tokens are separated by spaces
    target_model: bytes | None = None  # None: pieces are joined by the sentencepiece convention
    codes: bytes | None = None  # BPE codes of both sides, in place of .spm files
    words: str = ""  # how a text becomes words before codes are applied, from WORDS
    tokenizer: bytes | None = None  # a tokenizer.json for both sides, in place of .spm files
    source_language: str = ""
    target_language: str = ""
    writes_unknowns: bool = True  # False: <unk> is chosen only if the caller allows it
    vocabulary_map: bytes | None = None  # CTranslate2's vmap.txt: source n-grams and their likely target tokens
    single_sentences: bool = False  # whether the model was trained on single sentences: text is then split by default
    languages: LanguageTokens | None = None  # of a model of many languages
    decoding: DecodingSettings = DecodingSettings()


@dataclass(frozen=True)
class SparseText:
    """How a head's numbers for tokens become a sparse vector of a text (SPLADE, Formal 2021)."""

    pooling: str = "max"  # of a text's tokens, from SPARSE_POOLINGS
    activation: str = "relu"  # from SPARSE_ACTIVATIONS: y = log(1 + max(0, x)), or log(1 + y)
    most: int | None = None  # how many of a vector's numbers stay, which are the greatest; None: all stay


MAX_EXPANSION = 1 << 15  # the greatest ``expansion``: a query is filled up before its length is checked


@dataclass(frozen=True)
class MultiVectorText:
    """Settings for a vector of each token of a text (ColBERT, Khattab and Zaharia 2020)."""

    query_length: int | None = None  # at most so many ids, with special ones; None: the encoder's limit
    document_length: int | None = None
    expansion: int = 0  # expansion tokens fill a query up to so many ids; 0: there are no expansion tokens
    expansion_cuts: bool = True  # whether a query of more than ``expansion`` ids is cut
    expansion_seen: bool = False  # whether a query's own tokens attend to expansion tokens
    expansion_left: bool = False  # whether expansion tokens stand before the query
    expansion_token: str = ""
    skipped: tuple[str, ...] = ()  # tokens that get no vector
    skipped_in: tuple[str, ...] = ("document",)  # the tasks in whose texts ``skipped`` are skipped
    markers: tuple[str, ...] = ()  # the beginnings of queries and documents, single tokens if in the vocabulary
    mean: bool = False  # whether a score is the mean over a query's tokens, not the sum


@dataclass(frozen=True)
class PairPrompt:
    """The parts of a prompt around the texts of a pair, for a language model that judges pairs."""

    before: str  # begins the prompt
    instruction: str  # stands before the caller's instruction
    query: str  # stands before the query
    document: str  # stands before the document
    after: str  # ends the prompt


@dataclass(frozen=True)
class EncoderText:
    """How an encoder's text becomes ids, and its hidden states become vectors (sentence-transformers' modules)."""

    tokenizer: bytes  # tokenizer.json
    max_length: int  # in ids, special ones included
    lowercase: bool = False
    pooling: tuple[str, ...] = ("mean",)  # several are concatenated
    include_prompt: bool = True  # whether the prompt's ids take part in pooling
    normalize: bool = False
    # weight [out, in], bias, activation; or weight [width], bias, LAYER_NORM; or weight [0], None, UNIT_LENGTH
    dense: tuple[tuple[np.ndarray, np.ndarray | None, str], ...] = ()
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str = "cosine"
    token_types: bool = True  # whether the two texts of a pair differ in token types; else all types are 0
    labels: tuple[str, ...] = ()  # names of a classifier's outputs
    probabilities: str = "softmax"  # from PROBABILITIES
    scores: str = ""  # from SCORES; "": no head classifies
    truncate_dim: int | None = None  # how many first numbers of a vector stay, unless a call says otherwise
    truncation_side: str = "right"  # the side from which a long text is cut; special tokens stay
    mask_token: str = ""  # the token in whose place a head predicts tokens; "": there is none
    sparse: SparseText | None = None  # of a checkpoint for sparse vectors
    multi_vector: MultiVectorText | None = None  # of a checkpoint for a vector of each token
    pair: PairPrompt | None = None  # of a language model that judges pairs


@dataclass(frozen=True)
class GeneratorText:
    """How text becomes a language model's ids, and ids become text."""

    tokenizer: bytes  # tokenizer.json, whose own rules add the special tokens before a plain text
    max_length: int = 0  # the model's context in ids, prompt and answer together; 0: no limit
    end_ids: tuple[int, ...] = ()  # each ends an answer
    chat_template: str = ""  # Jinja source that makes a prompt of a conversation; "": none
    special_tokens: dict[str, str] = field(default_factory=dict)  # the template's variables for texts: bos_token, ...
    decoding: DecodingSettings = DecodingSettings()  # its limits count the tokens of the answer alone
    pooling: tuple[str, ...] = ("mean",)  # of the model's rows, where it serves as an encoder


def check_poolings(modes: tuple[str, ...]) -> None:
    """Raise an InputError that lists POOLINGS unless all ``modes``, at least one, are among them."""
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown or not modes:
        raise InputError(f"unknown pooling {unknown[0] if unknown else ''!r}; known: {', '.join(POOLINGS)}")
