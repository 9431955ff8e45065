"""How every file that is read is put to use, sound or damaged: what test_hostile.py damages."""

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.decoding.search import shortlisted_ids
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.masked_language_model import MaskedLanguageModel
from fastattn.encoders.multi_vector_encoder import MultiVectorEncoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.encoders.token_classifier import TokenClassifier
from fastattn.errors import DownloadError
from fastattn.generation.generator import Generator
from fastattn.spec.checkpoint import Shortlist
from fastattn.text.sentencepiece import SentencePiece
from fastattn.translation.pointer import PointerNetwork
from fastattn.translation.translator import Translator
from fastattn.weights.containers.archive import ArchiveError, extract
from fastattn.weights.containers.shortlist import read_shortlist
from fastattn.weights.folder import Directory
from tests import GOLDENS
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.decoders import GEMMA2
from tests.architectures.goldens import write_translator
from tests.encoders import classifiers
from tests.images.cases import CASES as IMAGE_CASES
from tests.images.cases import RESIDUAL_CASES, pictures, read_shapes, write_golden_images, write_residual
from tests.weights import sound_files as sound
from tests.weights.containers.shortlist_writer import binary_shortlist
from tests.weights.gguf import models as gguf_models
from tests.weights.marian import writer as marian_writer
from tests.weights.mutators import Files, mutate
from tests.weights.recurrent import writer as recurrent_writer
from tests.weights.sound_files import converted_files as own
from tests.weights.sound_files import written

TEXTS = ["▁w1 ▁w2", "the garden, 明天 w0!", "", "x" * 40]
LIMIT = 1 << 16  # bytes that a pulled archive may unpack to


@dataclass(frozen=True)
class Subject:
    """``load`` reads the files in a folder into whatever uses them; ``use`` puts that to work."""

    files: Files
    load: Callable[[Path], object]
    use: Callable[[object], object]

    def damaged(self, seed: int) -> Files:
        return mutate(self.files, random.Random(seed))


def _translate(translator: Translator) -> None:
    for beam_size in (1, 3):
        translator.translate(TEXTS, beam_size=beam_size, max_decoding_length=5, details=True, return_attention=True)
    translator.score(["▁w1 ▁w2"], ["▁w3"])


def _encode(encoder: Encoder) -> None:
    encoder.encode(TEXTS)
    encoder.encode(TEXTS[:2], prompt="query: ", normalize_embeddings=True)


def _rank(encoder: CrossEncoder) -> None:
    encoder.predict([(text, TEXTS[1]) for text in TEXTS], apply_softmax=True)
    encoder.rank(TEXTS[1], TEXTS, top_k=2)


def _weigh(encoder: SparseEncoder) -> None:
    encoder.decode(encoder.encode(TEXTS), 3)
    encoder.encode_query(TEXTS[:2], max_active_dims=2)


def _look(encoder: Encoder) -> None:
    encoder.encode_images(pictures()[:2])


USES: dict[type, Callable[[Any], object]] = {
    Translator: _translate,
    Encoder: _encode,
    CrossEncoder: _rank,
    SparseEncoder: _weigh,
    MultiVectorEncoder: lambda encoder: encoder.score(encoder.encode_query(TEXTS), encoder.encode_document(TEXTS)),
    TokenClassifier: lambda one: [one.classify(TEXTS, aggregation=aggregation) for aggregation in ("none", "average")],
    MaskedLanguageModel: lambda model: model.fill([f"{text} {model.mask_token}" for text in TEXTS[:2]], top_k=2),
    Generator: lambda model: model.generate([np.array([3, 5]), "ABC!"], max_new_tokens=5),
    PointerNetwork: lambda network: network.point([np.ones((n, 2)) for n in (1, 5)], num_hypotheses=2),
}


def _segment(model: SentencePiece) -> None:
    for text in TEXTS:
        model.text(model.pieces(text))


def _unpack(path: Path) -> None:
    """As ``pull`` does, with its limit, and its name for a bad archive's error."""
    for archive in [file for file in path.iterdir() if file.is_file()]:
        targets = {f"top/{name}": path / "contents" / name for name in ("config.json", "model.bin")}
        try:
            extract(archive, targets, LIMIT)
        except ArchiveError as error:
            raise DownloadError(str(error)) from None
        finally:
            assert sum(file.stat().st_size for file in path.glob("contents/*")) <= LIMIT


def _shortlist(path: Path) -> Shortlist:
    (file,) = (file.name for file in path.iterdir())
    return read_shortlist(Directory(path), file, TOKENS, TOKENS, True)


