"""Models by their names on the Hugging Face hub, from a server here, each in a process: settings are read but once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastattn.weights.download import hub
from fastattn.weights.download.hub import NeededFiles, is_hub_name, licence, needed
from tests.weights.containers.safetensors_writer import random_bert, safetensors_bytes, write_sentence_transformer
from tests.weights.download.hub_server import COMMIT, LATER, HubServer, command, fail_all, fails, files_of, run
from tests.weights.huggingface.marian_cases import CASES, write_model

MARIAN, BERT, OTHER = "Some-Lab/opus-mt-en-pt", "some-lab/all_bert.v2", "some-lab/no-weights"
CARD = b"---\nlanguage: en\nlicense: cc-by-4.0\n---\n# A card\n"
UNNEEDED = {"onnx/model.onnx": b"x", "rust_model.ot": b"x", "tf_model.h5": b"x", "1_Pooling/notes.txt": b"x"}


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    import numpy as np

    top = tmp_path_factory.mktemp("repos")
    pooling = {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True}
    modules: dict[str, dict | None] = {
        "sentence_transformers.models.Pooling": pooling,
        "sentence_transformers.models.Dense": {"in_features": 12, "out_features": 2, "bias": False},
    }
    bert = write_sentence_transformer(top / "bert", random_bert(np.random.default_rng(1)), modules)
    weight = {"linear.weight": np.ones((2, 12), np.float32)}
    (bert / "2_Dense" / "model.safetensors").write_bytes(safetensors_bytes(weight))
    marian = files_of(write_model(top / "marian", CASES["shared"]))
    more = UNNEEDED | {"README.md": CARD, "pytorch_model.bin": b"not this one"}
    return {
        MARIAN: marian | more,
        BERT: files_of(bert) | UNNEEDED,
        OTHER: {"README.md": b"# nothing", "config.json": b"{}"},
    }


@pytest.fixture
def server(repos: dict[str, dict[str, bytes]]) -> Iterator[HubServer]:
    with HubServer(repos) as running:
        yield running


NO_NAMES = ("zh-en", "a/b/c", "./b", "../b", "/b", "a/", "a/b--c", "a/b..c", "a/b.git", "a\\b", "a/b c", "~/b", "é/b")


@pytest.mark.parametrize("name", [MARIAN, BERT, *NO_NAMES, "a/" + "b" * 200])
def test_what_looks_like_a_name(name: str) -> None:
    assert is_hub_name(name) is (name in (MARIAN, BERT))


def test_only_what_is_read_is_needed() -> None:
    both = ["config.json", "model.safetensors", "pytorch_model.bin", "model.onnx", "../x.json", "a/b/config.json"]
    assert needed(both) == NeededFiles("huggingface", ["config.json"], ["model.safetensors"])
    shards = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
    index = "pytorch_model.bin.index.json"
    listed = ["config.json", index, *shards, "training_args.bin"]
    assert needed(listed) == NeededFiles("huggingface", [index, "config.json"], shards)
    assert needed(["config.json", index, shards[0]]) is None
    assert needed(shards + ["config.json"]) is None
    assert needed(["model.safetensors"]) is None
    found = needed(["modules.json", "0_Transformer/config.json", "0_Transformer/model.safetensors"])
    assert found is not None and found.weights == ["0_Transformer/model.safetensors"]
    beside = ["config.json", "shared_vocabulary.json", "vmap.txt"]
    assert needed([*beside, "model.bin"]) == NeededFiles("ctranslate2", beside, ["model.bin"])
    older = ["added_tokens.json", "merges.txt", "spiece.model", "spm.model", "special_tokens_map.json", "vocab.txt"]
    found = needed(["config.json", "model.safetensors", *older, "vocab.bpe"])
    assert found == NeededFiles("huggingface", sorted(["config.json", *older]), ["model.safetensors"])
    assert needed(["a.argosmodel", "README.md"]) == NeededFiles("argos", ["README.md"], ["a.argosmodel"])
    assert needed(["a.argosmodel", "b.argosmodel"]) is None


@pytest.mark.parametrize(
    ("files", "first"),
    [
        (["model.enpt.intgemm.bin", "config.intgemm.yml", "lex.bin", "vocab.spm"], ["config.intgemm.yml"]),
        (["opus.npz", "decoder.yml", "opus.vocab.yml", "source.spm"], ["decoder.yml"]),
        (["m.npz", "m.npz.yml", "model_info.json", "vocab.spm"], ["m.npz.yml", "model_info.json", "vocab.spm"]),
        (["weights.bin", "config.yml"], None),
        (["model.bin", "vocab.spm"], None),
        (["vectors.npz"], None),
        (["config.yaml"], None),
        (["model.optimizer.npz", "config.yml"], None),
        (["a/model.npz", "config.yml"], None),
    ],
)
def test_a_marian_model_is_known_by_its_names(files: list[str], first: list[str] | None) -> None:
    expected = None if first is None else NeededFiles("marian", first, sorted(set(files) - set(first)))
    assert needed(files) == expected


def test_what_a_card_says_of_its_licence(tmp_path: Path) -> None:
    assert licence(tmp_path) == ""
    (tmp_path / "README.md").write_bytes(CARD)
    assert licence(tmp_path) == "cc-by-4.0"
    (tmp_path / "README.md").write_text("license: mit\n")
    assert licence(tmp_path) == ""


def test_a_translator_and_an_encoder_by_name(server: HubServer, tmp_path: Path) -> None:
    code = (
        "import sys, json\nfrom fastattn.weights import read\nfrom fastattn.weights import download\n"
        "for time in range(2):\n    paths = list(map(download.resolve, sys.argv[1:]))\n"
        "    print(json.dumps([[str(path), read(path).format] for path in paths]))"
    )
    done = run(server, tmp_path, "-c", code, MARIAN, BERT)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    first, again = done.stdout.splitlines()
    (marian, kind), (bert, other) = json.loads(first)
    assert (kind, other) == ("huggingface", "sentence-transformers")
    assert Path(marian).is_relative_to(tmp_path) and Path(marian).name == COMMIT
    assert not server.downloaded & {*UNNEEDED, "pytorch_model.bin"}
    assert {"source.spm", "vocab.json", "2_Dense/config.json", "1_Pooling/config.json"} <= server.downloaded
    assert set(files_of(Path(marian))) == set(server.repos[MARIAN]) - {*UNNEEDED, "pytorch_model.bin"}
    # The second time nothing is fetched again, and without a network nothing is asked either.
    fetched = [path for method, path, _ in server.requests if method == "GET" and "/resolve/" in path]
    assert again == first and len(fetched) == len(set(fetched))
    server.requests.clear()
    assert run(server, tmp_path, "-c", code, MARIAN, BERT, FASTATTN_OFFLINE="1").stdout == done.stdout
    assert not server.requests
    assert run(None, tmp_path, "-c", code, MARIAN, BERT).stdout == done.stdout


def test_the_command_line(server: HubServer, tmp_path: Path) -> None:
    """Also where the hub is busy at first."""
    server.busy = [503, 429]
    done = command(server, tmp_path, "pull", MARIAN)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert not server.busy
    name, terms, folder = done.stdout.splitlines()
    assert (name, terms) == (MARIAN, "licence: cc-by-4.0")
    assert Path(folder.removeprefix("folder:  ")).is_dir()
    done = command(server, tmp_path, "translate", "-m", MARIAN, "the bridge", HF_HUB_OFFLINE="1")
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_a_gated_model(server: HubServer, tmp_path: Path) -> None:
    server.gated = {MARIAN: "hf_secret"}
    line = fails(command(server, tmp_path, "pull", MARIAN), 4)
    assert f"{MARIAN} is gated: accept its terms at {server.url}/{MARIAN}" in line
    assert command(server, tmp_path, "pull", MARIAN, HF_TOKEN="hf_secret").returncode == 0


def test_what_cannot_be_had(server: HubServer, tmp_path: Path) -> None:
    """Nor has half of a model in the cache, which another program fetched, a use."""
    fail_all(
        server, tmp_path,
        (["translate", "-m", "no/such", "x"], 3, f"'no/such': no such path, and no such model at {server.url}"),
        (["pull", OTHER], 3, "has no weights in a form that is known"),
        (["pull", MARIAN, "nothing"], 3, "no 'nothing' in the catalog"),
    )  # fmt: skip
    assert not server.downloaded
    code = "import sys, huggingface_hub as h; print(h.hf_hub_download(sys.argv[1], 'config.json'))"
    assert run(server, tmp_path, "-c", code, MARIAN).returncode == 0
    for variable in ("HF_HUB_OFFLINE", "FASTATTN_OFFLINE", "TRANSFORMERS_OFFLINE"):
        line = fails(command(server, tmp_path, "translate", "-m", MARIAN, "x", **{variable: "1"}), 4)
        assert line == (
            f"fastattn: {MARIAN} is no path here, the Hugging Face cache ({tmp_path / 'hub'}) does not hold the whole "
            f"of it, and {variable} forbids the network; when online, run: fastattn pull {MARIAN}"
        )
    server.status = 503
    assert f"{server.url} cannot be read: HTTP 503" in fails(command(server, tmp_path, "pull", MARIAN), 4)
    assert "http://127.0.0.1:9 cannot be read" in fails(command(None, tmp_path, "pull", MARIAN), 4)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("No\n space left"), "No"),
        (OSError("Cannot  connect. Tried this and that"), "Cannot connect"),
        (OSError(), "OSError"),
    ],
)
def test_a_reason_is_the_first_sentence_or_else_the_kind(error: Exception, reason: str) -> None:
    assert hub._reason(error) == reason


@pytest.mark.parametrize("after", ["api/models", "resolve"])
def test_a_repository_that_changes_meanwhile_is_fetched_as_it_was(
    server: HubServer, tmp_path: Path, after: str
) -> None:
    """After the first request of this kind: the one that lists the files, or the first file's."""
    earlier = dict(server.repos)
    changed = {
        name: {file: content + b" changed" for file, content in files.items()} for name, files in earlier.items()
    }

    def change(path: str) -> None:
        if after in path and server.commit == COMMIT:
            server.change(LATER, changed)

    server.answered = change
    code = "import sys\nfrom fastattn.weights import download\nprint(download.resolve(sys.argv[1]))"
    done = run(server, tmp_path, "-c", code, MARIAN)
    assert server.commit == LATER and done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert folder.name == COMMIT
    assert all(content == earlier[MARIAN][name] for name, content in files_of(folder).items())
    if after == "resolve":
        return
    # What was fetched is what serves offline, by the name alone, to huggingface_hub's other users too.
    assert run(server, tmp_path, "-c", code, MARIAN, HF_HUB_OFFLINE="1").stdout == done.stdout
    other = "import sys, huggingface_hub as h; print(h.snapshot_download(sys.argv[1], allow_patterns='*.json'))"
    assert run(server, tmp_path, "-c", other, MARIAN, HF_HUB_OFFLINE="1").stdout == done.stdout


def test_the_hub_is_asked_for_nothing_else(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom fastattn.weights import download\nfrom fastattn.weights.download import hub\n"
        "try: download.resolve('nothing')\nexcept Exception as error: print(error)\n"
        "print('huggingface_hub' in sys.modules)"
    )
    done = run(None, tmp_path, "-c", code)
    assert "neither an existing path" in done.stdout and done.stdout.endswith("False\n")
