"""What an actor makes of texts with its options, and how Ray is asked for such actors; Ray itself takes no part."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="jobs over files need the extra fastattn[ray]")

from fastattn import Encoder, Translator
from fastattn.distributed import block_worker, datasets, driver
from fastattn.distributed.block_worker import FIRST_FAULTS, BlockEncoder, BlockTranslator, _record, make_model
from fastattn.distributed.cluster import ActorPool, ClusterOptions, Host, pool_of
from fastattn.distributed.formats.blocks import CorpusBlock, StringRows
from fastattn.distributed.model_source import ModelSource
from fastattn.errors import FastattnError
from tests.distributed.jobs import some_job
from tests.messages import refused

SHORT = {"beam_size": 2, "max_decoding_length": 9}
TEXTS = ["w1 w2", None, "w3", "", "w4 w5 w6"]
GIVEN = [text for text in TEXTS if text is not None]


def test_translations_stand_where_their_texts_do(translator):
    several = {"num_hypotheses": 2, "return_scores": True}
    for options, names in (
        ({}, ("t",)),
        ({"return_scores": True}, ("t", "score")),
        ({"num_hypotheses": 2}, ("t", "hypotheses")),
        (several, ("t", "hypotheses", "scores")),
    ):
        model = BlockTranslator(translator, "float32", 1, "t", SHORT | options)
        found = model.answer(TEXTS)
        asked = {"return_scores": False, **SHORT, **options}
        expected = Translator(translator, "float32", 1).translate(GIVEN, details=True, **asked)
        columns = {
            "t": [one.text for one in expected],
            "hypotheses": [list(one.hypotheses) for one in expected],
            "scores": [np.float32(one.scores).tolist() for one in expected],
            "score": [float(np.float32(one.scores[0])) for one in expected] if "return_scores" in options else [],
        }
        assert model.outputs == names and model.options == SHORT | options
        assert {name: column.drop_null().to_pylist() for name, column in found.columns.items()} == {
            name: columns[name] for name in names
        }
        for column in found.columns.values():
            assert column.is_null().to_pylist() == [text is None for text in TEXTS]
        assert found.tokens == sum(len(part.tokens) for one in expected for part in one.parts) > 0
        assert (found.faults, found.cut) == ({}, 0)


LONG = "the cat sat on the mat " * 20  # of 122 tokens, where the model takes 64


def test_vectors_stand_where_their_texts_do(encoder):
    texts, given = ["the cat", None, LONG, "a dog"], ["the cat", LONG, "a dog"]
    real = Encoder(encoder, "float32", 1)
    for options, cut, faulty in (
        ({"truncate_dim": 5}, 1, []),
        ({"long": "mean"}, 0, []),
        ({"long": "error", "output_dtype": "ubinary", "prompt_name": "query"}, 0, [2]),
    ):
        model = BlockEncoder(encoder, "float32", 1, "v", options)
        found = model.answer(texts)
        (column,) = found.columns.values()
        fit = [text for text in given if not (faulty and text is LONG)]
        expected = real.encode(fit, **options)
        assert (model.outputs, model.options, column.type.list_size) == (("v",), options, expected.shape[1])
        assert column.drop_null().to_pylist() == expected.tolist()
        assert [n for n, null in enumerate(column.is_null().to_pylist()) if null] == [1, *faulty]
        assert (found.cut, sorted(found.faults)) == (cut, faulty)
        assert found.tokens == real.count_tokens(fit).sum()
        assert all("124 tokens, the model takes 64" in why for why in found.faults.values())
    assert model.answer([None]).columns["v"].to_pylist() == [None]


def test_a_models_own_options_arrive(translator, encoder, monkeypatch):
    """And the rest of the process has no more threads."""
    made = []
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setattr(block_worker, "local_path", lambda source: Path(source.path))
    monkeypatch.setattr(block_worker, "check_device", lambda device: None)
    for kind, real, path in (("translate", Translator, translator), ("encode", Encoder, encoder)):
        init = real.__init__

        def noting(self, *given, init=init, **named):
            made.append((*given, *named.values()))
            init(self, *given[:-1], "cpu")

        monkeypatch.setattr(real, "__init__", noting)
        source = ModelSource("name", str(path), "digest", "path", is_folder=True)
        model = make_model(kind, source, "int8", 3, "out", {"device": "auto"})
        assert made.pop() == (path, "int8", 3, 1, "auto") and model.precision == "int8"
        assert block_worker.os.environ["RAYON_NUM_THREADS"] == "3"


def test_a_record_says_what_came_of_a_block():
    texts = ["a", None, None, "b", "c"]
    rows = StringRows(texts, {2: "here: a NUL byte"}, [0, 2, 4, 6, 8], "digest", {"text": texts})
    answers = block_worker.Answers({}, {4: "too long"}, 17, 3)
    found = _record(CorpusBlock(5, "in/a.txt", "text", 0, 10, 9), rows, answers)
    assert found == {
        "block": 5, "url": "in/a.txt", "start": 0, "stop": 10, "rows": 5, "null": 1, "cut": 3, "faults": 2,
        "fault_at": 4, "first_faults": ["here: a NUL byte", "in/a.txt, byte 8: too long"], "tokens": 17,
        "input": "digest", "size": 9,
    }  # fmt: skip
    many, faulty = StringRows(["a"] * 12, {}, range(12), "", {}), dict.fromkeys(range(12), "no")
    found = _record(CorpusBlock(0, "a", "parquet", 0, 12, 1), many, block_worker.Answers({}, faulty, 0))
    assert (found["faults"], found["null"], len(found["first_faults"])) == (12, 0, FIRST_FAULTS)
    assert found["first_faults"][1] == "a, row 1: no"


class Data:
    """Stands for ray.data: what its datasets are asked for."""

    class DataContext:
        autoscaling_config = None

        @classmethod
        def get_current(cls):
            return cls

    def __init__(self):
        self.asked = {}

    def ActorPoolStrategy(self, **how):
        return how

    def from_items(self, items, override_num_blocks):
        self.asked |= {"items": items, "blocks": override_num_blocks}
        return self

    def map_batches(self, kind, **how):
        self.asked |= {"kind": kind, **how}
        return self

    def iter_rows(self):
        return iter([{"outcome": '{"outcome": "finished"}'}])

    def columns(self, fetch_if_missing):
        return ["id", "body"]


@pytest.mark.parametrize("alone", [False, True])
def test_a_pass_asks_ray_for_the_actors_of_the_pool(alone, monkeypatch):
    data = Data()
    ray = SimpleNamespace(data=data, exceptions=SimpleNamespace(RayError=FastattnError))
    monkeypatch.setattr(driver, "import_ray", lambda: ray)
    monkeypatch.setattr(driver, "_pass_settings", lambda context: monkeypatch.context())
    blocks = [CorpusBlock(number, "in/a.txt", "text", 0, 1, 1) for number in range(5)]
    pool = ActorPool(actors=3, cores=2, cards=1)
    assert list(driver._run_pass(some_job(), blocks, "out", "source", pool, alone)) == [{"outcome": "finished"}]
    asked, at_once = data.asked, 1 if alone else block_worker.BLOCKS_AT_ONCE
    assert [json.loads(item["block"]) for item in asked["items"]] == [vars(block) for block in blocks]
    assert (asked["blocks"], asked["batch_size"], asked["kind"]) == (5, 1, block_worker.BlockWorker)
    assert asked["fn_constructor_args"] == (some_job().without_files().as_json(), "out", "source", 2)
    assert (asked["num_cpus"], asked["num_gpus"], asked["max_restarts"], asked["max_task_retries"]) == (2, 1, -1, 0)
    strategy = asked["compute"]
    assert (strategy["min_size"], strategy["max_size"], strategy["initial_size"]) == (1, 3, 3)
    assert {strategy[f"max_{what}_per_actor"] for what in ("tasks_in_flight", "concurrent_calls")} == {at_once}


def test_the_options_of_a_dataset_arrive(translator, encoder, monkeypatch):
    data = Data()
    theirs = SimpleNamespace(Dataset=Data, ActorPoolStrategy=data.ActorPoolStrategy)
    monkeypatch.setattr(datasets, "import_ray", lambda: SimpleNamespace(data=theirs))
    monkeypatch.setattr(datasets, "ray_hosts", lambda: [Host("a", 8)])
    for call, kind, model, options in (
        (datasets.translate_dataset, "translate", translator, SHORT),
        (datasets.encode_dataset, "encode", encoder, {"truncate_dim": 5}),
    ):
        call(data, str(model), "body", output_column="x", precision="int8", cores=2, actors=3, reach="path",
             batch_rows=77, **options)  # fmt: skip
        of_actor = data.asked["fn_constructor_args"]
        assert (*of_actor[:2], of_actor[2].reach, *of_actor[3:]) == ("body", kind, "path", "int8", 2, "x", options)
        assert (data.asked["batch_size"], data.asked["num_cpus"], data.asked["num_gpus"]) == (77, 2, None)
        assert data.asked["compute"] == {"min_size": 1, "max_size": 3, "initial_size": 3}
        call(data, str(model), "body", cores=4, reach="path")  # all cores: one actor less, for what reads
        assert data.asked["compute"]["max_size"] == 1 and data.asked["batch_size"] == datasets.DEFAULT_BATCH_ROWS


def test_a_pool_has_as_many_actors_as_have_room_and_are_asked_for():
    nodes = [Host("a", 8), Host("b", 3)]
    for cores, actors, expected in ((2, None, 5), (2, 3, 3), (2, 9, 5), (8, None, 1)):
        assert pool_of(nodes, 1, ClusterOptions(cores=cores, actors=actors)) == ActorPool(expected, cores)
    with_cards, two = [Host("a", 8, 1), Host("b", 8), Host("c", 4, 4)], ClusterOptions(cores=2)
    for hosts, device, expected in (
        (with_cards, "cpu", ActorPool(10, 2, 0)), (with_cards, "cuda", ActorPool(1 + 2, 2, 1)),
        (with_cards, "auto", ActorPool(1 + 2, 2, 1)), (with_cards[1:2], "auto", ActorPool(4, 2, 0)),
    ):  # fmt: skip
        assert pool_of(hosts, 1, two, device) == expected
    for hosts, options in ((nodes, ClusterOptions(cores=9)), ([], two), (with_cards[1:2], two)):
        with refused(FastattnError):
            pool_of(hosts, 1, options, "cuda" if len(hosts) == 1 else "cpu")
