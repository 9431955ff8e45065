"""Makes trainers/: small checkpoints of random weights as fairseq 0.12.2 and OpenNMT-py 3.5.1 save them, what they
answer, and what fairseq answers with the weights of nqo.

Neither installs beside a torch of today, so both are imported from their unpacked sources, which stay as they are:
python -m tests.goldens.make_trainers FAIRSEQ_SOURCE ONMT_SOURCE NQO, from the repository's root, where torch,
hydra-core, omegaconf, bitarray, configargparse and subword-nmt are installed.
"""

import copy
import dataclasses
import importlib.machinery
import inspect
import json
import sys
import types
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tests import GOLDENS
from tests.weights.trainers.cases import CODES, FAIRSEQ, LINES, OPENNMT, TARGET, WORDS, dictionary

FOLDER = GOLDENS / "trainers"
NQO_LINES = 40


class Stand:
    """A finder of modules that are not installed: they hold nothing that is called."""

    NAMES = ("pyonmttok", "ahocorasick", "rapidfuzz", "fasttext", "spacy", "bitsandbytes", "torchtext", "ctranslate2")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        class Module(types.ModuleType):
            def __getattr__(self, attribute):
                if attribute.startswith("__"):
                    raise AttributeError(attribute)
                return type(attribute, (), {})

        return Module(spec.name)

    def exec_module(self, module):
        pass


def prepare(fairseq: str, onmt: str) -> None:
    """What both expect of Python 3.9, NumPy 1 and torch 1."""
    source = inspect.getsource(dataclasses._get_field).replace("f.default.__class__.__hash__ is None", "False")
    exec(source, dataclasses.__dict__)  # noqa: S102
    for name, kind in (("float", float), ("int", int), ("bool", bool)):
        setattr(np, name, kind)
    load = torch.load
    torch.load = lambda *given, **named: load(*given, **(named | {"weights_only": False}))
    sys.meta_path.append(Stand())
    sys.path[:0] = [fairseq, onmt]


def searched(task, model, ids: list[int], beam: int) -> dict:
    from fairseq.dataclass.configs import GenerationConfig

    generator = task.build_generator([model], GenerationConfig(beam=beam, max_len_b=1000))
    sample = {"net_input": {"src_tokens": torch.tensor([ids]), "src_lengths": torch.tensor([len(ids)])}}
    with torch.no_grad():
        best = task.inference_step(generator, [model], sample)[0][0]
    return {"ids": best["tokens"].tolist(), "score": best["score"].item()}


