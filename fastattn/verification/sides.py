"""The two sides of a comparison, fastattn and the source framework: encoders, then translation models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError, InputError
from fastattn.loading.loaded_model import load_model
from fastattn.loading.model_cache import LoadRecord
from fastattn.models.decoder import EncoderDecoder
from fastattn.ops import backend
from fastattn.printable import counted
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText, TranslationText
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.text.translation import TranslationTokenizer
from fastattn.translation.translator import Translator
from fastattn.verification.comparison import (
    Bounds,
    Comparison,
    compare_ids,
    compare_rows,
    compare_states,
    first_difference,
    name_states,
    worst_of_each,
)
from fastattn.verification.frameworks import framework_errors, import_packages, versions

TRANSFORMERS = ("transformers", "torch")
LOCAL_ONLY = {"local_files_only": True, "trust_remote_code": False}  # without False transformers asks on the terminal
MAX_TOKENS = 256  # of a translation, where the checkpoint has no limit of its own
Tokens = Sequence[str]


class FastattnEncoder:
    """fastattn's side of a comparison: an Encoder of the folder, and the bare model in the same precision.

    name  the framework's name; other sides append versions of packages
    """

    name = "fastattn"

    def __init__(self, path: Path, checkpoint: Checkpoint, precision: str):
        text = checkpoint.text
        assert isinstance(text, EncoderText) and checkpoint.spec.encoder is not None
        self._encoder = Encoder(path, precision)
        # The model maps the weights that the Encoder has packed.
        self._model = load_model(checkpoint, precision, None, backend("cpu"), LoadRecord()).model
        max_length = self._encoder.max_length
        self._tokenizer = HuggingFaceTokenizer(text.tokenizer, max_length, text.lowercase, text.truncation_side)
        self._prompt = text.prompts.get(text.default_prompt or "", "")

    def ids(self, text: str) -> list[int]:
        """The ids of a text with the default prompt, special tokens included, at most as many as this side takes."""
        return [int(index) for index in self._tokenizer.encode([self._prompt + text])[0]]

    def token(self, index: int) -> str | None:
        return self._tokenizer.token(index)

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        """The rows [T, D] of each layer, by the names of ``name_states``."""
        *states, output_TD = self._model.encoder.states(np.array(ids, np.int32))
        return name_states(states, output_TD)

    def vector(self, text: str) -> np.ndarray:
        """The vector of a text, float32 [E]."""
        return self._encoder.encode(text)


def compare_encoders(
    ours: FastattnEncoder, theirs: "EncoderSide", texts: Sequence[str], bounds: Bounds
) -> list[Comparison]:
    """Comparisons of ids, layers and vectors. Both models get fastattn's ids, so that only the models may differ."""
    ids_B = [ours.ids(text) for text in texts]
    framework = theirs.name.partition(" ")[0]
    comparisons = [compare_ids(ids_B, [theirs.ids(text) for text in texts], ours.token)]
    for number, (text, ids) in enumerate(zip(texts, ids_B), 1):
        location = f"text {number}"
        if ids:
            comparisons += compare_states(ours.states(ids), theirs.states(ids), bounds.rows, location, framework)
        vectors = ours.vector(text)[None], theirs.vector(text)[None]
        comparisons.append(compare_rows("vector", *vectors, bounds.rows, location))
    return worst_of_each(comparisons)


class TransformersEncoder:
    """transformers' side of a comparison, with the methods of FastattnEncoder.

    A text's vector is the mean of its rows, since that is fastattn's default.
    """

    def __init__(self, path: Path, checkpoint: Checkpoint):
        transformers, torch = import_packages(*TRANSFORMERS)
        self.name = versions(*TRANSFORMERS)
        text = checkpoint.text
        assert isinstance(text, EncoderText)
        with framework_errors(f"{path}: transformers cannot read it"):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, **LOCAL_ONLY)
            model = transformers.AutoModel.from_pretrained(
                path, attn_implementation="eager", dtype=torch.float32, **LOCAL_ONLY
            )
        check_class(path, model)
        model = model.eval()
        self._model = model.get_encoder() if hasattr(model, "decoder") else model
        # The tokenizer's own limit may be beyond the model's positions.
        self._max_length = min(self._tokenizer.model_max_length, text.max_length)

    def ids(self, text: str) -> list[int]:
        with framework_errors("transformers' tokenizer fails"):
            return list(self._tokenizer(text, truncation=True, max_length=self._max_length)["input_ids"])

    def token(self, index: int) -> str | None:
        return str(self._tokenizer.convert_ids_to_tokens(index))

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        """As in FastattnEncoder. If a norm follows the blocks, transformers shows its rows as the last block's."""
        import torch

        with framework_errors("transformers' model fails"), torch.no_grad():
            output = self._model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        return name_states([rows[0].numpy() for rows in output.hidden_states], output.last_hidden_state[0].numpy())

    def vector(self, text: str) -> np.ndarray:
        return self.states(self.ids(text))["output"].mean(axis=0)


