"""Little models beside transformers and sentence-transformers, where these are installed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from fastattn.layers import blocks
from tests.architectures import oracle
from tests.architectures.cases import CASES as ENCODERS
from tests.cli.commands import fail, run, succeed
from tests.verification.encoder_folders import TEXTS, write_bert
from tests.weights.containers.safetensors_writer import write_json
from tests.weights.huggingface.marian_cases import CASES, write_model

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("torch")
pytest.importorskip("transformers")


def verified(*arguments: Any) -> dict[str, dict[str, Any]]:
    """The comparisons by name; all are within the bound."""
    report = json.loads(succeed("verify", *arguments, "--json"))
    return {line["name"]: line for line in report["comparisons"]}


def test_bert(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    found = verified(folder, *TEXTS)
    assert list(found) == ["tokens", "embedding", "block 1", "block 2", "output", "vector"]
    assert found["tokens"]["remark"] == "the same: 7, 3, 40 ids"
    assert all(0 < found[name]["relative"] < 1e-5 for name in ("block 1", "block 2", "output", "vector"))
    assert verified(folder, *TEXTS, "--precision", "int8")["vector"]["relative"] > 1e-3
    assert "there          transformers " in succeed("verify", folder)


@pytest.mark.parametrize("name", ["albert-3", "t5-0", "modernbert-1"])
def test_other_encoders(tmp_path: Path, name: str) -> None:
    """Several blocks of a layer, half of a model of two, a norm after the blocks."""
    (case,) = (case for case in ENCODERS if case.name == name)
    oracle.make(case, tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    found = verified(tmp_path, *TEXTS[:2])
    assert all(found[line]["relative"] < 1e-5 for line in ("embedding", "output", "vector"))
    hidden = [line for line, comparison in found.items() if comparison["remark"].startswith("not compared")]
    assert hidden == {"albert-3": [], "t5-0": ["block 3"], "modernbert-1": ["block 1"]}[name]


def test_positions_that_padding_in_a_text_does_not_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version had it, whose built-in texts did not show it."""
    (case,) = (case for case in ENCODERS if case.name == "roberta-0")
    oracle.make(case, tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"})
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["<pad>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert verified(tmp_path)["vector"]["relative"] < 1e-5
    monkeypatch.setattr(blocks, "rows_without_padding", lambda ids_N, positions_N, padding: positions_N + 1)
    result = run("verify", tmp_path, "--json")
    assert next(line["name"] for line in json.loads(result.stdout)["comparisons"] if not line["within"]) == "embedding"


def test_sentence_transformers(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    folder = write_bert(tmp_path / "bert")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{path[2:] or 'Transformer'}"}
        for i, path in enumerate(("", "1_Pooling", "2_Normalize"))
    ]
    (folder / "2_Normalize").mkdir()
    pooling = {"word_embedding_dimension": 36, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    prompts = {"prompts": {"query": "w40 w41 "}, "default_prompt_name": "query"}
    for file, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", pooling),
        ("sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": False}),
        ("config_sentence_transformers.json", prompts),
    ):
        write_json(folder / file, content)
    found = verified(folder, *TEXTS)
    assert found["tokens"]["remark"] == "the same: 9, 5, 20 ids"
    assert found["vector"]["relative"] < 1e-5


def test_another_model_than_the_folder_says(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"auto_map": {"AutoModel": "someone/else--modeling_bert.OtherBert"}})
    told = "transformers has no OtherBert, only a BertModel; the folder's own code is not run"
    assert fail(3, "verify", folder).endswith(told)
    write_json(folder / "config.json", config | {"auto_map": {"AutoModel": "modeling_bert.BertModel"}})
    assert verified(folder, *TEXTS)


def test_what_transformers_cannot_read(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    (folder / "tokenizer_config.json").write_text("{}x")
    (folder / "special_tokens_map.json").write_text("{}x")
    assert str(folder) in fail(3, "verify", folder)


@pytest.mark.parametrize("name", ["shared", "separate"])
def test_marian(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / name, CASES[name], num_beams=3)
    found = verified(folder, "The quiet teacher opens a window.", "今天我在花园看见老师。")
    assert found["decoder output"]["relative"] < 1e-5 and found["log-probabilities"]["largest"] < 1e-4
    for text in (1, 2):
        greedy = found[f"text {text}, greedy"]
        assert greedy["here"] == greedy["there"] != []
        assert greedy["remark"].startswith(f"the same {len(greedy['here'])}")
        assert f"text {text}, beam 3" in found
