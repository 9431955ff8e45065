"""Recurrent encoder-decoders of ``bench.train`` against PyTorch; and every variety against its formulas."""

from pathlib import Path
from typing import Any

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check
from bench.checks.compare import THREADS, plural, timed
from bench.train import hulls, tatoeba
from fastattn import Translator
from fastattn.translation.pointer import PointerNetwork

KINDS = ("attention", "plain")
MOST = 60  # words of a translation
BATCH = 64


def trained_folder(data: Data, name: str, file: str = "model.pt") -> Path:
    """What ``bench.train`` wrote; Absent where it has not."""
    folder = data.root / "trained" / name
    if not (folder / file).exists():
        raise Absent(f"python -m bench.train {name} --into {folder}")
    return folder


def _held_out(folder: Path) -> list[str]:
    """The French sentences."""
    return [line.split("\t")[0] for line in (folder / "held-out.tsv").read_text(encoding="utf-8").splitlines()]


class _Torch:
    """The tutorial's network with a folder's weights."""

    def __init__(self, folder: Path):
        import torch

        from bench.train import tutorial

        source, self.words = (
            (folder / name).read_text(encoding="utf-8").split() for name in ("source.txt", "target.txt")
        )
        self.numbers = {word: i for i, word in enumerate(source)}
        self.model = tutorial.Translator(folder.name, len(source), len(self.words))
        self.model.load_state_dict(torch.load(folder / "model.pt"))
        self.tensor: Any = torch.tensor

    def translate(self, lines: list[str], batch: int) -> list[str]:
        """Greedily; the lines of a batch are of like length."""
        order, made = sorted(range(len(lines)), key=lambda i: len(lines[i].split())), {}
        for at in range(0, len(lines), batch):
            chosen = order[at : at + batch]
            sources = [self.tensor(tatoeba.ids(lines[i].split(), self.numbers)) for i in chosen]
            made |= dict(zip(chosen, self.model.translate(sources, MOST), strict=True))
        return [" ".join(self.words[word] for word in made[i]) for i in range(len(lines))]


def _ours(folder: Path, threads: int) -> Any:
    translator = Translator(folder, "float32", threads=threads)
    return lambda lines: translator.translate(lines, split="never", beam_size=1, max_decoding_length=MOST)


@check("trained-greedy", "greedy translations of all held-out lines equal PyTorch's, with attention and without: 99.9%")
def greedy(findings: Findings, data: Data) -> None:
    for kind in KINDS:
        folder = trained_folder(data, kind)
        lines = _held_out(folder)
        pairs = zip(_ours(folder, 1)(lines), _Torch(folder).translate(lines, BATCH), strict=True)
        share = 100 * sum(a == b for a, b in pairs) / len(lines)
        findings.at_least(f"{kind}:", share, f"% of {len(lines)} lines", 99.9)


@check("trained-pointer", "hulls of 2,000 sets of points that were not learned, greedily: as many right as in PyTorch")
def pointing(findings: Findings, data: Data) -> None:
    folder, points = trained_folder(data, "pointer"), hulls.examples(2000, seed=0)  # training's seeds begin at 1
    import torch

    from bench.train import pointer

    theirs = pointer.point(pointer.restored(torch.load(folder / "model.pt")), points, hulls.MOST + 1)
    with PointerNetwork(folder, "float32", threads=1) as network:
        ours = [one.rows for (one,) in network.point(points, beam_size=1)]
    wanted = [hulls.hull(array) for array in points]
    right = [sum(rows == hull for rows, hull in zip(found, wanted, strict=True)) for found in (ours, theirs)]
    findings.at_least("right:", right[0], f"of {len(points)} hulls", right[1], "the bound is PyTorch's")
    findings.at_most("right:", right[0], f"of {len(points)} hulls", right[1])
    findings.at_least("same places:", sum(a == b for a, b in zip(ours, theirs)), "hulls", 0.999 * len(points))


@check(
    "trained-speed", f"greedy, batches of {BATCH} and one line at a time, one thread and two: ahead of PyTorch's eager"
)
def speed(findings: Findings, data: Data) -> None:
    for kind in KINDS:
        folder = trained_folder(data, kind)
        lines, torch = _held_out(folder)[:320:5], _Torch(folder)
        for threads in THREADS:
            ours = _ours(folder, threads)
            for batch in (BATCH, 1):
                some = lines if batch > 1 else lines[::4]
                calls = {
                    OURS: lambda: [ours(some[at : at + batch]) for at in range(0, len(some), batch)],  # noqa: B023
                    "PyTorch": lambda: torch.translate(some, batch),  # noqa: B023
                }
                seconds = timed(calls, threads, rounds=5, seconds=4.0)
                ratio, rate = seconds["PyTorch"] / seconds[OURS], len(some) / seconds[OURS]
                what = f"{kind}, {plural(threads)}, {'batches' if batch > 1 else 'one at a time'}:"
                findings.at_least(what, ratio, "x PyTorch", 1.0, f"{rate:,.0f} lines/s")
