"""Models of the Hugging Face hub, from a server here, each in a process: settings are read but once."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fastattn.weights import read
from fastattn.weights.download import hub
from fastattn.weights.download.hub import NeededFiles, is_hub_name, licence, select_files
from fastattn.weights.native.convert import write as write_native
from tests.messages import check
from tests.weights.containers.safetensors_writer import (
    random_bert,
    safetensors_bytes,
    write_bert,
    write_sentence_transformer,
)
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.ctranslate2.argos_writer import METADATA, pack
from tests.weights.download.hub_server import COMMIT, LATER, HubServer, command, fails, files_of, run
from tests.weights.huggingface.marian_cases import CASES, write_model
from tests.weights.marian import writer as marian_writer
from tests.weights.native.folders import edit

MARIAN, BERT, OTHER = "Some-Lab/opus-mt-en-pt", "some-lab/all_bert.v2", "some-lab/no-weights"
LICENSED = b"---\nlanguage: en\nlicense: cc-by-4.0\n---\n# A card\n"
OF_TOOLS = "additional_chat_templates/tool_use.jinja"
UNNEEDED = {"onnx/model.onnx": b"x", "rust_model.ot": b"x", "tf_model.h5": b"x", "1_Pooling/notes.txt": b"x"}


RNG = np.random.default_rng(1)


def bert(folder, **changes):
    return write_bert(folder, random_bert(RNG), **changes)


def shared(folder, **changes):
    return write_model(folder, CASES["shared"], **changes)


def modules(folder, **kinds):
    return write_sentence_transformer(
        folder, random_bert(RNG), {f"sentence_transformers.models.{kind}": config for kind, config in kinds.items()}
    )


@pytest.fixture(scope="module")
def repos(tmp_path_factory):
    top = tmp_path_factory.mktemp("repos")
    pooling = {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True}
    bert = modules(top / "bert", Pooling=pooling, Dense={"in_features": 12, "out_features": 2, "bias": False})
    weight = {"linear.weight": np.ones((2, 12), np.float32)}
    (bert / "2_Dense" / "model.safetensors").write_bytes(safetensors_bytes(weight))
    marian = files_of(shared(top / "marian")) | UNNEEDED
    marian |= {"README.md": LICENSED, "pytorch_model.bin": b"not this one", OF_TOOLS: b"{{ tools }}"}
    other = {"README.md": b"# nothing", "config.json": b"{}"}
    return {MARIAN: marian, BERT: files_of(bert) | UNNEEDED, OTHER: other}


@pytest.fixture
def server(repos):
    with HubServer(repos) as running:
        yield running


NO_NAMES = ("zh-en", "a/b/c", "./b", "../b", "/b", "a/", "a/b--c", "a/b..c", "a/b.git", "a\\b", "a/b c", "~/b", "é/b")


@pytest.mark.parametrize("name", [MARIAN, BERT, *NO_NAMES, "a/" + "b" * 200])
def test_what_looks_like_a_name(name):
    assert is_hub_name(name) is (name in (MARIAN, BERT))


INDEX, SHARDS = "pytorch_model.bin.index.json", [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
BESIDE = ["config.json", "shared_vocabulary.json", "vmap.txt"]
OLDER = ["added_tokens.json", "config.json", "merges.txt", "special_tokens_map.json", "spiece.model", "spm.model"]
MODULE = [f"0_Transformer/{name}" for name in ("config.json", "model.safetensors")]
NOT_READ = ["pytorch_model.bin", "model.onnx", "../x.json", "a/b/config.json"]


NEEDED = [
    ("huggingface", ["config.json"], ["model.safetensors"], NOT_READ),
    ("huggingface", [INDEX, "config.json"], SHARDS, ["training_args.bin"]),
    ("huggingface", [*OLDER, "vocab.txt"], ["model.safetensors"], ["vocab.bpe"]),
    ("huggingface", [MODULE[0], "modules.json"], MODULE[1:], []), ("ctranslate2", BESIDE, ["model.bin"], []),
    ("argos", ["README.md"], ["a.argosmodel"], []),
    ("marian", ["config.intgemm.yml"], ["lex.bin", "model.enpt.intgemm.bin", "vocab.spm"], []),
    ("marian", ["decoder.yml"], ["opus.npz", "opus.vocab.yml", "source.spm"], []),
    ("marian", ["m.npz.yml", "model_info.json", "vocab.spm"], ["m.npz"], []),
    *((None, files, [], []) for files in (["config.json", INDEX, SHARDS[0]], ["config.json", *SHARDS])),
    *((None, [file], [], []) for file in ("model.safetensors", "vectors.npz", "config.yaml")),
    (None, ["a.argosmodel", "b.argosmodel"], [], []), (None, ["model.bin", "vocab.spm"], [], []),
    *((None, ["config.yml"], [file], []) for file in ("weights.bin", "model.optimizer.npz", "a/model.npz")),
]  # fmt: skip


@pytest.mark.parametrize("kind, first, weights, more", NEEDED)
def test_only_what_is_read_is_needed(kind, first, weights, more):
    assert select_files([*more, *weights, *first]) == (kind and NeededFiles(kind, first, weights))


def test_what_a_card_says_of_its_licence(tmp_path):
    for card, said in ((None, ""), (LICENSED, "cc-by-4.0"), (b"license: mit\n", "")):
        if card:
            (tmp_path / "README.md").write_bytes(card)
        assert licence(tmp_path) == said


RESOLVE = """
import sys
from fastattn.weights import download
for name in sys.argv[1:]:
    try: print(download.resolve(name))
    except Exception as error: print(type(error).__name__, error)