def check_class(path: Path, model: Any) -> None:
    """Raise CheckpointError if the folder names a class of its own code, and the model is of another class.

    jina-v2's folder says that it is a BERT: transformers would load some of its weights, and draw others at random.
    """
    own_classes = getattr(model.config, "auto_map", None) or {}
    name = str(own_classes.get("AutoModel", "")).rpartition(".")[2]
    if name not in ("", type(model).__name__):
        raise CheckpointError(
            f"{path}: transformers has no {name}, only a {type(model).__name__}; the folder's own code is not run"
        )


class SentenceTransformersEncoder(TransformersEncoder):
    """sentence-transformers' side of a comparison."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        packages = ("sentence-transformers", *TRANSFORMERS)
        sentence_transformers, _, torch = import_packages(*packages)
        self.name = versions(*packages)
        settings = {"attn_implementation": "eager", "dtype": torch.float32}
        with framework_errors(f"{path}: sentence-transformers cannot read it"):
            model = sentence_transformers.SentenceTransformer(
                str(path), device="cpu", model_kwargs=settings, **LOCAL_ONLY
            )
        self._sentence_transformer = model.eval()
        self._model, self._tokenizer = model[0].auto_model, model.tokenizer
        check_class(path, self._model)
        self._prompt = model.prompts.get(model.default_prompt_name) or ""

    def ids(self, text: str) -> list[int]:
        # ``preprocess`` is called ``tokenize`` in older versions.
        tokenize = getattr(self._sentence_transformer, "preprocess", None) or self._sentence_transformer.tokenize
        with framework_errors("sentence-transformers' tokenizer fails"):
            return list(tokenize([self._prompt + text])["input_ids"][0].tolist())

    def vector(self, text: str) -> np.ndarray:
        with framework_errors("sentence-transformers' model fails"):
            return np.asarray(self._sentence_transformer.encode([text], show_progress_bar=False)[0])


EncoderSide = FastattnEncoder | TransformersEncoder


class FastattnTranslator:
    """fastattn's side of a comparison: a Translator of the folder, and the bare model.

    name        the framework's name; other sides append versions of packages
    beam_sizes  of the searches that are compared
    lengths     (least, most) tokens of a translation
    Tokens are pieces of the checkpoint's vocabularies.
    """

    name = "fastattn"

    def __init__(self, path: Path, checkpoint: Checkpoint, precision: str):
        assert isinstance(checkpoint.text, TranslationText) and checkpoint.spec.decoder is not None
        self._text = checkpoint.text
        self._tokenizer = TranslationTokenizer(checkpoint.text)
        self._translator = Translator(path, precision)
        # The model maps the weights that the Translator has packed.
        self._model: EncoderDecoder = load_model(checkpoint, precision, None, backend("cpu"), LoadRecord()).model
        options, positions = self._translator.default_options, checkpoint.spec.decoder.positions.limit
        self.beam_sizes = sorted({1, options.beam_size})
        most = options.max_decoding_length or MAX_TOKENS
        most = min(most, positions - 1 - self._tokenizer.token_pair.forced_tokens) if positions else most
        self.lengths = min(options.min_decoding_length, most), most

    @property
    def max_source_length(self) -> int:
        return self._translator.max_source_length

    def source_tokens(self, text: str) -> list[str]:
        return self._tokenizer.source_tokens(text)

    def source_token(self, index: int) -> str | None:
        vocabulary = self._text.source_vocabulary
        return vocabulary[index] if index < len(vocabulary) else None

    def source_ids(self, text: str) -> list[int] | None:
        """The ids of a text, special tokens included; None: the framework takes no texts."""
        return [int(index) for index in self._tokenizer.source_ids(self.source_tokens(text))]

    def states(self, source: Tokens, target: Tokens) -> Mapping[str, np.ndarray]:
        """The rows of each layer of both stacks, by the names of ``name_states``; {}: the framework shows none.

        The decoder's rows are those of the start token, then of the target.
        """
        ids_S = self._tokenizer.source_ids(source)
        *states, output_SD = self._model.encoder.states(ids_S)
        encoder_rows = name_states(states, output_SD, "encoder ")
        ids_T = np.array(self._tokenizer.target_ids(target), np.int32)
        *states, output_TD = self._model.states(ids_T, self._model.encode([ids_S]))
        return encoder_rows | name_states(states, output_TD, "decoder ")

    def log_probs(self, source: Tokens, target: Tokens) -> np.ndarray:
        """The log-probability of each token of a given translation, the end token last."""
        return self._translator.score_tokens([source], [target])[0].log_probs

    def translate(self, source: Tokens, beam_size: int, lengths: tuple[int, int]) -> list[str]:
        """The best translation of a search, never sampled, with the checkpoint's other settings.

        lengths  the least and the most tokens of the translation
        """
        least, most = lengths
        (translation,) = self._translator.translate_tokens(
            [source], beam_size=beam_size, sampling_topk=1, min_decoding_length=least, max_decoding_length=most
        )
        return translation.tokens


def compare_translators(
    ours: FastattnTranslator, theirs: "TranslatorSide", texts: Sequence[str], bounds: Bounds
) -> list[Comparison]:
    """Comparisons of ids; of layers and log-probabilities of the framework's translations; of each text's searches.

    The framework gets fastattn's tokens of the source, cut at max_source_length, so that only the models may differ.
    """
    framework = theirs.name.partition(" ")[0]
    their_ids = [ids for text in texts if (ids := theirs.source_ids(text)) is not None]
    if len(their_ids) < len(texts):
        comparisons = [Comparison("tokens", remark=f"not compared: {framework} gets tokens, not text")]
    else:
        comparisons = [compare_ids([ours.source_ids(text) or [] for text in texts], their_ids, ours.source_token)]
    searches = []
    for number, text in enumerate(texts, 1):
        source, location = ours.source_tokens(text)[: ours.max_source_length], f"text {number}"
        if not source:
            continue
        target = theirs.translate(source, 1, ours.lengths)
        states = theirs.states(source, target)
        if states:
            comparisons += compare_states(ours.states(source, target), states, bounds.rows, location, framework)
        else:
            comparisons.append(Comparison("layers", remark=f"not compared: {framework} does not show them"))
        difference_T = np.abs(ours.log_probs(source, target) - theirs.log_probs(source, target))
        largest, remark = float(difference_T.max()), f"{location}, token {int(difference_T.argmax()) + 1}"
        comparisons.append(Comparison("log-probabilities", largest <= bounds.log_probs, largest, remark=remark))
        for beam_size in ours.beam_sizes:
            name = f"{location}, {'greedy' if beam_size == 1 else f'beam {beam_size}'}"
            there = target if beam_size == 1 else theirs.translate(source, beam_size, ours.lengths)
            here = ours.translate(source, beam_size, ours.lengths)
            searches.append(_compare_translations(name, ours, source, here, there, beam_size, bounds))
    return [*worst_of_each(comparisons), *searches]


def _compare_translations(
    name: str, ours: FastattnTranslator, source: Tokens, here: Tokens, there: Tokens, beam_size: int, bounds: Bounds
) -> Comparison:
    """The Comparison of two translations, which may differ if fastattn's log-probabilities of both are close enough.

    For a greedy search these are of the tokens at the first difference, for a beam search the means of all tokens.
    """
    ours_T, theirs_T = ours.log_probs(source, here), ours.log_probs(source, there)
    summary = f"log-probability a token {ours_T.mean():.4f}"
    if list(here) == list(there):
        return Comparison(name, remark=f"the same {counted(len(here), 'token')}; {summary}", here=here, there=there)
    if beam_size > 1 and ours.lengths[1] in (len(here), len(there)):
        remark = f"not compared: no end within {ours.lengths[1]} tokens"
        return Comparison(name, remark=remark, here=here, there=there)
    first = first_difference(here, there)
    gap = float(ours_T[first] - theirs_T[first] if beam_size == 1 else ours_T.mean() - theirs_T.mean())
    tokens = f"{_token_name(here, first)} here and {_token_name(there, first)} there"
    remark = f"differs from token {first + 1}: {tokens}; {summary} here, {theirs_T.mean():.4f} there"
    return Comparison(name, abs(gap) <= bounds.log_probs, abs(gap), remark=remark, here=here, there=there)


def _token_name(tokens: Tokens, index: int) -> str:
    return tokens[index] if index < len(tokens) else "the end"


class CTranslate2Translator:
    """CTranslate2's side of a comparison, with the methods of FastattnTranslator; CTranslate2 shows no layers."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        if not isinstance(checkpoint.text, TranslationText):
            raise InputError(f"{path}: verify compares translation models with CTranslate2, this is an encoder")
        if path.is_file():
            raise InputError(f"{path}: CTranslate2 reads no archives; unpack it, and verify the folder")
        (ctranslate2,) = import_packages("ctranslate2")
        self.name = versions("ctranslate2")
        folder = path / "model" if checkpoint.format == "argos" else path
        with framework_errors(f"{path}: CTranslate2 cannot read it"):
            self._translator = ctranslate2.Translator(str(folder), compute_type="float32")

    def source_ids(self, text: str) -> list[int] | None:
        return None

    def states(self, source: Tokens, target: Tokens) -> Mapping[str, np.ndarray]:
        return {}

    def log_probs(self, source: Tokens, target: Tokens) -> np.ndarray:
        with framework_errors("CTranslate2 fails"):
            (scored,) = self._translator.score_batch([list(source)], [list(target)])
        return np.array(scored.log_probs, np.float32)

    def translate(self, source: Tokens, beam_size: int, lengths: tuple[int, int]) -> list[str]:
        least, most = lengths
        with framework_errors("CTranslate2 fails"):
            (result,) = self._translator.translate_batch(
                [list(source)], beam_size=beam_size, min_decoding_length=least, max_decoding_length=most
            )
        return list(result.hypotheses[0])


