"""The two sides of a comparison, fastattn and the source framework: encoders, then translation models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError, InputError
from fastattn.loading.loaded_model import load_model
from fastattn.loading.model_cache import Loading
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
from fastattn.verification.frameworks import blaming, framework, versions

TRANSFORMERS = ("transformers", "torch")
FROM_HERE = {"local_files_only": True, "trust_remote_code": False}  # without False transformers asks on the terminal
LONGEST = 256  # tokens of a translation, where the checkpoint has no limit of its own


class FastattnEncoder:
    """fastattn's side: an Encoder of the folder and its model, in the same precision.

    name  of the framework, with versions
    """

    name = "fastattn"

    def __init__(self, path: Path, checkpoint: Checkpoint, precision: str):
        text = checkpoint.text
        assert isinstance(text, EncoderText) and checkpoint.spec.encoder is not None
        self._encoder = Encoder(path, precision)
        # It maps the weights that the Encoder has packed.
        self._model = load_model(checkpoint, precision, None, backend("cpu"), Loading()).model
        longest = self._encoder.max_length
        self._tokenizer = HuggingFaceTokenizer(text.tokenizer, longest, text.lowercase, text.truncation_side)
        self._prompt = text.prompts.get(text.default_prompt or "", "")

    def ids(self, text: str) -> list[int]:
        """The ids of a text with the default prompt, special ones included, cut where this side cuts it."""
        return [int(index) for index in self._tokenizer.encode([self._prompt + text])[0]]

    def token(self, index: int) -> str | None:
        return self._tokenizer.token(index)

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        """Rows [T, D] by the names of ``name_states``."""
        *states, output_TD = self._model.encoder.states(np.array(ids, np.int32))
        return name_states(states, output_TD)

    def vector(self, text: str) -> np.ndarray:
        """float32 [E]."""
        return self._encoder.encode(text)


def compare_encoders(
    ours: FastattnEncoder, theirs: "EncoderSide", texts: Sequence[str], bounds: Bounds
) -> list[Comparison]:
    """Ids, layers, vectors. The layers of both sides get our ids, so that only the models may differ."""
    ids = [ours.ids(text) for text in texts]
    framework = theirs.name.partition(" ")[0]
    comparisons = [compare_ids(ids, [theirs.ids(text) for text in texts], ours.token)]
    for number, text in enumerate(texts):
        location = f"text {number + 1}"
        if ids[number]:
            states = ours.states(ids[number]), theirs.states(ids[number])
            comparisons += compare_states(*states, bounds.rows, location, framework)
        vectors = ours.vector(text)[None], theirs.vector(text)[None]
        comparisons.append(compare_rows("vector", *vectors, bounds.rows, location))
    return worst_of_each(comparisons)


class TransformersEncoder:
    """transformers' side of a comparison, with the methods of FastattnEncoder.

    The vector is the mean of the rows, fastattn's default.
    """

    def __init__(self, path: Path, checkpoint: Checkpoint):
        transformers, torch = framework(*TRANSFORMERS)
        self.name = versions(*TRANSFORMERS)
        text = checkpoint.text
        assert isinstance(text, EncoderText)
        with blaming(f"{path}: transformers cannot read it"):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, **FROM_HERE)
            model = transformers.AutoModel.from_pretrained(
                path, attn_implementation="eager", dtype=torch.float32, **FROM_HERE
            )
        check_class(path, model)
        model = model.eval()
        self._model = model.get_encoder() if hasattr(model, "decoder") else model
        # A tokenizer's own limit may be beyond the model's positions.
        self._max_length = min(self._tokenizer.model_max_length, text.max_length)

    def ids(self, text: str) -> list[int]:
        with blaming("transformers' tokenizer fails"):
            return list(self._tokenizer(text, truncation=True, max_length=self._max_length)["input_ids"])

    def token(self, index: int) -> str | None:
        return str(self._tokenizer.convert_ids_to_tokens(index))

    def states(self, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        """Where a norm follows the blocks, transformers shows the norm's output as the last block's."""
        import torch

        with blaming("transformers' model fails"), torch.no_grad():
            output = self._model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        return name_states([rows[0].numpy() for rows in output.hidden_states], output.last_hidden_state[0].numpy())

    def vector(self, text: str) -> np.ndarray:
        return self.states(self.ids(text))["output"].mean(axis=0)


def check_class(path: Path, model: Any) -> None:
    """Raise CheckpointError where the folder names a class of its own code, and transformers has read another one.

    jina-v2's BERT says that it is a BERT: transformers would load some of its weights, and draw the rest at random.
    """
    named = getattr(model.config, "auto_map", None) or {}
    theirs = str(named.get("AutoModel", "")).rpartition(".")[2]
    if theirs not in ("", type(model).__name__):
        raise CheckpointError(
            f"{path}: transformers has no {theirs}, only a {type(model).__name__}; the folder's own code is not run"
        )


class SentenceTransformersEncoder(TransformersEncoder):
    """sentence-transformers' side of a comparison."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        packages = ("sentence-transformers", *TRANSFORMERS)
        sentence_transformers, _, torch = framework(*packages)
        self.name = versions(*packages)
        with blaming(f"{path}: sentence-transformers cannot read it"):
            self._sentence_transformer = sentence_transformers.SentenceTransformer(
                str(path),
                device="cpu",
                **FROM_HERE,
                model_kwargs={"attn_implementation": "eager", "dtype": torch.float32},
            )
        whole = self._sentence_transformer.eval()
        self._model, self._tokenizer = whole[0].auto_model, whole.tokenizer
        check_class(path, self._model)
        self._prompt = whole.prompts.get(whole.default_prompt_name) or ""

    def ids(self, text: str) -> list[int]:
        # older versions call it tokenize
        read = getattr(self._sentence_transformer, "preprocess", None) or self._sentence_transformer.tokenize
        with blaming("sentence-transformers' tokenizer fails"):
            ids: list[int] = read([self._prompt + text])["input_ids"][0].tolist()
        return ids

    def vector(self, text: str) -> np.ndarray:
        with blaming("sentence-transformers' model fails"):
            vector_E: np.ndarray = self._sentence_transformer.encode([text], show_progress_bar=False)[0]
        return vector_E


