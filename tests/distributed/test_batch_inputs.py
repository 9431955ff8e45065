"""What a job refuses before anything is started or written, and how the options of ``fastattn batch`` come to it."""

import socket
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="jobs over files need the extra fastattn[ray]")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from fastattn.cli import batch as command
from fastattn.cli.entry import commands
from fastattn.decoding.options import DecodingOptions
from fastattn.distributed import batch, block_worker, formats
from fastattn.distributed.batch import BatchRun, Summary, estimate
from fastattn.distributed.block_worker import BLOCK_MODELS, Answers, BlockTranslator
from fastattn.distributed.cluster import ClusterOptions, Host
from fastattn.distributed.formats import read_block
from fastattn.distributed.output_folder import OutputFolder
from fastattn.distributed.storage import InputFile
from fastattn.errors import CheckpointError, FastattnError, InputError
from fastattn.ops import backend
from fastattn.spec.text_spec import DecodingSettings
from tests.distributed.jobs import TEXTS
from tests.messages import check, refused


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def parquet(column, type=None):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": pa.array(column, type)}), sink)
    return sink.getvalue().to_pybytes()


GOOD = parquet(["w1 w2"] * 100)


def test_inputs_that_are_refused(request_for, tmp_path_factory):
    for name, data in (
        ("a.parquet", parquet([1, 2])), ("a.jsonl", b'{"body": "w1"}\n'), ("a.csv", b"x" * 5000 + b"\nw1\n"),
        ("b.csv", b"text,translation\nw1,w2\n"),
    ):  # fmt: skip
        folder = tmp_path_factory.mktemp("case")
        path = folder / name
        path.write_bytes(data)
        with refused(InputError):
            BatchRun(request_for(path))
        assert sorted(file.name for file in folder.iterdir()) == [name]  # nothing was written
    path.write_bytes(b"text\n")
    assert BatchRun(request_for(path)).blocks == []


def test_columns_without_a_name_of_their_own_are_refused(request_for, texts):
    scored = {"output": "score", "options": {"return_scores": True}}
    for changed in ({"output": "text"}, {"output": ""}, scored, {"column": "body"}):
        with refused(InputError):
            BatchRun(request_for(texts, **changed))


def test_columns_of_json_lines_and_what_they_become(request_for, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "w1", "json": "w2", "translation": "w3"}\n')
    assert len(BatchRun(request_for(path)).blocks) == 1
    for changed in ({"form": "jsonl"}, {"output": "json"}, {"column": "json"}):
        with refused(InputError):
            BatchRun(request_for(path, **changed))
    assert len(BatchRun(request_for(path, column="json", form="jsonl", output="x")).blocks) == 1


def test_blocks_beyond_all_measure_are_refused(request_for, texts, monkeypatch):
    monkeypatch.setattr(formats, "_MOST_BLOCKS", 10)
    with refused(InputError):
        BatchRun(request_for(texts, size=1))
    assert len(BatchRun(request_for(texts, size=1 << 40)).blocks) == 1
    files = [InputFile(f"nowhere/{n}.jsonl", n, 0, "jsonl") for n in range(12)]
    with refused(InputError):  # before any is read
        formats.cut(files, "text", 1 << 20)


OUTPUTS_WITHIN = """
in in/out  in in  in in/deep/er/out  in/ in/out/  in link/out  link in/out  in file:in/out  file:in in/out
in/** in/out  in/*/*.parquet in/out  i?/**/* in/out
""".split()
OUTPUTS_BESIDE = "in out  in in2  in in/_out  in/sub/*.parquet in/out  in/**.txt in/out".split()


@pytest.mark.parametrize("within", [True, False])
def test_an_output_that_would_be_input_is_refused(within, request_for, tmp_path_factory):
    places = OUTPUTS_WITHIN if within else OUTPUTS_BESIDE
    for names in zip(places[::2], places[1::2]):
        root = tmp_path_factory.mktemp("case")
        (root / "in/sub").mkdir(parents=True)
        (root / "in/sub/a.parquet").write_bytes(GOOD)
        (root / "link").symlink_to(root / "in")
        if "txt" in names[0]:
            (root / "in/a.txt").write_text("w1\n")
        given, out = (f"file://{root}/{name[5:]}" if name[:5] == "file:" else f"{root}/{name}" for name in names)
        with refused(InputError, given, out.rstrip("/")) if within else nullcontext():
            assert len(BatchRun(request_for(given, out=out)).blocks) == 1