def drawn(name: str, build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(len(name))
    model = build().eval()
    for parameter in model.parameters():
        parameter.data.uniform_(-0.3, 0.3)
    return model


def scored(ids: list[int], forced: list[int], logits_TV: torch.Tensor) -> dict:
    """A text, a target and the log-probabilities of the target's tokens."""
    scores = torch.log_softmax(logits_TV, -1)[:-1].gather(1, torch.tensor(forced, dtype=torch.int64)[:, None])[:, 0]
    return {"source": ids, "target": forced, "scores": scores.tolist()}


def make_fairseq(name: str, options: dict) -> dict:
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel, base_architecture
    from fairseq.tasks.translation import TranslationConfig, TranslationTask
    from subword_nmt.apply_bpe import BPE

    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    source, target = WORDS, WORDS if options.get("share_all_embeddings") else TARGET
    for language, words in (("xx", source), ("yy", target)):
        (folder / f"dict.{language}.txt").write_text(dictionary(words))
    (folder / "bpecodes").write_text(CODES)
    dictionaries = [Dictionary.load(str(folder / f"dict.{language}.txt")) for language in ("xx", "yy")]
    task = TranslationTask(TranslationConfig(data="data-bin/all.xx-yy"), *dictionaries)
    args = Namespace(arch="transformer", data="data-bin/all.xx-yy", source_lang=None, target_lang=None, **options)
    base_architecture(args)
    model = drawn(name, lambda: TransformerModel.build_model(args, task))
    state = {"args": args, "model": model.state_dict(), "optimizer_history": []}
    torch.save(state | {"extra_state": {"best": np.float64(1.5)}}, folder / "model.pt")
    codes = BPE((folder / "bpecodes").open(encoding="utf-8"))
    answers = []
    for line in LINES:
        ids = dictionaries[0].encode_line(codes.process_line(line), add_if_not_exist=False).tolist()
        forced = [*range(4, 4 + len(ids))]
        with torch.no_grad():
            logits_TV = model(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([[2, *forced]]))[0][0]
        answers.append(scored(ids, forced, logits_TV) | {"greedy": searched(task, model, ids, 1)["ids"]})
    return {"answers": answers}


def make_opennmt(name: str, options: dict) -> dict:
    from onmt.model_builder import build_base_model

    class Vocabulary(list):
        ids_to_tokens = property(list)

        def __getitem__(self, token):
            return self.index(token)

    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    specials = ["<unk>", "<blank>", "<s>", "</s>"]
    source = Vocabulary(specials + list(WORDS))
    target = source if options.get("share_embeddings") else Vocabulary(specials + list(TARGET))
    opt = Namespace(**options)
    kinds = {"decoder_start_token": "<s>", "data_task": "seq2seq"}
    model = drawn(name, lambda: build_base_model(opt, {"src": source, "tgt": target} | kinds))
    for module in model.modules():
        if hasattr(module, "dropout_p"):
            module.dropout_p = 0.0
        if isinstance(getattr(module, "pe", None), torch.Tensor):
            module.pe = module.pe[:60].clone()  # of 5,000
    state = {
        "model": {key: value for key, value in model.state_dict().items() if "generator" not in key},
        "generator": model.generator.state_dict(), "vocab": {"src": list(source), "tgt": list(target)} | kinds,
        "opt": opt, "optim": {"training_step": 3},
    }  # fmt: skip
    torch.save(state, folder / "model_step_3.pt")
    (folder / "bpe.codes").write_text(CODES)
    answers = []
    for line in LINES[:4]:
        ids = [source.index(word) if word in source else 0 for word in line.split()] or [4]
        source_1S1, length_1 = torch.tensor(ids)[None, :, None], torch.tensor([len(ids)])
        forced = [*range(4, 4 + len(ids))]
        with torch.no_grad():
            logits_TV = model.generator(model(source_1S1, torch.tensor([[2, *forced, 3]])[..., None], length_1)[0])[0]
            chosen = [2]
            for _ in range(12):
                given = torch.tensor([[*chosen, 3]])[..., None]
                chosen.append(model.generator(model(source_1S1, given, length_1)[0])[0, -1].argmax().item())
        answers.append(scored(ids, forced, logits_TV) | {"greedy": chosen[1:]})
    return {"answers": answers}


def make_nqo(folder: Path) -> dict:
    """What fairseq's own translate gives for the first lines of the shipped test, as its package calls it."""
    from fairseq.models.transformer import TransformerModel

    made = {}
    lines = (folder / "test_data" / "diane_parallel_002.bam-g").read_text().split("\n")[:NQO_LINES]
    for size in ("35", "38"):
        base = folder / f"latin2nqo_001.{size}"
        hub = TransformerModel.from_pretrained(
            str(base / "checkpoints"), checkpoint_file="checkpoint_best.pt", data_name_or_path=str(base / "data"),
            bpe="subword_nmt", bpe_codes=str(base / "data" / "bpe.code"), source_lang="roman", target_lang="nqo",
        ).eval()  # fmt: skip
        found = []
        for line in ["musa dunbuya", *(line.lower() for line in lines)]:
            best = searched(hub.task, hub.models[0], hub.encode(line).tolist(), 5)
            found.append({"text": hub.decode(torch.tensor(best["ids"])), "score": best["score"]})
        made[size] = found
    return made


if __name__ == "__main__":
    fairseq, onmt, nqo = sys.argv[1:]
    prepare(fairseq, onmt)
    made = {name: make_fairseq(name, copy.deepcopy(options)) for name, options in FAIRSEQ.items()}
    made |= {name: make_opennmt(name, options) for name, options in OPENNMT.items()}
    versions = {"torch": torch.__version__, "fairseq": "0.12.2", "OpenNMT-py": "3.5.1"}
    (FOLDER / "answers.json").write_text(json.dumps({"versions": versions, **made}))
    (FOLDER / "nqo.json").write_text(json.dumps(make_nqo(Path(nqo)), ensure_ascii=False))
