"""Options of ``fastattn batch`` come to the job, and --estimate asks the cluster that would run it."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="jobs over files need the extra fastattn[ray]")

from click.testing import CliRunner

from fastattn.cli import batch as command
from fastattn.cli.entry import commands
from fastattn.distributed import batch
from fastattn.distributed.batch import BatchRun, Summary, estimate
from fastattn.distributed.block_worker import BLOCK_MODELS
from fastattn.distributed.cluster import ActorPool, ClusterOptions, Host, pool_of
from fastattn.errors import FastattnError, InputError
from fastattn.ops import backend

# Of a parameter by its name: the arguments, and what the job has of them, by the name of a field or an option.
JOB = {
    "model": (["-m", "MODEL"], {"model": "MODEL", "path": Path("MODEL")}),
    "inputs": (["a.csv", "b.csv"], {"inputs": ("in.txt", "a.csv", "b.csv")}),
    "out": (["--out", "there"], {"out": "there"}),
    "column": (["--column", "body"], {"column": "body"}),
    "output": (["--output-column", "x"], {"output": "x"}),
    "form": (["--format", "jsonl"], {"form": "jsonl"}),
    "input_form": (["--input-format", "csv"], {"input_form": "csv"}),
    "size": (["--block-size", "3K"], {"size": 3072}),
    "dry_run": (["--dry-run"], {"said": "7 rows"}),
    "price": (["--dry-run", "--price", "0.5"], {"said": "at 0.5 for a core-hour"}),
    "address": (["--address", "there:1"], {"address": "there:1"}),
    "actors": (["--actors", "3"], {"actors": 3}),
    "cores": (["--cores", "2"], {"cores": 2}),
    "reach": (["--model-by", "name"], {"reach": "name"}),
    "precision": (["--precision", "bfloat16"], {"precision": "bfloat16"}),
    "device": (["--device", "cuda"], {"device": "cuda"}),
}
TRANSLATE = JOB | {
    "source": (["--from", "zh"], {"model": "zh-en"}),
    "target": (["--from", "pt", "--to", "en"], {"model": "pt-en"}),
    "num_hypotheses": (["-n", "3"], {"num_hypotheses": 3}),
    "scores": (["--scores"], {"return_scores": True}),
    "split": (["--split", "never"], {"split": "never"}),
    "beam_size": (["-b", "3"], {"beam_size": 3}),
    "patience": (["--patience", "1.5"], {"patience": 1.5}),
    "length_penalty": (["--length-penalty", "0.5"], {"length_penalty": 0.5}),
    "word_penalty": (["--word-penalty", "0.25"], {"word_penalty": 0.25}),
    "coverage_penalty": (["--coverage-penalty", "0.2"], {"coverage_penalty": 0.2}),
    "repetition_penalty": (["--repetition-penalty", "1.2"], {"repetition_penalty": 1.2}),
    "no_repeat_ngram_size": (["--no-repeat-ngram", "4"], {"no_repeat_ngram_size": 4}),
    "min_decoding_length": (["--min-length", "2"], {"min_decoding_length": 2}),
    "max_decoding_length": (["--max-length", "9"], {"max_decoding_length": 9}),
    "max_length_factor": (["--max-length-factor", "1.5"], {"max_length_factor": 1.5}),
    "timeout": (["--timeout", "7"], {"timeout": 7.0}),
    "target_prefix": (["--target-prefix", "Olá"], {"target_prefix": "Olá"}),
    "prefix_bias_beta": (["--prefix-bias", "0.7"], {"prefix_bias_beta": 0.7}),
    "return_alternatives": (["--alternatives"], {"return_alternatives": True}),
    "min_alternative_expansion_prob": (["--min-alternative-prob", "0.1"], {"min_alternative_expansion_prob": 0.1}),
    "shortlist": (["--no-shortlist"], {"shortlist": False}),
    "disable_unk": (["--disable-unk"], {"disable_unk": True}),
    "replace_unknowns": (["--replace-unknowns"], {"replace_unknowns": True}),
    "suppress_sequences": (["--suppress", "a", "--suppress", "b c"], {"suppress_sequences": ["a", "b c"]}),
    "sampling_topk": (["--sampling-topk", "5"], {"sampling_topk": 5}),
    "sampling_topp": (["--sampling-topp", "0.5"], {"sampling_topp": 0.5}),
    "sampling_minp": (["--sampling-minp", "0.1"], {"sampling_minp": 0.1}),
    "presence_penalty": (["--presence-penalty", "0.3"], {"presence_penalty": 0.3}),
    "frequency_penalty": (["--frequency-penalty", "0.2"], {"frequency_penalty": 0.2}),
    "sampling_temperature": (["--sampling-temperature", "0.8"], {"sampling_temperature": 0.8}),
    "seed": (["--seed", "11"], {"seed": 11}),
}
ENCODE = JOB | {
    "normalize": (["--no-normalize"], {"normalize_embeddings": False}),
    "pooling": (["--pooling", "cls,max"], {"pooling": ["cls", "max"]}),
    "truncate_dim": (["--truncate-dim", "3"], {"truncate_dim": 3}),
    "prompt": (["--prompt", "so: "], {"prompt": "so: "}),
    "prompt_name": (["--prompt-name", "query"], {"prompt_name": "query"}),
    "task": (["--task", "document"], {"task": "document"}),
    "long": (["--long", "error"], {"long": "error"}),
    "output_dtype": (["--output-dtype", "binary"], {"output_dtype": "binary"}),
    "calibration": (["--output-dtype", "int8", "--calibration", "CALIBRATION"], {"ranges": [[-2.0] * 48, [3.0] * 48]}),
}
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
    monkeypatch.setattr(command, "located_entry", lambda entry, progress: str(encoder))

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
    price = "--price goes with --dry-run, and is a number"
    for arguments, message in (
        (["--price", "1"], price),
        (["--dry-run", "--price", "nan"], price),
        (["--dry-run", "--price", "inf"], price),
        (["--column", "\udcff"], "Invalid value for '--column': expected UTF-8"),
        (["--output-column", "\udcff"], "Invalid value for '--output-column': expected UTF-8"),
    ):
        result = CliRunner().invoke(
            commands, ["batch", "encode", "in.txt", "--out", "out", "-m", "no-model", *arguments]
        )
        assert result.exit_code == 2
        assert result.stderr.startswith(f"fastattn: {message} (see ")


def test_the_cluster_is_the_one_of_the_job(request_for, monkeypatch, tmp_path):
    """By --address, else by RAY_ADDRESS, else there is none."""
    found = []

    @contextlib.contextmanager
    def joined(address):
        found.append(address)
        yield [Host(name, 2) for name in "abc"]

    monkeypatch.setattr("fastattn.distributed.batch.joined", joined)
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


def test_an_actor_on_a_card_has_one_of_its_own():
    nodes, two = [Host("a", 8, 1), Host("b", 8), Host("c", 4, 4)], ClusterOptions(cores=2)
    assert pool_of(nodes, 1, two) == ActorPool(10, 2, 0)
    for device in ("cuda", "auto"):
        assert pool_of(nodes, 1, two, device) == ActorPool(1 + 2, 2, 1)
    assert pool_of(nodes[1:2], 1, two, "auto") == ActorPool(4, 2, 0)
    with pytest.raises(
        FastattnError, match="^device 'cuda' cannot be used: the cluster has no node that gives out a c"
    ):
        pool_of(nodes[1:2], 1, two, "cuda")


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
    with pytest.raises(InputError, match="^expected device 'cpu' or 'cuda' or 'auto', got 'gpu'$"):
        BLOCK_MODELS[kind](path, "float32", None, "out", {"device": "gpu"})
