"""Small random encoder-decoders of every kind with tokenizers of their own, and transformers' results for texts."""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from fastattn.weights.huggingface.architectures.bart import LANGUAGES
from fastattn.weights.huggingface.tokenizer_files import MBART_LANGUAGES

WORDS = (
    "the a river garden market teacher window bridge quiet old small opens crosses sees finds near under tomorrow "
    "never and but of with its green stone house water light writes reads letter morning evening people walk slowly"
).split()
MADLAD_LANGUAGES = ("de", "fr", "zh", "ber_Latn")
NLLB_LANGUAGES = ("eng_Latn", "fra_Latn", "deu_Latn", "zho_Hans", "arb_Arab")
FIRST = ("<s>", "<pad>", "</s>", "<unk>")


def make_texts(count: int, seed: int = 0, longest: int = 14) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest))).capitalize() + "." for _ in range(count)]


def train_spm(kind: str, size: int = 150, **more: Any) -> bytes:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(make_texts(400, 7)), model_writer=model, vocab_size=size, model_type=kind,
        character_coverage=1.0, minloglevel=2, normalization_rule_name="identity", **more,
    )  # fmt: skip
    return model.getvalue()


def pieces_of(spm: bytes) -> list[str]:
    processor = SentencePieceProcessor(model_proto=spm)
    return [processor.id_to_piece(i) for i in range(len(processor))]


@dataclass(frozen=True)
class TranslatorCase:
    """A model and its search.

    tokenizer   a name of TOKENIZERS
    config      config.json without sizes of the vocabulary and without ids
    generation  generation_config.json without ids
    settings    further settings of tokenizer_config.json
    source, target  languages of a text and of its translation; "" if the model has none
    """

    name: str
    model_class: str
    tokenizer: str
    config: dict[str, Any]
    generation: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    target: str = ""
    rows: int = 0  # of the embedding at least
    prefix: str = ""  # the beginning of a text in transformers, if it names the languages


@dataclass(frozen=True)
class TextFiles:
    """A tokenizer's fields of config.json and generation_config.json, and its tokenizer_config.json."""

    settings: dict[str, Any]
    rows: int
    ids: dict[str, int] = field(default_factory=lambda: {"bos": 0, "pad": 1, "eos": 2})
    languages: dict[str, int] = field(default_factory=dict)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


METASPACE: dict[str, Any] = {"replacement": "\u2581", "prepend_scheme": "always", "split": True}