class MarianTranslator:
    """transformers' side of a comparison, with the methods of FastattnTranslator."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        transformers, self._torch = import_packages(*TRANSFORMERS)
        self.name = versions(*TRANSFORMERS)
        assert isinstance(checkpoint.text, TranslationText)
        self._text = checkpoint.text
        self._source_ids = {token: i for i, token in enumerate(checkpoint.text.source_vocabulary)}
        self._target_ids = {token: i for i, token in enumerate(checkpoint.text.target_vocabulary)}
        with framework_errors(f"{path}: transformers cannot read it"):
            self._tokenizer = transformers.MarianTokenizer.from_pretrained(path, **LOCAL_ONLY)
            model = transformers.MarianMTModel.from_pretrained(
                path, attn_implementation="eager", dtype=self._torch.float32, **LOCAL_ONLY
            )
        self._model = model.eval()
        self._settings = model.generation_config

    def source_ids(self, text: str) -> list[int] | None:
        with framework_errors("transformers' tokenizer fails"):
            return list(self._tokenizer(text)["input_ids"])

    def states(self, source: Tokens, target: Tokens) -> Mapping[str, np.ndarray]:
        output = self._run(source, target)
        rows_of: dict[str, np.ndarray] = {}
        for stack in ("encoder", "decoder"):
            states = [rows[0].numpy() for rows in output[f"{stack}_hidden_states"]]
            rows_of |= name_states(states, states[-1], f"{stack} ")  # Marian has no final norm
        return rows_of

    def log_probs(self, source: Tokens, target: Tokens) -> np.ndarray:
        logits_TV = self._run(source, target).logits[0].clone()
        logits_TV[:, self._suppressed_ids()] = -self._torch.inf
        targets = self._torch.tensor([*self._forced_ids(target), self._target_ids[self._text.eos_token]])
        log_probs_T = self._torch.log_softmax(logits_TV, dim=1).gather(1, targets[:, None])[:, 0].numpy()
        return np.asarray(log_probs_T[len(self._text.decoding.forced_tokens) :])

    def translate(self, source: Tokens, beam_size: int, lengths: tuple[int, int]) -> list[str]:
        forced = len(self._text.decoding.forced_tokens)
        least, most = (length + forced for length in lengths)
        limits = {"min_length": 0, "max_length": None, "min_new_tokens": least, "max_new_tokens": most}
        with framework_errors("transformers' model fails"), self._torch.no_grad():
            (ids,) = self._model.generate(
                input_ids=self._inputs(source), num_beams=beam_size, do_sample=False, **limits
            )
        end = self._target_ids[self._text.eos_token]
        target_ids = ids.tolist()[1 + forced :]
        target_ids = target_ids[: target_ids.index(end)] if end in target_ids else target_ids
        return [self._text.target_vocabulary[index] for index in target_ids]

    def _run(self, source: Tokens, target: Tokens) -> Any:
        """The model's output for a given target."""
        ids = [self._settings.decoder_start_token_id, *self._forced_ids(target)]
        with framework_errors("transformers' model fails"), self._torch.no_grad():
            return self._model(
                input_ids=self._inputs(source), decoder_input_ids=self._torch.tensor([ids]), output_hidden_states=True
            )

    def _inputs(self, source: Tokens) -> Any:
        text = self._text
        ids = [self._source_ids.get(token, self._source_ids[text.unk_token]) for token in source]
        return self._torch.tensor([[*ids, self._source_ids[text.eos_token]]])

    def _forced_ids(self, target: Tokens) -> list[int]:
        return [self._target_ids[token] for token in (*self._text.decoding.forced_tokens, *target)]

    def _suppressed_ids(self) -> list[int]:
        """The ids that a search never chooses; ``log_probs`` gives their probability to all other tokens."""
        words = self._settings.bad_words_ids or []
        bad_ids = {word[0] for word in words if len(word) == 1} | {*(self._settings.suppress_tokens or ())}
        return sorted({*bad_ids, self._settings.pad_token_id} - {self._settings.eos_token_id})


TranslatorSide = FastattnTranslator | CTranslate2Translator | MarianTranslator