def _choose(shortlist: Shortlist) -> None:
    for source in (np.arange(len(TOKENS)), np.array([3, 3]), np.array([len(TOKENS) - 1])):
        allowed = shortlisted_ids(shortlist, source, [0])
        assert len(allowed) and 0 <= allowed[0] <= allowed[-1] < len(TOKENS)


LANGUAGE_MODEL = {
    "tokenizer_config.json": b'{"chat_template": [{"name": "default", "template": "{{ one }}"}], "bos_token": "<s>"}',
    "generation_config.json": b'{"eos_token_id": [2, 5], "do_sample": true, "top_k": 4, "max_new_tokens": 9}',
}


def _checkpoint(files: Files, kind: type = Translator, folder: str = "", use: Any = None, **options: str) -> Subject:
    return Subject(files, lambda path: kind(path / folder, threads=1, **options), use or USES[kind])


def _golden(name: str) -> Files:
    """A golden encoder-decoder."""
    return written(partial(write_translator, name))


TOKENS = ("</s>", "<unk>", *(f"▁w{i}" for i in range(18)))
LISTS = [[s % 7, 19 - s, s] if s % 3 else [] for s in range(len(TOKENS))]
LEXICON = "".join(f"{TOKENS[t]} {TOKENS[s]} {1 / (t + 2):.3f}\n" for s, targets in enumerate(LISTS) for t in targets)
SHORTLIST = Shortlist(*(np.array(ids, np.int32) for ids in ([0, 1], [0, 2, 2, *[3] * 7], [3, 4, 5])), copied=True)

