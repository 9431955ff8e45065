"""Pictures of trained models for docs: ``python -m bench.train.pictures DIR [FOLDER]``.

DIR has the folders that ``bench.train`` wrote, named as the models; FOLDER is docs/pictures by default. It needs
sacrebleu and Pillow.
"""

import argparse
import base64
import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from bench.gallery.drawing import hulls_picture, weights_picture
from bench.svg import Panel, Series, plot
from bench.train.hulls import FEWEST, MOST, examples, hull
from fastattn import Translator, vision
from fastattn.translation.pointer import PointerNetwork

SHOWN, CELL, LABEL = 10, 56, 100  # digits of a row; pixels: a digit's side, the room for a row's name
COLOURS = 32  # of a map's panel
KINDS = {"attention": "with attention", "plain": "without attention"}
LENGTHS = (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 18, 100)  # where bins of lengths begin, and the last ends
FRENCH, ENGLISH = "je ne parle pas très bien français .", "I don't speak French very well."


def lengths(trained: Path) -> str:
    """BLEU of held-out sentences by their number of words, without the end."""
    import sacrebleu

    pairs = [line.split("\t") for line in (trained / "plain" / "held-out.tsv").read_text(encoding="utf-8").splitlines()]
    series: Series = {}
    for kind, name in KINDS.items():
        outputs = Translator(trained / kind, "float32").translate([french for french, _ in pairs], split="never")
        triples = [(len(french.split()), ours, english) for (french, english), ours in zip(pairs, outputs, strict=True)]

        def bleu(first: int, stop: int, triples: list = triples) -> tuple[int, int, float]:
            within = [triple for triple in triples if first <= triple[0] < stop]
            words, ours, english = zip(*within)
            score = sacrebleu.corpus_bleu(ours, [english], tokenize="none", force=True).score
            return len(within), round(np.mean(words)), score

        bins = [bleu(first, stop) for first, stop in itertools.pairwise(LENGTHS)]
        print(f"{name}: BLEU {bleu(0, 1000)[2]:.1f} of {len(pairs)} sentences;", *(f"{n} {b:.1f}" for n, _, b in bins))
        series[name] = [(words, score) for _, words, score in bins]
    return plot([Panel("held-out sentences, French to English", "words of the sentence", "BLEU", series)])


def alignment(model: Path | str, text: str) -> str:
    result = Translator(model, "float32").translate(text, details=True, return_attention=True)
    (part,) = result.parts
    print(result.text)
    return weights_picture(np.array(part.attention[0]), part.tokens, part.source)


def hulls(trained: Path) -> str:
    """The first hulls that training left out, one for each number of points from 5 to 10."""
    network, points = PointerNetwork(trained / "pointer", "float32"), examples(2000, seed=0)
    answers = [output.rows for (output,) in network.point(points)]
    panels = []
    for count in range(FEWEST, MOST + 1):
        of_count = [(array, rows) for array, rows in zip(points, answers, strict=True) if len(array) == count]
        right = np.mean([rows == hull(array) for array, rows in of_count])
        print(f"{count} points: {right:.1%} of {len(of_count)} hulls are right")
        panels.append((f"{count} points, {right:.0%} right", *of_count[0]))
    return hulls_picture(panels)


def digits(trained: Path) -> str:
    """Rows of held-out digits, of the same straightened, and of CBAM's gates of places."""
    import torch

    from bench.train import digits as network

    net, images = network.load(trained / "digits"), network.held_out()[0][:SHOWN]
    state = net.state_dict()
    straight = vision.SpatialTransformer.from_torch(state, "straighten.")(images)
    with torch.inference_mode():
        features = net.features(torch.from_numpy(straight)).numpy()
    _, places_BYX = vision.CBAM.from_torch(state, "cbam.").weights(features)
    spread_BYX = places_BYX - places_BYX.min((1, 2), keepdims=True)  # gates are never 0: show differences
    rows_3 = {"as given": images[:, 0], "straightened": straight[:, 0], "CBAM's gates": spread_BYX}
    return _strips(rows_3)