EncoderSide = FastattnEncoder | TransformersEncoder


class FastattnTranslator:
    """fastattn's side: a Translator of the folder and its model; tokens are those of the checkpoint's vocabularies.

    name  of the framework, with versions
    """

    name = "fastattn"

    def __init__(self, path: Path, checkpoint: Checkpoint, precision: str):
        assert isinstance(checkpoint.text, TranslationText) and checkpoint.spec.decoder is not None
        self._text = checkpoint.text
        self._tokenizer = TranslationTokenizer(checkpoint.text)
        self._translator = Translator(path, precision)
        # It maps the weights that the Translator has packed.
        self._model: EncoderDecoder = load_model(checkpoint, precision, None, backend("cpu"), Loading()).model
        self.beam_sizes = sorted({1, self._translator.default_options.beam_size})
        own, positions = self._translator.default_options, checkpoint.spec.decoder.positions.limit
        most = own.max_decoding_length or LONGEST
        most = min(most, positions - 1 - self._tokenizer.token_pair.forced_tokens) if positions else most
        self.lengths = min(own.min_decoding_length, most), most

    @property
    def max_source_length(self) -> int:
        return self._translator.max_source_length

    def source_tokens(self, text: str) -> list[str]:
        return self._tokenizer.source_tokens(text)

    def source_token(self, index: int) -> str | None:
        vocabulary = self._text.source_vocabulary
        return vocabulary[index] if index < len(vocabulary) else None

    def source_ids(self, text: str) -> list[int] | None:
        """The ids of a text, special ones included; None: the framework takes no texts."""
        return [int(index) for index in self._tokenizer.source_ids(self.source_tokens(text))]

    def states(self, source: Sequence[str], target: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Rows of both stacks by the names of ``name_states``, the target behind its start token; {}: not shown."""
        ids_S = self._tokenizer.source_ids(source)
        *states, output_SD = self._model.encoder.states(ids_S)
        named = name_states(states, output_SD, "encoder ")
        ids_T = np.array(self._tokenizer.target_ids(target), np.int32)
        *states, output_TD = self._model.states(ids_T, self._model.encode([ids_S]))
        return named | name_states(states, output_TD, "decoder ")

    def log_probs(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        """The log-probability of each token of a given translation, the end token last."""
        return self._translator.score_tokens([source], [target])[0].log_probs

    def translate(self, source: Sequence[str], beam_size: int, lengths: tuple[int, int]) -> list[str]:
        """The best translation of a search, never sampled, with the checkpoint's other settings.

        lengths  the least and the most tokens that it has
        """
        least, most = lengths
        (translation,) = self._translator.translate_tokens(
            [source], beam_size=beam_size, sampling_topk=1, min_decoding_length=least, max_decoding_length=most
        )
        return translation.tokens


def compare_translators(
    ours: FastattnTranslator, theirs: "TranslatorSide", texts: Sequence[str], bounds: Bounds
) -> list[Comparison]:
    """Ids; layers and log-probabilities for the framework's translations; each search of each text.

    The framework gets our tokens of the source, as many as there are positions for, so that only the models may differ.
    """
    framework = theirs.name.partition(" ")[0]
    theirs_B = [ids for text in texts if (ids := theirs.source_ids(text)) is not None]
    if len(theirs_B) < len(texts):
        comparisons = [Comparison("tokens", remark=f"not compared: {framework} gets tokens, not text")]
    else:
        comparisons = [compare_ids([ours.source_ids(text) or [] for text in texts], theirs_B, ours.source_token)]
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
        largest, place = float(difference_T.max()), f"{location}, token {int(difference_T.argmax()) + 1}"
        comparisons.append(Comparison("log-probabilities", largest <= bounds.log_probs, largest, remark=place))
        for beam_size in ours.beam_sizes:
            name = f"{location}, {'greedy' if beam_size == 1 else f'beam {beam_size}'}"
            there = target if beam_size == 1 else theirs.translate(source, beam_size, ours.lengths)
            here = ours.translate(source, beam_size, ours.lengths)
            searches.append(_compare_translations(name, ours, source, here, there, beam_size, bounds))
    return [*worst_of_each(comparisons), *searches]


def _compare_translations(
    name: str,
    ours: FastattnTranslator,
    source: Sequence[str],
    here: Sequence[str],
    there: Sequence[str],
    beam_size: int,
    bounds: Bounds,
) -> Comparison:
    """Two translations may differ where their log-probabilities here differ within the bound.

    A greedy search is measured at the first difference, a beam search by the mean of all tokens.
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
    turned = " and ".join(f"{_token_name(tokens, first)} {side}" for tokens, side in ((here, "here"), (there, "there")))
    remark = f"differs from token {first + 1}: {turned}; {summary} here, {theirs_T.mean():.4f} there"
    return Comparison(name, abs(gap) <= bounds.log_probs, abs(gap), remark=remark, here=here, there=there)


def _token_name(tokens: Sequence[str], index: int) -> str:
    return tokens[index] if index < len(tokens) else "the end"


class CTranslate2Translator:
    """CTranslate2's side of a comparison, with the methods of FastattnTranslator; shows no layers."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        if not isinstance(checkpoint.text, TranslationText):
            raise InputError(f"{path}: verify compares translation models with CTranslate2, this is an encoder")
        if path.is_file():
            raise InputError(f"{path}: CTranslate2 reads no archives; unpack it, and verify the folder")
        (ctranslate2,) = framework("ctranslate2")
        self.name = versions("ctranslate2")
        folder = path / "model" if checkpoint.format == "argos" else path
        with blaming(f"{path}: CTranslate2 cannot read it"):
            self._translator = ctranslate2.Translator(str(folder), compute_type="float32")

    def source_ids(self, text: str) -> list[int] | None:
        return None

    def states(self, source: Sequence[str], target: Sequence[str]) -> Mapping[str, np.ndarray]:
        return {}

    def log_probs(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        with blaming("CTranslate2 fails"):
            (scored,) = self._translator.score_batch([list(source)], [list(target)])
        return np.array(scored.log_probs, np.float32)

    def translate(self, source: Sequence[str], beam_size: int, lengths: tuple[int, int]) -> list[str]:
        least, most = lengths
        with blaming("CTranslate2 fails"):
            (result,) = self._translator.translate_batch(
                [list(source)], beam_size=beam_size, min_decoding_length=least, max_decoding_length=most
            )
        return list(result.hypotheses[0])


class MarianTranslator:
    """transformers' side of a comparison, with the methods of FastattnTranslator."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        transformers, self._torch = framework(*TRANSFORMERS)
        self.name = versions(*TRANSFORMERS)
        assert isinstance(checkpoint.text, TranslationText)
        self._text = checkpoint.text
        self._source_ids = {token: i for i, token in enumerate(checkpoint.text.source_vocabulary)}
        self._target_ids = {token: i for i, token in enumerate(checkpoint.text.target_vocabulary)}
        with blaming(f"{path}: transformers cannot read it"):
            self._tokenizer = transformers.MarianTokenizer.from_pretrained(path, **FROM_HERE)
            model = transformers.MarianMTModel.from_pretrained(
                path, attn_implementation="eager", dtype=self._torch.float32, **FROM_HERE
            )
        self._model = model.eval()
        self._settings = model.generation_config

    def source_ids(self, text: str) -> list[int] | None:
        with blaming("transformers' tokenizer fails"):
            return list(self._tokenizer(text)["input_ids"])

    def states(self, source: Sequence[str], target: Sequence[str]) -> Mapping[str, np.ndarray]:
        output = self._run(source, target)
        named: dict[str, np.ndarray] = {}
        for stack in ("encoder", "decoder"):
            states = [rows[0].numpy() for rows in output[f"{stack}_hidden_states"]]
            named |= name_states(states, states[-1], f"{stack} ")  # a norm follows each sublayer, none the stack
        return named

    def log_probs(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        logits_TV = self._run(source, target).logits[0].clone()
        logits_TV[:, self._suppressed_ids()] = -self._torch.inf
        targets = self._torch.tensor([*self._forced_ids(target), self._target_ids[self._text.eos_token]])
        log_probs_T = self._torch.log_softmax(logits_TV, dim=1).gather(1, targets[:, None])[:, 0].numpy()
        return np.asarray(log_probs_T[len(self._text.decoding.forced_tokens) :])

    def translate(self, source: Sequence[str], beam_size: int, lengths: tuple[int, int]) -> list[str]:
        forced = len(self._text.decoding.forced_tokens)
        least, most = lengths
        with blaming("transformers' model fails"), self._torch.no_grad():
            (ids,) = self._model.generate(
                input_ids=self._inputs(source),
                num_beams=beam_size,
                do_sample=False,
                max_length=None,
                min_length=0,
                min_new_tokens=least + forced,
                max_new_tokens=most + forced,
            )
        end = self._target_ids[self._text.eos_token]
        target_ids = ids.tolist()[1 + forced :]
        target_ids = target_ids[: target_ids.index(end)] if end in target_ids else target_ids
        return [self._text.target_vocabulary[index] for index in target_ids]

    def _run(self, source: Sequence[str], target: Sequence[str]) -> Any:
        """The model's output for a given target."""
        ids = [self._settings.decoder_start_token_id, *self._forced_ids(target)]
        with blaming("transformers' model fails"), self._torch.no_grad():
            return self._model(
                input_ids=self._inputs(source), decoder_input_ids=self._torch.tensor([ids]), output_hidden_states=True
            )

    def _inputs(self, source: Sequence[str]) -> Any:
        text = self._text
        ids = [self._source_ids.get(token, self._source_ids[text.unk_token]) for token in source]
        return self._torch.tensor([[*ids, self._source_ids[text.eos_token]]])

    def _forced_ids(self, target: Sequence[str]) -> list[int]:
        return [self._target_ids[token] for token in (*self._text.decoding.forced_tokens, *target)]

    def _suppressed_ids(self) -> list[int]:
        """The ids that a search never chooses; their probability goes to all other tokens here."""
        words = self._settings.bad_words_ids or []
        single = {word[0] for word in words if len(word) == 1} | {*(self._settings.suppress_tokens or ())}
        return sorted({*single, self._settings.pad_token_id} - {self._settings.eos_token_id})


TranslatorSide = FastattnTranslator | CTranslate2Translator | MarianTranslator