def test_models_that_are_refused(request_for, texts, encoder, translator, tmp_path):
    cut = tmp_path / "cut"
    cut.mkdir()
    for file in translator.iterdir():
        (cut / file.name).write_bytes(file.read_bytes()[: 1 << 12])
    for path in (encoder, tmp_path / "gone", cut):
        with refused(CheckpointError):
            BatchRun(request_for(texts, path=path))


def test_a_damaged_first_block_is_no_reason_to_refuse_the_others(request_for, tmp_path):
    path = tmp_path / "a.parquet"
    in_pages = {"use_dictionary": False, "compression": "none", "write_batch_size": 50, "data_page_size": 100}
    pq.write_table(pa.table({"text": TEXTS * 50}), path, **in_pages, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (block,) = BatchRun(request_for(path)).blocks
    with pytest.raises(FastattnError, match="^cannot read .*a.parquet: .*$"):
        read_block(block, "text")


def test_names_are_taken_as_they_are(request_for, tmp_path):
    for name in ("a b.txt", "%41 %.txt", "[x]*?.txt", "'\"`$(x).txt", "é 你好\u202e.txt", "-x.txt"):
        path = tmp_path / name
        path.write_text("w1\nw2\n")
        (block,) = BatchRun(request_for(path)).blocks
        assert (block.url, read_block(block, "text").texts) == (str(path), ["w1", "w2"])


def test_another_job_is_refused_with_what_differs(request_for, texts, encoder, tmp_path):
    pytest.importorskip("ray", reason="jobs run on fastattn[ray]")
    folder = OutputFolder(str(tmp_path / "out"), "parquet")
    with folder.hold():
        folder.begin(BatchRun(request_for(texts)).job)
    more = tmp_path / "more.txt"
    more.write_text("w1\n")
    for inputs, changed in (
        ([texts], {"options": {"beam_size": 2, "max_decoding_length": 9}}), ([texts], {"precision": "int8"}),
        ([texts], {"output": "x"}), ([texts], {"form": "jsonl"}), ([texts], {"size": 1000}), ([texts, more], {}),
        ([more], {}),
    ):  # fmt: skip
        with refused(InputError, "out holds another job: "):
            BatchRun(request_for(*inputs, **changed)).run(ClusterOptions())
    with pytest.raises(InputError, match="kind: encode, was translate; model: "):
        BatchRun(request_for(texts, kind="encode", path=encoder, options={})).run(ClusterOptions())


def test_an_option_that_says_what_is_the_default_of_every_model_makes_no_other_job(request_for, texts, encoder):
    said = {"num_hypotheses": 1, "patience": 1.0, "coverage_penalty": 0, "target_prefix": None}
    said |= dict.fromkeys(["replace_unknowns", "return_scores"], False)
    (plain, more) = (BatchRun(request_for(texts, options=options)).job for options in ({}, said))
    assert plain.options == more.options == {"precision": "float32"}
    asked = {"kind": "encode", "path": encoder, "output": "v"}
    said = {"long": "truncate", "output_dtype": "float32", "pooling": None}
    assert BatchRun(request_for(texts, **asked, options=said)).job.options == {"precision": "float32"}


def test_the_defaults_of_every_model_are_the_translator_s_and_no_setting_of_a_checkpoint():
    settings = {*DecodingSettings.__dataclass_fields__, "disable_unk", "shortlist"}
    assert not settings & BlockTranslator.DEFAULTS.keys()
    given = vars(DecodingOptions()) | {"target_prefix": None, "split": None, "return_scores": False, "device": "cpu"}
    given |= {"source_lang": None, "target_lang": None}
    assert {name: given[name] for name in BlockTranslator.DEFAULTS} == BlockTranslator.DEFAULTS


def test_an_option_whose_default_a_checkpoint_may_set_is_one_of_the_job(request_for, texts):
    for name, value in (("beam_size", 2), ("disable_unk", False), ("suppress_sequences", [])):
        assert BatchRun(request_for(texts, options={name: value})).job.options == {name: value, "precision": "float32"}


@pytest.mark.parametrize("kind, said", [("translate", []), ("encode", ["--long", "truncate", "--normalize"])])
def test_a_command_keeps_what_was_said_alone(kind, said, translator, encoder, texts, tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(BatchRun, "run", lambda self, where, told: jobs.append(self.job) or Summary())
    model = {"translate": translator, "encode": encoder}[kind]
    arguments = ["batch", kind, texts, "--out", tmp_path / "out", "-m", model, *said]
    result = CliRunner().invoke(commands, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    kept = {"normalize_embeddings": True} if said else {}
    assert jobs[0].options == kept | {"precision": "float32"}


@pytest.mark.parametrize("count, rows, were", [(1, "1 row in 1 block is", "was"), (2, "2 rows in 1 block are", "were")])
def test_one_is_told_as_one(count, rows, were, texts, tmp_path, monkeypatch, translator):
    summary = Summary(rows=count, blocks=1, cut=count, earlier_rows=count)
    monkeypatch.setattr(BatchRun, "run", lambda self, where, told: summary)
    arguments = ["batch", "translate", str(texts), "--out", str(tmp_path / "out"), "-m", str(translator)]
    result = CliRunner().invoke(commands, arguments)
    assert result.stderr.replace(str(tmp_path / "out"), "OUT").startswith(
        f"fastattn: {rows} in OUT; {count} {were} longer than the model takes, and cut"
    )


FAULTY = {
    "a.txt": (b"w1\n\nw\xff\nw2\n", 3),
    "a.jsonl": (b'\n{"text": "w1"}\n[]\n[]\n', 3),
    "a.csv": (b'text\n"w1\nw2"\n"w3\n', 4),
    "a.parquet": (parquet(["w1", "w\0", "w2"]), None),
}


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_the_first_fault_is_that_of_the_input_with_its_line(name, size, request_for, tmp_path, monkeypatch):
    data, line = FAULTY[name]
    path = tmp_path / name
    path.write_bytes(data)
    job, summary = BatchRun(request_for(path, size=size)), Summary()
    assert job.first_fault(summary) == ""
    found = [(block, read_block(block, "text")) for block in job.blocks]
    for block, rows in reversed(found):  # actors may finish the last first
        summary.add(block_worker._record(block, rows, Answers({}, {}, 0)))
    first = next(why for _, rows in found for _, why in sorted(rows.faults.items()))
    assert first.startswith(f"{path}, ")
    assert job.first_fault(summary) == (f"line {line} of {first}" if line else first)
    monkeypatch.setattr("fastattn.distributed.formats.blocks._MOST_COUNTED_BYTES", -1)
    assert job.first_fault(summary) == first
    path.unlink()
    assert job.first_fault(summary) == first


@pytest.fixture
def answering():
    """A function that begins a service, which says the same to everybody: its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(words):
            def serve():
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(words)

            threading.Thread(target=serve, daemon=True).start()
            return server.getsockname()[1]

        yield answer


def test_an_address_without_a_cluster_is_refused_at_once(answering):
    pytest.importorskip("ray", reason="clusters are of fastattn[ray]")
    from fastattn.distributed.cluster import cluster_hosts

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address, message in (
        (f"127.0.0.1:{port}", "refused"),
        (f"127.0.0.1:{answering(b'HTTP/1.1 400 Bad Request')}", "what answers there is no cluster of Ray's"),
        ("127.0.0.1:-4", "expected HOST:PORT, got the port '-4'"),
        ("nonsense", "Invalid address format"),
    ):
        with pytest.raises(FastattnError, match=f"^no Ray cluster at {address}: .*{message}"), cluster_hosts(address):
            pytest.fail("there was a cluster")


# Of a parameter by its name: the arguments, and what the job has of them, by the name of a field or an option.
def named(**values):
    """Options that arrive under their own names."""
    return {name: ([f"--{name.replace('_', '-')}", str(value)], {name: value}) for name, value in values.items()}


JOB = named(out="there", column="body", address="there:1", actors=3, cores=2, precision="bfloat16", device="cuda") | {
    "model": (["-m", "MODEL"], {"model": "MODEL", "path": Path("MODEL")}),
    "inputs": (["a.csv", "b.csv"], {"inputs": ("in.txt", "a.csv", "b.csv")}),
    "output": (["--output-column", "x"], {"output": "x"}),
    "form": (["--format", "jsonl"], {"form": "jsonl"}),
    "input_form": (["--input-format", "csv"], {"input_form": "csv"}),
    "size": (["--block-size", "3K"], {"size": 3072}),
    "dry_run": (["--dry-run"], {"said": "7 rows"}),
    "price": (["--dry-run", "--price", "0.5"], {"said": "at 0.5 for a core-hour"}),
    "reach": (["--model-by", "name"], {"reach": "name"}),
}
TRANSLATE = JOB | named(beam_size=3, patience=1.5, length_penalty=0.5, word_penalty=0.25, coverage_penalty=0.2)
TRANSLATE |= named(repetition_penalty=1.2, max_length_factor=1.5, timeout=7.0, sampling_topk=5, sampling_topp=0.5)
TRANSLATE |= named(sampling_minp=0.1, presence_penalty=0.3, frequency_penalty=0.2, sampling_temperature=0.8, seed=11)
TRANSLATE |= named(split="never", target_prefix="Olá") | {
    "source": (["--from", "zh"], {"model": "zh-en"}),
    "target": (["--from", "pt", "--to", "en"], {"model": "pt-en"}),
    "num_hypotheses": (["-n", "3"], {"num_hypotheses": 3}),
    "scores": (["--scores"], {"return_scores": True}),
    "no_repeat_ngram_size": (["--no-repeat-ngram", "4"], {"no_repeat_ngram_size": 4}),
    "min_decoding_length": (["--min-length", "2"], {"min_decoding_length": 2}),
    "max_decoding_length": (["--max-length", "9"], {"max_decoding_length": 9}),
    "prefix_bias_beta": (["--prefix-bias", "0.7"], {"prefix_bias_beta": 0.7}),
    "return_alternatives": (["--alternatives"], {"return_alternatives": True}),
    "min_alternative_expansion_prob": (["--min-alternative-prob", "0.1"], {"min_alternative_expansion_prob": 0.1}),
    "shortlist": (["--no-shortlist"], {"shortlist": False}),
    "disable_unk": (["--disable-unk"], {"disable_unk": True}),
    "replace_unknowns": (["--replace-unknowns"], {"replace_unknowns": True}),
    "suppress_sequences": (["--suppress", "a", "--suppress", "b c"], {"suppress_sequences": ["a", "b c"]}),
}
ENCODE = (
    JOB
    | named(truncate_dim=3, prompt="so: ", prompt_name="query", task="document", long="error")
    | {
        "normalize": (["--no-normalize"], {"normalize_embeddings": False}),
        "pooling": (["--pooling", "cls,max"], {"pooling": ["cls", "max"]}),
        "output_dtype": (["--output-dtype", "binary"], {"output_dtype": "binary"}),
        "calibration": (
            ["--output-dtype", "int8", "--calibration", "CALIBRATION"],
            {"ranges": [[-2.0] * 48, [3.0] * 48]},
        ),
    }
)
CASES = {"translate": TRANSLATE, "encode": ENCODE}


@pytest.fixture
def asked(monkeypatch, encoder, tmp_path):
    """A function that gives a command arguments: all that its job was asked for."""
    seen = {}

    class Asked:
        def __init__(self, request):
            self.request, self.blocks = request, []
            seen.update(vars(request) | request.options)

        def run(self, where, told):
            seen.update(vars(where))
            return Summary()

    def estimated(made, where):
        seen.update(vars(where))
        return batch.Estimate(blocks=1, rows=7, rate=5.0, actors=1, cores=1, seconds=1.0)

    calibration = tmp_path / "some.npy"
    np.save(calibration, np.array([[-2.0] * 48, [3.0] * 48], np.float32))
    monkeypatch.setattr(batch, "BatchRun", Asked)
    monkeypatch.setattr(batch, "estimate", estimated)
    monkeypatch.setattr(command, "find_entry", lambda entry, progress: str(encoder))

    def ask(kind, arguments):
        seen.clear()
        given = {"MODEL": encoder, "CALIBRATION": calibration}
        arguments = [str(given.get(argument, argument)) for argument in arguments]
        if "-m" not in arguments and kind == "encode":
            arguments += ["-m", str(encoder)]
        result = CliRunner().invoke(commands, ["batch", kind, "in.txt", "--out", "out", *arguments])
        assert result.exit_code == 0, result.output
        return seen | {"said": result.stdout}

    return ask


@pytest.mark.parametrize("kind", CASES)
def test_each_option_comes_to_the_job(kind, asked, encoder):
    assert {parameter.name for parameter in command.batch.commands[kind].params} == set(CASES[kind])
    plain = asked(kind, [])
    for name, (arguments, expected) in CASES[kind].items():
        found = asked(kind, arguments)
        for field, value in expected.items():
            if field in ("model", "path"):
                value = {"MODEL": str(encoder), Path("MODEL"): encoder}.get(value, value)
            if field == "said":
                assert value in found["said"] and value not in plain["said"], name
                continue
            assert found[field] == value, name
            assert field in ("model", "path") or value != plain.get(field), f"{name}, also without"
            assert type(found[field]) is type(value) or isinstance(value, Path), name
    assert plain["options"] == {}
    assert (plain["precision"], plain["form"], plain["column"], plain["size"]) == ("auto", "parquet", "text", None)
    assert [plain[name] for name in ("address", "actors", "cores", "reach")] == [None] * 4


def test_options_that_make_no_sense_are_refused():
    begin = ["batch", "encode", "in.txt", "--out", "out", "-m", "no-model"]
    for arguments in (
        ["--price", "1"], ["--dry-run", "--price", "nan"], ["--dry-run", "--price", "inf"], ["--column", "\udcff"],
        ["--output-column", "\udcff"],
    ):  # fmt: skip
        result = CliRunner().invoke(commands, begin + arguments)
        assert result.exit_code == 2
        check(result.stderr)


def test_the_cluster_is_the_one_of_the_job(request_for, monkeypatch, tmp_path):
    """By --address, else by RAY_ADDRESS, else there is none."""
    found = []

    @contextmanager
    def cluster_hosts(address):
        found.append(address)
        yield [Host(name, 2) for name in "abc"]

    monkeypatch.setattr("fastattn.distributed.batch.cluster_hosts", cluster_hosts)
    monkeypatch.setattr("fastattn.distributed.batch.default_threads", lambda: 1)
    (tmp_path / "a.txt").write_text("w1 w2\n" * 40)
    batch = BatchRun(request_for(tmp_path / "a.txt", size=24))
    for given, variable, asked in (
        (None, None, []),
        (None, "", []),
        (None, "there:1", [None]),
        ("here:2", "there:1", ["here:2"]),
    ):
        found.clear()
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        if variable is not None:
            monkeypatch.setenv("RAY_ADDRESS", variable)
        told = estimate(batch, ClusterOptions(address=given, cores=1))
        assert (found, told.actors) == (asked, 6 if asked else 1)
        assert (told.blocks, told.rows, told.cores) == (10, 40, 1) and told.rate > 0


@pytest.mark.parametrize("kind", CASES)
def test_the_device_is_an_actors_alone(kind, translator, encoder, monkeypatch):
    """What checks the options has the CPU, and a job on the CPU is the same as one before there were devices."""
    asked, path = [], {"translate": translator, "encode": encoder}[kind]
    load = "fastattn.loading.loaded_model.backend"
    monkeypatch.setattr(load, lambda device: (asked.append(device), backend("cpu"))[1])
    for threads, expected in ((None, "cpu"), (1, "auto")):
        made = BLOCK_MODELS[kind](path, "float32", threads, "out", {"device": "auto"})
        assert (asked.pop(), made.options) == (expected, {"device": "auto"})
        assert len(made.answer(["w1"]).columns["out"]) == 1
    assert BLOCK_MODELS[kind](path, "float32", None, "out", {"device": "cpu"}).options == {}
    with refused(InputError):
        BLOCK_MODELS[kind](path, "float32", None, "out", {"device": "gpu"})