BLOCKS = {"model.gguf": gguf_models.of_blocks()}
E2K = {"model-c2k.safetensors": recurrent_writer.e2k_bytes(recurrent_writer.e2k())}
TUTORIAL = partial(recurrent_writer.tutorial_files, recurrent_writer.tutorial(True), True)
RESIDUAL = RESIDUAL_CASES[2]
SHAPES = read_shapes(RESIDUAL.name)
SUBJECTS: dict[str, Subject] = {
    "ctranslate2 v1": _checkpoint(sound.ctranslate2_files(1)),
    "ctranslate2 v2": _checkpoint(sound.ctranslate2_files(2, "int16")),
    "ctranslate2 v3": _checkpoint(sound.ctranslate2_files(3, "int8")),
    "ctranslate2 v4": _checkpoint(sound.ctranslate2_files(4, "float16", relative_buckets=8)),
    "ctranslate2 v5": _checkpoint(sound.ctranslate2_files(5, "bfloat16", position_table=48, pre_norm=False)),
    "ctranslate2 v6": _checkpoint(
        sound.ctranslate2_files(6, "int8", rotary=True, gated=True, rms_norm=True, biases=False)
    ),
    "ctranslate2 v6 alibi": _checkpoint(sound.ctranslate2_files(6, alibi=True, key_heads=1)),
    "ctranslate2 encoder": _checkpoint(sound.encoder_files(), Encoder),
    "argos deflated": _checkpoint(sound.argos_files(8), folder="package.argosmodel"),
    "argos stored": _checkpoint(sound.argos_files(0), folder="package.argosmodel"),
    "bert": _checkpoint(sound.bert_files(), Encoder),
    "bert in shards": _checkpoint(sound.bert_files("BPE", shards=2), Encoder),
    "bert, unigram": _checkpoint(sound.bert_files("Unigram"), Encoder),
    "bert of pytorch": _checkpoint(sound.bert_files_of_pytorch("zip"), Encoder),
    "bert of pytorch, old": _checkpoint(sound.bert_files_of_pytorch("stream"), Encoder),
    "bert of pytorch in shards": _checkpoint(sound.bert_files_of_pytorch("shards"), Encoder),
    **{f"bert, {kind}": _checkpoint(sound.older_files(kind), Encoder) for kind in sound.OLDER},
    "vit": _checkpoint(written(partial(write_golden_images, IMAGE_CASES[0])), Encoder, use=_look),
    "clip": _checkpoint(written(partial(write_golden_images, IMAGE_CASES[3])), Encoder, use=_look),
    "residual": _checkpoint(written(partial(write_residual, RESIDUAL, SHAPES)), Encoder, use=_look),
    "marianmt": _checkpoint(sound.marian_mt_files("shared", "model.safetensors")),
    "marianmt of pytorch": _checkpoint(sound.marian_mt_files("separate", "pytorch_model.bin")),
    **{name: _checkpoint(_golden(f"{name}-0")) for name in ("bart", "pegasus", "flan-t5", "umt5")},
    "nllb": _checkpoint(_golden("nllb-0"), source_lang="eng_Latn", target_lang="fra_Latn"),
    "m2m100": _checkpoint(_golden("m2m100-0"), source_lang="en", target_lang="fr"),
    "mbart": _checkpoint(_golden("mbart-0"), source_lang="en_XX", target_lang="ro_RO"),
    "sentence-transformers": _checkpoint(sound.sentence_transformer_files(), Encoder),
    "reranker": _checkpoint(sound.classifier_files(), CrossEncoder),
    "own reranker": _checkpoint(own(sound.classifier_files(), "int8"), CrossEncoder),
    "tagger": _checkpoint(written(partial(classifiers.write_classifier, name=classifiers.TOKENS)), TokenClassifier),
    "masked": _checkpoint(written(classifiers.write_masked), MaskedLanguageModel),
    "sparse": _checkpoint(written(classifiers.write_sparse), SparseEncoder),
    "own sparse": _checkpoint(own(written(classifiers.write_sparse), "int8"), SparseEncoder),
    "multi-vector": _checkpoint(written(classifiers.write_today), MultiVectorEncoder),
    "multi-vector of pylate": _checkpoint(written(classifiers.write_pylate), MultiVectorEncoder),
    "multi-vector, original": _checkpoint(written(classifiers.write_original), MultiVectorEncoder),
    "own multi-vector": _checkpoint(own(written(classifiers.write_today), "int8"), MultiVectorEncoder),
    "own int8": _checkpoint(own(sound.ctranslate2_files(6, rotary=True, gated=True), "int8")),
    "own bfloat16": _checkpoint(own(sound.ctranslate2_files(5, "int8", relative_buckets=8), "bfloat16")),
    "own with a shortlist": _checkpoint(own(sound.ctranslate2_files(6), "int8", SHORTLIST)),
    "own encoder": _checkpoint(own(sound.sentence_transformer_files(), "int8"), Encoder),
    "shortlist": Subject({"lex.s2t.bin": binary_shortlist(3, LISTS)}, _shortlist, _choose),
    "shortlist, text": Subject({"lex.txt": LEXICON.encode()}, _shortlist, _choose),
    "shortlist, gzipped": Subject({"lex.gz": gzip.compress(LEXICON.encode(), mtime=0)}, _shortlist, _choose),
    "marian npz": _checkpoint(sound.marian_files("model.npz", tied_embeddings_all=False)),
    "marian npz, deflated": _checkpoint(sound.marian_files("model.npz", method=8, transformer_postprocess_emb="nd")),
    "marian bin": _checkpoint(sound.marian_files("m.marian.bin", transformer_decoder_autoreg="average-attention")),
    "marian bin, int8": _checkpoint(
        sound.marian_files("m.marian.bin", marian_writer.BROWSERMT, transformer_decoder_autoreg="rnn", dec_cell="ssru")
    ),
    "e2k": _checkpoint(E2K),
    "own e2k": _checkpoint(own(E2K, "int8")),
    "thai2rom": _checkpoint(recurrent_writer.thai2rom_files(recurrent_writer.thai2rom())),
    "tutorial": _checkpoint(TUTORIAL()),
    "tutorial apart": _checkpoint(TUTORIAL(apart=True)),
    "pointer": _checkpoint(recurrent_writer.pointer_files(recurrent_writer.pointer()), PointerNetwork),
    "fairseq": _checkpoint(sound.folder_files(GOLDENS / "trainers" / "fairseq_shared")),
    "opennmt-py's transformer": _checkpoint(sound.folder_files(GOLDENS / "trainers" / "opennmt_gated")),
    "opennmt-py": _checkpoint(recurrent_writer.opennmt_files("LSTM", "general", True, True)),
    "language model": _checkpoint(sound.architecture_files(GEMMA2[0]) | LANGUAGE_MODEL, Generator),
    "gguf": _checkpoint({"model.gguf": gguf_models.file("llama 3")}, Generator),
    "gguf of blocks": _checkpoint(BLOCKS, Generator),
    "own language model of blocks": _checkpoint(own(BLOCKS, "int4"), Generator),
    "pulled zip": Subject(sound.archive_files("pulled.zip"), _unpack, lambda nothing: None),
    "pulled tar": Subject(sound.archive_files("pulled.tar.gz"), _unpack, lambda nothing: None),
} | {
    case.name: _checkpoint(sound.architecture_files(case), Encoder)
    for case in {case.model_type: case for case in GOLDEN_CASES if case.task == "encoder"}.values()
} | {
    f"spm {kind}": Subject(
        {"spm.model": (GOLDENS / f"text_{kind}.model").read_bytes()},
        lambda path: SentencePiece((path / "spm.model").read_bytes()),
        _segment,
    )
    for kind in ("unigram_symbols", "bpe_bytes", "characters", "words", "unigram_suffix")
}  # fmt: skip
