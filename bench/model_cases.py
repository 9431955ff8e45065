"""Whole models as cases: from texts to vectors or translations, including tokenizing for every engine."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import NOT_INSTALLED, OURS, Case, Side, installed, largest_difference, same_directions
from bench.encoders import ENCODERS, TRANSLATORS, Engine, Tokenizer, alone
from bench.operations.table import WEIGHT_BYTES
from bench.request import Request
from bench.sentences import sentences
from bench.translate_locally import TranslateLocally, program, write_lines
from fastattn import Translator
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights import read

TOKENS = "tokens/s"


def _calls(engines: dict[str, Engine], request: Request, arguments: tuple, warm_up: tuple) -> dict[str, Any]:
    """{engine: {setting: call}, or a str: why there is none}. Each call has run once on a small input."""
    results: dict[str, Any] = {}
    for name, engine in engines.items():
        if not request.compares(name):
            continue
        if request.precision not in engine.precisions:
            results[name] = f"no {request.precision}"
        elif not installed(engine.libraries):
            results[name] = NOT_INSTALLED
        else:
            calls = engine.make(*arguments)
            for call in calls.values():
                call(*warm_up)
            results[name] = calls or f"no {request.precision} on this CPU"
    return results


def _alone(calls: dict[str, Any]) -> dict[str, Any]:
    return {name: settings if isinstance(settings, str) else alone(settings) for name, settings in calls.items()}


def _sides(calls: dict[str, Any], bind: Callable[[str, Any], Callable[[], Any]]) -> dict[str, Side]:
    """The sides of a case; ``bind(engine, call)`` returns a call without arguments."""
    return {
        name: Side(absent=settings)
        if isinstance(settings, str)
        else Side({setting: bind(name, call) for setting, call in settings.items()})
        for name, settings in calls.items()
    }


def layer_weights(checkpoint: Checkpoint, stack: str, each_token: bool = True) -> int:
    """How many weights of a stack apply to each token (layers and projection), or to each token of the memory."""
    memory = ".cross_attention.key_value."
    return sum(
        tensor.size
        for name, tensor in checkpoint.tensors.items()
        if name.startswith((f"{stack}.layers.", f"{stack}.projection."))
        and tensor.ndim == 2
        and (memory not in name) == each_token
    )


def encode_cases(request: Request) -> Iterator[Callable[[], Case]]:
    folder = Path(request.encoder)
    texts = sentences("en", request.choose(486, 24, 4), request.corpora)
    checkpoint = read(folder)
    calls = _calls(ENCODERS, request, (folder, request.threads, request.precision, Path(request.cache)), (texts[:2],))
    single = _alone(calls)
    if request.size != "full":
        calls = single  # these few texts are one batch

    def case(name: str, texts: list[str], calls: Any, one_by_one: bool) -> Case:
        def bind(_: str, call: Any) -> Callable[[], np.ndarray]:
            return lambda: np.stack([call([text])[0] for text in texts]) if one_by_one else call(texts)

        lengths = [len(ids) for _, batch in Tokenizer(folder).batches(texts, 1) for ids in batch]
        flops = 2.0 * layer_weights(checkpoint, "encoder") * sum(lengths)
        stack, squares = checkpoint.spec.encoder, float(np.square(lengths, dtype=np.float64).sum())
        flops += 4.0 * stack.layers * stack.attention.query_width * squares
        agree = largest_difference if request.precision == "float32" else same_directions
        return Case(name, sum(lengths), TOKENS, _sides(calls, bind), flops, agree=agree, warm=True)

    yield partial(case, f"encode {len(texts)} sentences", texts, calls, False)
    if not request.scaling:
        few = texts[:: max(1, len(texts) // request.choose(32, 4, 2))]
        yield partial(case, f"encode {len(few)} sentences one at a time", few, single, True)


def _equal(ours: list[str], theirs: list[str]) -> tuple[bool, str]:
    """Compare texts; all but a few near ties should be equal."""
    equal = sum(a == b for a, b in zip(ours, theirs, strict=False))
    return equal >= 0.9 * len(theirs), f"{equal} of {len(theirs)} equal"


def _alike(ours: list[str], theirs: list[str]) -> tuple[bool, str]:
    """Compare texts of engines that round differently, by the share of equal words in the same order."""
    pairs = [(a.split(), b.split()) for a, b in zip(ours, theirs, strict=False)]
    same = float(np.mean([SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in pairs]))
    return same >= 0.7, f"{same:.0%} of the words equal"


def translate_cases(request: Request) -> Iterator[Callable[[], Case]]:
    folder = Path(request.translator)
    texts = sentences("zh", request.sentences or request.choose(64, 8, 2), request.corpora)
    checkpoint = read(folder)
    engines = {
        name: engine
        for name, engine in TRANSLATORS.items()
        if name != "NumPy" or request.size != "quick"  # NumPy takes several seconds a sentence
    }
    calls = _calls(engines, request, (folder, request.threads, request.precision), (texts[:1], 2))
    single = _alone(calls)
    if request.size != "full":
        calls = single
    (ours,) = calls["fastattn"].values()
    translator = ours.translator

    def case(name: str, texts: list[str], calls: Any, beam: int, naive: int, one_by_one: bool) -> Case:
        """naive: the number of texts that NumPy translates."""
        translations = translator.translate(texts, beam_size=beam, details=True)
        produced = [sum(part.lengths[0] for part in translation.parts) for translation in translations]
        sources = sum(len(part.source) + 1 for translation in translations for part in translation.parts)

        def bind(engine: str, call: Any) -> Callable[[], list[str]]:
            own = texts[:naive] if engine == "NumPy" else texts
            return lambda: [call([text], beam)[0] for text in own] if one_by_one else call(own, beam)

        sides = _sides(calls, bind)
        if sides.get("NumPy", Side()).calls:
            sides["NumPy"].share = sum(produced[:naive]) / sum(produced)
        a_step, a_memory = (layer_weights(checkpoint, "decoder", each) for each in (True, False))
        a_source = layer_weights(checkpoint, "encoder") + a_memory
        flops = 2.0 * (a_source * sources + a_step * sum(produced) * beam)
        # a single sentence's step reads all weights that apply to a token; for batches there is no such simple rule
        size = WEIGHT_BYTES[request.precision]
        moved = float(size * (a_source * len(texts) + a_step * sum(produced))) if one_by_one else None
        agree = _equal if request.precision == "float32" else _alike
        return Case(name, sum(produced), TOKENS, sides, flops, moved, agree, warm=True)

    few = texts[:: max(1, len(texts) // request.choose(12, 2, 1))]
    for beam, title in ((1, "greedy"), (4, "beam 4")):
        naive = request.choose({1: 16, 4: 4}[beam], 1, 1)  # the same number of rows at a time
        yield partial(case, f"translate {len(texts)} sentences, {title}", texts, calls, beam, naive, False)
        if not request.scaling:
            yield partial(
                case, f"translate {len(few)} one at a time, {title}", few, single, beam, naive // 4 or 1, True
            )


def light_cases(request: Request) -> Iterator[Callable[[], Case]]:
    """A file of lines to another file; each call is a process, the only form in which translateLocally translates."""
    lines = sentences("en", request.choose(997, 64, 4), request.corpora)
    translator = Translator(request.light, "int8", request.threads)
    produced = sum(part.lengths[0] for result in translator.translate(lines, details=True) for part in result.parts)
    with tempfile.TemporaryDirectory(prefix="fastattn-light-") as name:
        folder = Path(name)
        source, target = write_lines(folder / "source", lines), folder / "target"
        command = [sys.executable, "-m", "fastattn.cli", "translate", "--model", request.light, "--precision", "int8"]
        command += ["--threads", str(request.threads), "--input", str(source), "--output", str(target)]

        def side(run: Callable[[], object]) -> Side:
            return Side({"": lambda: (run(), target.read_text(encoding="utf-8").splitlines())[1]})

        sides = {OURS: side(partial(subprocess.run, command, check=True))}
        if path := program():
            peer = TranslateLocally(path, folder, {"light": Path(request.light)})
            sides[peer.name] = side(partial(peer.translate, "light", source, target, request.threads))
        yield partial(Case, f"translate a file of {len(lines)} lines", produced, TOKENS, sides, agree=_alike)