print("huggingface_hub" in sys.modules, file=sys.stderr)
"""


def resolve(server, home, *names, **variables):
    """What a process finds for each name, or why it finds nothing; and that it uses the hub's library for them."""
    done = run(server, home, "-c", RESOLVE, *names, **variables)
    assert (done.returncode, done.stderr) == (0, f"{names != ('nothing',)}\n")
    return done.stdout.splitlines()


def fetched(server, home, *names):
    """Where they are, as online so offline and the second time, when no weights are fetched again."""
    found = resolve(server, home, *names, *names)
    assert server.fetched and len(server.fetched) == len(set(server.fetched))
    assert found[: len(names)] == found[len(names) :]
    server.requests, before = [], server.requests
    assert resolve(server, home, *names, *names, FASTATTN_OFFLINE="1") == found and not server.requests
    server.requests = before
    return [Path(path) for path in found[: len(names)]]


def test_a_translator_and_an_encoder_by_name(server, tmp_path):
    marian, bert = fetched(server, tmp_path, MARIAN, BERT)
    assert [read(path).format for path in (marian, bert)] == ["huggingface", "sentence-transformers"]
    assert marian.is_relative_to(tmp_path) and marian.name == COMMIT
    assert not server.downloaded & {*UNNEEDED, "pytorch_model.bin"}
    assert {"source.spm", "vocab.json", "2_Dense/config.json", "1_Pooling/config.json", OF_TOOLS} <= server.downloaded
    assert set(files_of(marian)) == set(server.repos[MARIAN]) - {*UNNEEDED, "pytorch_model.bin"}
    assert resolve(None, tmp_path, MARIAN, BERT) == [str(marian), str(bert)]


def test_the_command_line(server, tmp_path):
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


def test_a_gated_model(server, tmp_path):
    server.gated = {MARIAN: "hf_secret"}
    terms = f"{MARIAN} is gated: accept its terms at {server.url}/{MARIAN}"
    assert terms in fails(command(server, tmp_path, "pull", MARIAN), 4)
    assert command(server, tmp_path, "pull", MARIAN, HF_TOKEN="hf_secret").returncode == 0


def test_what_cannot_be_had(server, tmp_path):
    """Nor has half of a model in the cache, which another program fetched, a use."""
    for arguments, said in (
        (["translate", "-m", "no/such", "x"], f"'no/such': no such path, and no such model at {server.url}"),
        (["pull", OTHER], "has no weights in a form that is known"),
        (["pull", MARIAN, "nothing"], "no 'nothing' in the catalog"),
    ):
        assert said in fails(command(server, tmp_path, *arguments), 3)
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


def test_a_reason_is_the_first_sentence_or_else_the_kind():
    said = (["No\n space left"], ["Cannot  connect. Tried this and that"], [])
    assert [hub._reason(OSError(*one)) for one in said] == ["No", "Cannot connect", "OSError"]


@pytest.mark.parametrize("after", ["api/models", "resolve"])
def test_a_repository_that_changes_meanwhile_is_fetched_as_it_was(server, tmp_path, after):
    """After the first request of this kind: the one that lists the files, or the first file's."""
    earlier = server.repos[MARIAN]

    def change(path):
        if after in path and server.commit == COMMIT:
            server.change(LATER, {MARIAN: dict.fromkeys(earlier, b"changed")})

    server.answered = change
    (folder,) = map(Path, resolve(server, tmp_path, MARIAN))
    assert (server.commit, folder.name) == (LATER, COMMIT)
    assert all(content == earlier[name] for name, content in files_of(folder).items())
    if after == "resolve":
        return
    # What was fetched is what serves offline, by the name alone, to huggingface_hub's other users too.
    assert resolve(server, tmp_path, MARIAN, HF_HUB_OFFLINE="1") == [str(folder)]
    other = "import sys, huggingface_hub as h; print(h.snapshot_download(sys.argv[1], allow_patterns='*.json'))"
    assert run(server, tmp_path, "-c", other, MARIAN, HF_HUB_OFFLINE="1").stdout == f"{folder}\n"


def test_the_hub_is_asked_for_nothing_else(tmp_path):
    (found,) = resolve(None, tmp_path, "nothing")
    assert "neither an existing path" in found


WEIGHTS = (".safetensors", ".bin", ".npz")


def without(folder, name):
    (folder / name).unlink()
    return folder


