"""Models of bench.train: fastattn's results against PyTorch's."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Absent, Data, Findings, check
from bench.train import hulls
from fastattn import Translator, vision
from fastattn.arguments.images import PixelGrid, Window
from fastattn.array_attention.torch_state import torch_state
from fastattn.ops import cpu
from fastattn.translation.pointer import PointerNetwork
from fastattn.vision.module import StateReader

KINDS = ("attention", "plain")
MOST = 60  # words of a translation
BATCH = 64  # lines


def trained_folder(data: Data, name: str, file: str = "model.pt") -> Path:
    """The folder that ``bench.train`` wrote; raises Absent without it."""
    folder = data.root / "trained" / name
    if not (folder / file).exists():
        raise Absent(f"python -m bench.train {name} --into {folder}")
    return folder


def _by_torch(folder: Path, lines: list[str]) -> list[str]:
    """Greedy translations by the tutorial's network with a folder's weights; lines of a batch are of like length."""
    import torch

    from bench.train import translation

    source, words = ((folder / name).read_text(encoding="utf-8").split() for name in ("source.txt", "target.txt"))
    model = translation.Translator(folder.name, len(source), len(words))
    model.load_state_dict(torch.load(folder / "model.pt"))
    numbers = {word: i for i, word in enumerate(source)}
    order, results = sorted(range(len(lines)), key=lambda i: len(lines[i].split())), [""] * len(lines)
    for start in range(0, len(lines), BATCH):
        batch = order[start : start + BATCH]
        sources = [torch.tensor(translation.ids(lines[i].split(), numbers)) for i in batch]
        for i, ids in zip(batch, model.translate(sources, MOST), strict=True):
            results[i] = " ".join(words[word] for word in ids)
    return results


@check("trained-greedy", "greedy translations of all held-out lines equal PyTorch's, with attention and without: 99.9%")
def greedy(findings: Findings, data: Data) -> None:
    for kind in KINDS:
        folder = trained_folder(data, kind)
        lines = [line.split("\t")[0] for line in (folder / "held-out.tsv").read_text(encoding="utf-8").splitlines()]
        options = {"split": "never", "beam_size": 1, "max_decoding_length": MOST}
        ours = Translator(folder, "float32", threads=1).translate(lines, **options)
        share = 100 * sum(map(str.__eq__, ours, _by_torch(folder, lines))) / len(lines)
        findings.at_least(f"{kind}:", share, f"% of {len(lines)} lines", 99.9)


@check("trained-pointer", "hulls of 2,000 sets of points that were not learned, greedily: as many right as in PyTorch")
def pointing(findings: Findings, data: Data) -> None:
    folder, points = trained_folder(data, "pointer"), hulls.examples(2000, seed=0)  # training's seeds begin at 1
    import torch

    from bench.train import pointer

    theirs = pointer.point(pointer.restored(torch.load(folder / "model.pt")), points, hulls.MOST + 1)
    with PointerNetwork(folder, "float32", threads=1) as network:
        ours = [output.rows for (output,) in network.point(points, beam_size=1)]
    expected = [hulls.hull(array) for array in points]
    right = [sum(rows == hull for rows, hull in zip(answers, expected, strict=True)) for answers in (ours, theirs)]
    findings.at_least("right:", right[0], f"of {len(points)} hulls", right[1], "the bound is PyTorch's")
    findings.at_most("right:", right[0], f"of {len(points)} hulls", right[1])
    findings.at_least("same places:", sum(a == b for a, b in zip(ours, theirs)), "hulls", 0.999 * len(points))


def _digits_here(state: Mapping[str, Any], images: np.ndarray) -> np.ndarray:
    """The logits of bench.train.digits' network, from fastattn's modules and operations alone."""
    reader, half = StateReader(torch_state(state, ""), "", "cpu", "float32"), Window((2, 2), (2, 2))
    x = vision.SpatialTransformer.from_torch(state, "straighten.")(images)
    x_ND, grid = x.transpose(0, 2, 3, 1).reshape(-1, 1), PixelGrid(len(x), *x.shape[2:])
    x_ND, grid = reader.convolution("features.0", 1, 0, "relu")(x_ND, grid)
    x_ND, grid = cpu.pool_windows(x_ND, grid, half, "max"), half.over(grid)
    x_ND, grid = reader.convolution("features.3", x_ND.shape[1], 0, "relu")(x_ND, grid)
    x = vision.CBAM.from_torch(state, "cbam.")(x_ND.reshape(*grid, -1).transpose(0, 3, 1, 2))
    x_ND = cpu.pool_windows(x.transpose(0, 2, 3, 1).reshape(grid.rows, -1), grid, half, "max")
    channels_first = x_ND.reshape(grid.images, -1, x_ND.shape[1]).transpose(0, 2, 1).reshape(grid.images, -1)
    return reader.linear("top", channels_first.shape[1])(np.ascontiguousarray(channels_first))


@check(
    "trained-digits",
    "a small network with a spatial transformer and CBAM reads as many held-out digits right as in PyTorch",
)
def digits_read(findings: Findings, data: Data) -> None:
    import torch

    from bench.train import digits

    images, labels = digits.held_out()
    net = digits.load(trained_folder(data, "digits", "torch.pth"))
    with torch.inference_mode():
        theirs = net(torch.from_numpy(images)).numpy()
    ours = _digits_here(net.state_dict(), images)
    right, expected = (int((logits.argmax(1) == labels).sum()) for logits in (ours, theirs))
    findings.at_least(f"{expected} right in PyTorch,", right, f"here of {len(labels)}", expected)
    findings.at_most("too many here:", right - expected, "digits", 0)
    findings.at_most("logits differ by", float(np.abs(ours - theirs).max()), "", 1e-3)


@check("trained-captions", "captions of 500 unseen pictures, greedily, equal PyTorch's, and where each word looked")
def captions_equal(findings: Findings, data: Data, hard: bool = False) -> None:
    from bench.train import captions

    folder = trained_folder(data, "captions-hard" if hard else "captions", "torch.pth")
    images, sentences = captions.examples(500, 0)
    expected, weights = captions.load(folder, hard).caption(captions.as_tensor(images))
    results: Any = vision.Captioner(folder, "float32").caption(images, beam_size=1)
    triples = zip(results, expected, weights, strict=True)
    same = [(result, looked) for result, sentence, looked in triples if result.text == sentence]
    far = max(float(np.abs(result.attention_WYX.reshape(looked.shape) - looked).max()) for result, looked in same)
    findings.at_least("equal:", len(same), "captions", len(images))
    findings.at_most("weights differ by", far, "", 1e-4)
    right = sum(result.text == sentence for result, sentence in zip(results, sentences, strict=True))
    findings.say(f"{right / len(images):.1%} describe the picture exactly")


check("trained-captions-hard", "likewise of a captioner that was trained to look at one place for each word")(
    partial(captions_equal, hard=True)
)