def _bart(folder: Path, case: TranslatorCase) -> TextFiles:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=[*FIRST], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(make_texts(400, 7), trainer)
    tokenizer.add_special_tokens(["<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    tokenizer.save(str(folder / "tokenizer.json"))
    return TextFiles({"tokenizer_class": "BartTokenizer"}, tokenizer.get_vocab_size())


def _nllb(folder: Path, case: TranslatorCase) -> TextFiles:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**METASPACE)
    tokenizer.decoder = decoders.Metaspace(**METASPACE)
    trainer = trainers.BpeTrainer(vocab_size=150, special_tokens=[*FIRST])
    tokenizer.train_from_iterator(make_texts(400, 7), trainer)
    tokenizer.add_special_tokens([*NLLB_LANGUAGES, "<mask>"])
    languages = {code: tokenizer.token_to_id(code) for code in NLLB_LANGUAGES}
    special = [("</s>", 2), (case.source, languages[case.source])]
    tokenizer.post_processor = processors.TemplateProcessing(f"{case.source} $A </s>", None, special)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": [*NLLB_LANGUAGES]}
    return TextFiles(settings, tokenizer.get_vocab_size(), languages=languages)


def _m2m100(folder: Path, case: TranslatorCase) -> TextFiles:
    spm = train_spm("bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    tokens = [*FIRST, *pieces_of(spm)[3:]]
    write_json(folder / "vocab.json", {token: i for i, token in enumerate(tokens)})
    special = [f"__{code}__" for code in LANGUAGES["m2m100"].split()]
    settings = {"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": special}
    languages = {code: len(tokens) + i for i, code in enumerate(LANGUAGES["m2m100"].split())}
    return TextFiles(settings, len(tokens) + len(languages) + 8, languages=languages)


def _mbart(folder: Path, case: TranslatorCase, kind: str = "MBartTokenizer", count: int = 25) -> TextFiles:
    spm = train_spm("unigram", 120)
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    pieces = len(pieces_of(spm)) + 1
    languages = {code: pieces + i for i, code in enumerate(MBART_LANGUAGES.split()[:count])}
    settings = {"tokenizer_class": kind, "bos_token": "<s>"}
    return TextFiles(settings, pieces + len(languages) + 1, languages=languages)


def _spiece(folder: Path, case: TranslatorCase, kind: str, more: int, **settings: Any) -> TextFiles:
    """Pegasus' or T5's tokenizer; the embedding has ``more`` rows than pieces."""
    spm = train_spm("unigram", 120, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (folder / "spiece.model").write_bytes(spm)
    return TextFiles({"tokenizer_class": kind} | settings, len(pieces_of(spm)) + more, {"pad": 0, "eos": 1})


def _madlad(folder: Path, case: TranslatorCase) -> TextFiles:
    """A target starts with the unknown token; the token of a text's beginning is the padding."""
    tags = [f"<2{code}>" for code in MADLAD_LANGUAGES]
    spm = train_spm("unigram", 120, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, user_defined_symbols=tags)
    (folder / "spiece.model").write_bytes(spm)
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "pad_token": "<s>", "bos_token": "<s>"}
    pieces = pieces_of(spm)
    return TextFiles(settings, len(pieces), {"pad": 1, "eos": 2}, {token: pieces.index(token) for token in tags})


def _marian(folder: Path, case: TranslatorCase) -> TextFiles:
    """The order of tc-big's models: the end token is among the pieces, the padding is last."""
    spm = train_spm("unigram", 120)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(spm)
    tokens = pieces_of(spm)[3:]
    tokens = ["<unk>", ">>fra<<", *tokens[:80], "</s>", *tokens[80:], "<pad>"]
    write_json(folder / "vocab.json", {token: i for i, token in enumerate(tokens)})
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "eng", "target_lang": "fra"}
    return TextFiles(settings, len(tokens), {"bos": 0, "pad": len(tokens) - 1, "eos": 82})


TOKENIZERS = {
    "bart": _bart,
    "m2m100": _m2m100,
    "madlad": _madlad,
    "marian": _marian,
    "mbart": _mbart,
    "mbart50": partial(_mbart, kind="MBart50Tokenizer", count=52),
    "nllb": _nllb,
    "pegasus": partial(_spiece, kind="PegasusTokenizer", more=103),
    "t5": partial(_spiece, kind="T5Tokenizer", more=5, extra_ids=5),
}


def ids_of(case: TranslatorCase, files: TextFiles) -> dict[str, Any]:
    ids = {f"{name}_token_id": index for name, index in files.ids.items()}
    pad, eos = files.ids["pad"], files.ids["eos"]
    starts = {"bart": eos, "m2m100": eos, "nllb": eos, "mbart50": eos, "marian": pad, "pegasus": pad}
    starts |= {"t5": pad, "madlad": 0}
    ids["decoder_start_token_id"] = starts.get(case.tokenizer, files.languages.get(case.target))
    if case.tokenizer in ("m2m100", "marian", "nllb"):  # never produced; M2M100's would have no position
        ids["bad_words_ids"] = [[pad]]
    if case.tokenizer == "bart":
        ids["forced_bos_token_id"] = files.ids["bos"]
    return ids


def build(folder: Path, case: TranslatorCase, seed: int = 0) -> None:
    """Write the whole folder; transformers draws the model's weights."""
    import torch
    import transformers

    torch.manual_seed(seed)
    kind = getattr(transformers, case.model_class)
    files = TOKENIZERS[case.tokenizer](folder, case)
    write_json(folder / "tokenizer_config.json", files.settings | case.settings)
    sizes = {"vocab_size": max(files.rows, case.rows)} | ids_of(case, files) | case.config
    model = kind(kind.config_class(**sizes))
    if case.tokenizer in ("t5", "madlad") and not case.config.get("tie_word_embeddings", True):
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))  # as published
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() == 1:
                tensor += 0.2 * torch.randn_like(tensor)
    calibrate(model, files.rows)
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    write_json(folder / "generation_config.json", ids_of(case, files) | case.generation)