def looks(trained: Path) -> str:
    """Where each further module looks in held-out digits: places, or channels drawn as squares of cells."""
    import torch

    from bench.train import digits as networks

    images = networks.held_out()[0][:SHOWN]
    rows = {"as given": images[:, 0]}
    for name in networks.NETWORKS:
        net = networks.load_look(trained / "looks", name)
        state, settings = net.state_dict(), networks.SETTINGS.get(name, {})
        module = getattr(vision, name).from_torch(state, "look.", **settings)
        with torch.no_grad():
            rows |= _LOOKS[name](module, net.features(torch.from_numpy(images)).numpy())
    return _strips(rows)


def _square(x_BC: np.ndarray) -> np.ndarray:
    side = round(x_BC.shape[1] ** 0.5)
    return x_BC.reshape(-1, side, side)


def _spread(x_BYX: np.ndarray) -> np.ndarray:
    return x_BYX - x_BYX.min((1, 2), keepdims=True)


# Module -> the rows of its drawing, by what its network gives it.
_LOOKS: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "SqueezeExcitation": lambda look, x: {"squeeze and excitation: gates of 16 channels": _square(look.weights(x))},
    "SelectiveKernel": lambda look, x: {
        "selective kernels: the larger filter's share in 16 channels": _square(look.weights(x)[:, 1])
    },
    "ResidualAttention": lambda look, x: {"residual attention: the mask": _spread(look.mask(x))},
    "MultiScaleAttention": lambda look, x: {"multi-scale: the share of the full size": look.weights(x)[:, 0]},
    "DynamicCapacity": lambda look, x: {"dynamic capacity: where entropy leans": look.saliency(x)},
    "PatchAttention": lambda look, x: {"patches: how much each is looked at": _square(look.weights(x).mean((1, 2)))},
}


def _strips(rows: dict[str, np.ndarray]) -> str:
    """A row of pictures for each name; the row's greatest number is white."""
    label, parts = max(LABEL, 7 * max(map(len, rows)) + 8), []
    for row, (name, row_BYX) in enumerate(rows.items()):
        strip = Image.fromarray(np.uint8(255 * np.concatenate([x / x.max() for x in row_BYX.clip(0)], axis=1)))
        data, y = _png(strip.resize((SHOWN * CELL, CELL), Image.Resampling.NEAREST)), row * (CELL + 4)
        parts.append(f'<text x="4" y="{y + CELL / 2 + 4:g}">{name}</text><image x="{label}" y="{y}" ')
        parts.append(f'width="{SHOWN * CELL}" height="{CELL}" href="data:image/png;base64,{data}"/>')
    width, height = label + SHOWN * CELL, len(rows) * (CELL + 4)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="13" fill="#888">{"".join(parts)}</svg>\n'
    )


def _png(picture: Image.Image) -> str:
    held = io.BytesIO()
    picture.save(held, "PNG", optimize=True)
    return base64.b64encode(held.getvalue()).decode()


def caption(trained: Path) -> str:
    from bench.train.captions import examples

    images, sentences = examples(50, 0)
    number = next(i for i, sentence in enumerate(sentences) if "above" in sentence)
    result = vision.Captioner(trained / "captions", "float32").caption(images[number])
    print(result.text)
    smooth = Image.fromarray(images[number]).filter(ImageFilter.MedianFilter(3))  # the noise would be most of the file
    svg = vision.plot_image_attention(smooth, result.attention_WYX, result.words, columns=4).svg

    def fewer_colours(match: re.Match) -> str:
        panel = Image.open(io.BytesIO(base64.b64decode(match[1]))).quantize(
            COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        return f"base64,{_png(panel)}"

    return re.sub(r"base64,([^\"]+)", fewer_colours, svg)


PICTURES: dict[str, Callable[[Path], str]] = {
    "lengths": lengths,
    "alignment-recurrent": lambda trained: alignment(trained / "attention", FRENCH),
    "alignment-transformer": lambda trained: alignment("en-pt", ENGLISH),
    "hulls": hulls,
    "digits": digits,
    "looks": looks,
    "caption": caption,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.train.pictures", description="Draw what was trained.")
    parser.add_argument("trained", type=Path, metavar="DIR")
    parser.add_argument("folder", type=Path, metavar="FOLDER", nargs="?", default=Path("docs/pictures"))
    parser.add_argument("--only", choices=PICTURES, action="append", metavar="NAME", help="draw this one, or several")
    options = parser.parse_args()
    for name, draw in PICTURES.items():
        if name not in (options.only or PICTURES):
            continue
        (options.folder / f"{name}.svg").write_text(draw(options.trained), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