def native(folder):
    write_native(folder, read(bert(folder.parent)), "float32")
    edit(folder, lambda config: config.update(version=10**6))
    return folder


def marian(folder, **config):
    arrays, options = marian_writer.random_model(1)
    return marian_writer.write(folder, marian_writer.files(arrays, options, "model.xy.bin", intgemm=0x4101, **config))


# A check of each exporter's and of each file that is read before the weights; the rest is theirs.
REFUSED = [
    partial(bert, model_type="xlnet"), partial(bert, hidden_act="prelu"), partial(modules, WordWeights={}), native,
    lambda folder: without(bert(folder), "tokenizer.json"), partial(marian, vocabs=["x.spm"]),
    partial(shared, quantization_config={"bits": 4}), partial(shared, eos_token_id=3),
    lambda folder: without(shared(folder), "source.spm"), lambda folder: without(shared(folder), "vocab.json"),
    partial(modules, Pooling={}, Dense={"in_features": 7, "out_features": 2}), partial(marian, ensemble=3),
]  # fmt: skip


def test_what_is_not_supported_is_refused_before_its_weights_are_fetched(tmp_path):
    """And what lies in the cache then is not taken for a model."""
    repos = {}
    for number, make in enumerate(REFUSED):
        (tmp_path / f"{number}").mkdir()
        repos[f"a/{number}"] = files_of(make(tmp_path / f"{number}"))
        assert any(name.endswith(WEIGHTS) for name in repos[f"a/{number}"])
    with HubServer(repos) as server:
        lines = resolve(server, tmp_path / "home", *repos)
        offline = resolve(server, tmp_path / "home", *repos, HF_HUB_OFFLINE="1")
    assert len(lines) == len(offline) == len(REFUSED)
    for line in lines:
        assert line.startswith("CheckpointError")
        check(line)
    assert all("does not hold the whole of it" in line for line in offline)
    assert server.downloaded and not [name for name in server.downloaded if name.endswith(WEIGHTS)]


OTHERS = {"model.other.bin": b"another", "lex.other.bin": b"another", "vocab.other.spm": b"x", "notes.pdf": b"x"}
CARD = {"README.md": b"---\nlicense: mpl-2.0\n---\n"}


def test_of_a_marian_repository_what_its_configuration_names_is_fetched(tmp_path):
    arrays, options = marian_writer.random_model(1)
    config = {"intgemm": 0x4101, "shortlist": ["lex.bin.txt", 100, 100, 0]}
    files = marian_writer.files(arrays, options, "model.enpt.bin", **config) | CARD
    files |= {"lex.bin.txt": "▁w5 ▁w1 0.9\n".encode(), "model_info.json": b'{"shortName": "en-pt-tiny"}'}
    with HubServer({"a/b": files | OTHERS}) as server:
        (folder,) = fetched(server, tmp_path, "a/b")
        assert files_of(folder) == files
        checkpoint = read(folder)
        assert checkpoint.format == "marian" and checkpoint.shortlist is not None
        for name in ("lex.bin.txt", "vocab.yml", "model.enpt.bin"):
            kept = (folder / name).rename(tmp_path / "kept")
            line = fails(command(server, tmp_path, "pull", "a/b", HF_HUB_OFFLINE="1"), 4)
            assert "does not hold the whole of it" in line
            kept.rename(folder / name)
        assert command(server, tmp_path, "pull", "a/b", HF_HUB_OFFLINE="1").returncode == 0


def test_a_marian_repository_without_a_configuration(tmp_path):
    files = marian_writer.files(*marian_writer.random_model(1))
    del files["config.yml"]
    more = {"notes.pdf": b"x", "model.optimizer.npz": b"x"}
    with HubServer({"a/b": files | more, "a/two": files | {"2.npz": b""}}) as server:
        assert files_of(*fetched(server, tmp_path, "a/b")) == files
        server.requests.clear()
        line = fails(command(server, tmp_path, "pull", "a/two"), 3)
        assert "without a config.yml there should be one model; found '2.npz', 'model.npz'" in line
        assert not [name for name in server.downloaded if name.endswith(WEIGHTS)]


def test_an_argos_package_and_a_folder_of_ctranslate2(tmp_path):
    package, plain = tmp_path / "translate-ar_en", tmp_path / "plain"
    for folder in (package / "model", plain):
        ctranslate2_writer.write_tiny(folder)
    (package / "metadata.json").write_text(METADATA)
    (package / "sentencepiece.model").write_bytes(b"pieces")
    archive = pack(package).read_bytes()
    plain_files = files_of(plain) | {"vmap.txt": b"x\n"}
    repos = {"a/argos": {"ar_en.argosmodel": archive} | CARD, "a/plain": plain_files | {"notes.pdf": b"x"}}
    with HubServer(repos) as server:
        path, folder = fetched(server, tmp_path / "home", *repos)
        assert path.name == "ar_en.argosmodel" and read(path).format == "argos"
        assert "licence: mpl-2.0" in command(server, tmp_path / "home", "pull", "a/argos").stdout
        assert files_of(folder) == plain_files