def calibrate(model: Any, tokens: int) -> tuple[str, np.ndarray]:
    """Make about a tenth of a target's tokens the end token; returns the changed tensor's name and values."""
    import torch

    end = model.config.eos_token_id
    end_weight_D = model.get_output_embeddings().weight[end].detach()
    with torch.no_grad():
        ids = torch.randint(0, tokens, (2, 8, 40))
        outputs = model(input_ids=ids[0], decoder_input_ids=ids[1], output_hidden_states=True)
        logits_NV = outputs.logits.flatten(0, 1)
        ends_N = logits_NV[:, end].clone()
        logits_NV[:, end] = -torch.inf
        lacking = float((logits_NV.max(dim=1).values - ends_N).quantile(0.1))
        if hasattr(model, "final_logits_bias"):
            name, changed = "final_logits_bias", model.final_logits_bias
            changed[0, end] += lacking
        elif not hasattr(model, "model"):  # T5 has no biases
            name = "shared.weight" if model.lm_head.weight is model.shared.weight else "lm_head.weight"
            changed, mean_D = model.lm_head.weight, outputs.decoder_hidden_states[-1].mean(dim=(0, 1))
            scaled = getattr(model.config, "scale_decoder_outputs", False)
            changed[end] += lacking * mean_D / (mean_D**2).sum() * (len(mean_D) ** 0.5 if scaled else 1.0)
        else:
            name, changed = "model.decoder.layer_norm.bias", model.model.decoder.layer_norm.bias
            changed += lacking * end_weight_D / (end_weight_D**2).sum()
    return name, changed.detach().numpy().copy()


class Oracle:
    def __init__(self, folder: Path, case: TranslatorCase):
        import torch
        import transformers

        transformers.utils.logging.set_verbosity_error()
        self.torch, self.case = torch, case
        kind = getattr(transformers, case.model_class)
        self.model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        # UMT5's is not found by its model's type
        reader = transformers.T5Tokenizer if case.tokenizer == "t5" else transformers.AutoTokenizer
        self.tokenizer = reader.from_pretrained(folder)
        if case.source and not case.prefix:
            self.tokenizer.src_lang = case.source

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(self.tokenizer(self.case.prefix + text)["input_ids"]) for text in texts]

    def _padded(self, ids: Iterable[list[int]]) -> dict[str, Any]:
        ids = list(ids)
        longest, pad = max(map(len, ids)), self.model.config.pad_token_id
        rows = [row + [pad] * (longest - len(row)) for row in ids]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in ids]
        return {"input_ids": self.torch.tensor(rows), "attention_mask": self.torch.tensor(mask)}

    def logits(self, source: list[int], target: list[int]) -> np.ndarray:
        """Logits [T, V] after each prefix of the target's ids."""
        with self.torch.no_grad():
            inputs = self._padded([source]) | {"decoder_input_ids": self.torch.tensor([target])}
            return np.asarray(self.model(**inputs).logits[0].numpy())

    def generate(self, ids: Sequence[list[int]], beams: int) -> list[list[int]]:
        """The ids of each sentence's translation, without start, language, end and padding."""
        options: dict[str, Any] = {"num_beams": beams, "do_sample": False}
        config, skipped = self.model.generation_config, 1
        forced = config.forced_bos_token_id
        if self.case.target and self.case.tokenizer != "mbart" and not self.case.prefix:
            token = f"__{self.case.target}__" if self.case.tokenizer == "m2m100" else self.case.target
            forced = options["forced_bos_token_id"] = self.tokenizer.convert_tokens_to_ids(token)
        skipped += forced is not None
        with self.torch.no_grad():
            rows = self.model.generate(**self._padded(ids), **options).tolist()
        end, results = config.eos_token_id, []
        for row in rows:
            produced = row[skipped:]
            results.append(produced[: produced.index(end)] if end in produced else produced)
        return results

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))
