"""What is fetched of a model of the hub, and what is refused before its weights are, from a server here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.weights import read
from fastattn.weights.native.convert import write as write_native
from tests.weights.containers.safetensors_writer import random_bert, write_bert, write_sentence_transformer
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.ctranslate2.argos_writer import METADATA, pack
from tests.weights.download.hub_server import HubServer, command, fails, files_of, run
from tests.weights.huggingface.marian_cases import CASES, write_model
from tests.weights.marian import writer as marian_writer

WEIGHTS = (".safetensors", ".bin", ".npz")


def bert(folder: Path, **changes: Any) -> Path:
    return write_bert(folder, random_bert(np.random.default_rng(1)), **changes)


def without(folder: Path, name: str) -> Path:
    (folder / name).unlink()
    return folder


def sentence_transformer(folder: Path, modules: dict[str, dict | None]) -> Path:
    return write_sentence_transformer(folder, random_bert(np.random.default_rng(1)), modules)


def xlnet(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "xlnet"}))
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    return folder


def native(folder: Path) -> Path:
    write_native(folder, read(bert(folder.parent)), "float32")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"version": 10**6}))
    return folder


def marian(folder: Path, **config: object) -> Path:
    arrays, options = marian_writer.random_model(1)
    return marian_writer.write(folder, marian_writer.files(arrays, options, "model.xy.bin", intgemm=0x4101, **config))


POOLING, DENSE = "sentence_transformers.models.Pooling", "sentence_transformers.models.Dense"


SHARED = CASES["shared"]
REFUSED: list[tuple[Callable[[Path], Path], str]] = [
    (xlnet, "config.json: model type 'xlnet' is not supported; known: "),
    (lambda folder: bert(folder, is_decoder=True), "config.json: not supported: is_decoder"),
    (lambda folder: bert(folder, hidden_act="prelu"), "config.json: hidden_act should be one of gelu, "),
    (lambda folder: without(bert(folder), "tokenizer.json"), "tokenizer.json: no such file, nor vocab.txt of a"),
    (
        lambda folder: write_model(folder, SHARED, quantization_config={"bits": 4}),
        "config.json: not supported: quantization_config",
    ),
    (lambda folder: write_model(folder, SHARED, eos_token_id=3), "eos_token_id should be 0"),
    (lambda folder: without(write_model(folder, SHARED), "source.spm"), "source.spm: no such file"),
    (lambda folder: without(write_model(folder, SHARED), "vocab.json"), "vocab.json: no such file"),
    (
        lambda folder: sentence_transformer(folder, {"sentence_transformers.models.WordWeights": {}}),
        "module 'sentence_transformers.models.WordWeights' is not supported; supported: Transformer, Pooling",
    ),
    (
        lambda folder: sentence_transformer(folder, {POOLING: {"pooling_mode": "best"}}),
        "pooling_mode should be one or more of cls, ",
    ),
    (
        lambda folder: sentence_transformer(folder, {POOLING: {}, DENSE: {"in_features": 7, "out_features": 2}}),
        "in_features should be 12, what the module before gives, is 7",
    ),
    (native, "config.json: version 1000000 of fastattn's folders is not known"),
    (lambda folder: marian(folder, models=["a.bin", "b.bin"]), "config.yml: not supported: models should be one"),
    (lambda folder: marian(folder, vocabs=["x.spm"]), "x.spm: no such file, but the configuration names it"),
    (lambda folder: marian(folder, ensemble=3), "config.yml: not supported: option ensemble is not known"),
]


def test_what_is_not_supported_is_refused_before_its_weights_are_fetched(tmp_path: Path) -> None:
    """And what lies in the cache then is not taken for a model."""
    repos = {}
    for number, (make, _) in enumerate(REFUSED):
        (tmp_path / f"{number}").mkdir()
        repos[f"a/{number}"] = files_of(make(tmp_path / f"{number}"))
        assert any(name.endswith(WEIGHTS) for name in repos[f"a/{number}"])
    code = (
        "import sys\nfrom fastattn.weights.download import resolve\nfor name in sys.argv[1:]:\n"
        "    try: print('taken', resolve(name))\n    except Exception as error: print(type(error).__name__, error)"
    )
    with HubServer(repos) as server:
        lines = run(server, tmp_path / "home", "-c", code, *repos).stdout.splitlines()
        offline = run(server, tmp_path / "home", "-c", code, *repos, HF_HUB_OFFLINE="1").stdout.splitlines()
    assert len(lines) == len(offline) == len(REFUSED)
    for line, (_, reason) in zip(lines, REFUSED):
        assert line.startswith("CheckpointError") and reason in line
    assert all("does not hold the whole of it" in line for line in offline)
    assert server.downloaded and not [name for name in server.downloaded if name.endswith(WEIGHTS)]


def fetched(server: HubServer, home: Path, name: str) -> Path:
    """Where it is, as online so offline and the second time, when no weights are fetched again."""
    code = "import sys; from fastattn.weights.download import resolve; print(*(resolve(sys.argv[1]) for _ in range(2)))"
    first = run(server, home, "-c", code, name)
    assert (first.returncode, first.stderr) == (0, "")
    fetched = [path for method, path, _ in server.requests if method == "GET" and path.startswith("stored/")]
    assert fetched and len(fetched) == len(set(fetched))
    server.requests.clear()
    assert run(server, home, "-c", code, name, HF_HUB_OFFLINE="1").stdout == first.stdout
    assert not server.requests
    once, again = first.stdout.split()
    assert once == again
    return Path(once)


OTHERS = {"model.other.bin": b"another", "lex.other.bin": b"another", "vocab.other.spm": b"x", "notes.pdf": b"x"}
CARD = {"README.md": b"---\nlicense: mpl-2.0\n---\n"}


def test_of_a_marian_repository_what_its_configuration_names_is_fetched(tmp_path: Path) -> None:
    arrays, options = marian_writer.random_model(1)
    config: dict[str, object] = {"intgemm": 0x4101, "shortlist": ["lex.bin.txt", 100, 100, 0]}
    files = marian_writer.files(arrays, options, "model.enpt.bin", **config) | CARD
    files |= {"lex.bin.txt": "▁w5 ▁w1 0.9\n".encode(), "model_info.json": b'{"shortName": "en-pt-tiny"}'}
    with HubServer({"a/b": files | OTHERS}) as server:
        folder = fetched(server, tmp_path, "a/b")
        assert files_of(folder) == files
        checkpoint = read(folder)
        assert checkpoint.format == "marian" and checkpoint.shortlist is not None
        told = command(server, tmp_path, "pull", "a/b").stdout.splitlines()
        assert told == ["a/b", "licence: mpl-2.0", f"folder:  {folder}"]
        done = command(server, tmp_path, "translate", "-m", "a/b", "--max-length", "3", "▁w1", HF_HUB_OFFLINE="1")
        assert done.returncode == 0 and done.stdout.strip(), done.stderr
        for name in ("lex.bin.txt", "vocab.yml", "model.enpt.bin"):
            kept = (folder / name).rename(tmp_path / "kept")
            line = fails(command(server, tmp_path, "pull", "a/b", HF_HUB_OFFLINE="1"), 4)
            assert "does not hold the whole of it" in line
            kept.rename(folder / name)
        assert command(server, tmp_path, "pull", "a/b", HF_HUB_OFFLINE="1").returncode == 0


def test_a_marian_repository_without_a_configuration(tmp_path: Path) -> None:
    files = marian_writer.files(*marian_writer.random_model(1))
    del files["config.yml"]
    more = {"notes.pdf": b"x", "model.optimizer.npz": b"x"}
    with HubServer({"a/b": files | more, "a/two": files | {"2.npz": b""}}) as server:
        assert files_of(fetched(server, tmp_path, "a/b")) == files
        server.requests.clear()
        line = fails(command(server, tmp_path, "pull", "a/two"), 3)
        assert "without a config.yml there should be one model; found '2.npz', 'model.npz'" in line
        assert not [name for name in server.downloaded if name.endswith(WEIGHTS)]


def test_an_argos_package_and_a_folder_of_ctranslate2(tmp_path: Path) -> None:
    package = tmp_path / "translate-ar_en"
    model = ctranslate2_writer.random_transformer(np.random.default_rng(3))
    for folder in (package / "model", tmp_path / "plain"):
        ctranslate2_writer.write_model(folder, model)
        vocabularies = [ctranslate2_writer.vocabulary(size) for size in (23, 19)]
        ctranslate2_writer.write_vocabularies(folder, *vocabularies)
        ctranslate2_writer.write_config(folder)
    (package / "metadata.json").write_text(METADATA)
    (package / "sentencepiece.model").write_bytes(b"pieces")
    archive = pack(package).read_bytes()
    plain = files_of(tmp_path / "plain") | {"vmap.txt": b"x\n"}
    with HubServer({"a/argos": {"ar_en.argosmodel": archive} | CARD, "a/plain": plain | {"notes.pdf": b"x"}}) as server:
        path = fetched(server, tmp_path / "home", "a/argos")
        assert path.name == "ar_en.argosmodel" and read(path).format == "argos"
        assert "licence: mpl-2.0" in command(server, tmp_path / "home", "pull", "a/argos").stdout
        assert files_of(fetched(server, tmp_path / "home", "a/plain")) == plain
