"""``fastattn caption``: writes a sentence about each picture, and draws where the words looked in a picture."""

from collections.abc import Iterable
from typing import Any

import click

from fastattn.cli.lines import open_output
from fastattn.cli.options import declare, open_model
from fastattn.cli.printing import Progress, as_json
from fastattn.printable import json_decimals, printable


@click.command(
    epilog="""\b
Examples:
  fastattn caption -m ./my-captioner picture.png
  fastattn caption -m ./my-captioner --map where.svg picture.png
  fastattn caption -m ./my-captioner -n 3 --json *.jpg > captions.jsonl

\b
One line for each picture: its caption; of several pictures, the path and a
tab before it. With -n, a line for each caption, the best first. --json writes
JSON lines instead, with each word's map, a grid over the whole image:
  {"path": ..., "captions": [{"text": ..., "score": ..., "words": [...],
   "attention": [[[...]]]}, ...]}
"""
)
@click.argument("pictures", nargs=-1, required=True, metavar="PICTURE...", type=click.Path(allow_dash=False))
@declare(
    """
--model
--output
--beam-size INTEGER>=1: Sentences kept at each step (default: 3).
-n, --num-hypotheses INTEGER>=1: Captions of each picture (default: 1).
--map FILE -> map_path: Draw where the words looked: .svg, .html or .png.
--json: Write JSON lines.
--precision [float32|bfloat16|int8|auto]
--threads
""",
    map_path={"type": click.Path(dir_okay=False)},
)
def caption(
    pictures: tuple[str, ...],
    model: str | None,
    output_path: str | None,
    beam_size: int | None,
    num_hypotheses: int | None,
    map_path: str | None,
    json: bool,
    **options: Any,
) -> None:
    """Describe PICTUREs in a sentence each.

    -m names a folder with a convolutional encoder and a recurrent decoder that attends to its grid.
    """
    if model is None:
        raise click.UsageError("there is no default model to describe pictures with; name one with -m")
    if map_path is not None and len(pictures) > 1:
        raise click.UsageError("--map draws one picture; give one")
    if map_path is not None and not map_path.lower().endswith((".svg", ".html", ".png")):
        raise click.UsageError(f"--map should end in .svg, .html or .png, got {map_path!r}")
    beams, count = beam_size or max(3, num_hypotheses or 1), num_hypotheses or 1
    with open_output(output_path) as output, Progress() as progress:
        captioner, _ = open_model("Captioner", model, progress, **options)
        progress.enabled &= not output.is_terminal()
        for number, path in enumerate(pictures):
            result = captioner.caption(path, beam_size=beams, num_hypotheses=count)
            captions = result if count > 1 else [result]
            label = f"{printable(path)}\t" if len(pictures) > 1 else ""
            lines = [_as_json(path, captions)] if json else [label + printable(caption.text) for caption in captions]
            output.write("".join(f"{line}\n" for line in lines).encode())
            output.flush()
            if map_path is not None:
                from fastattn.vision.maps import plot_image_attention

                best = captions[0]
                maps = plot_image_attention(path, best.attention_WYX, best.words, title=best.text, model=captioner)
                maps.save(map_path)
            progress.show(f"{number + 1:,} of {len(pictures):,} pictures")


def _as_json(path: str, captions: list[Any]) -> str:
    from numpy import float32

    records = []
    for caption in captions:
        (score,) = json_decimals([float32(caption.score)])
        grids = ([_json_list(json_decimals(row)) for row in map_YX] for map_YX in caption.attention_WYX)
        maps = _json_list(map(_json_list, grids))
        text, words = as_json(caption.text), as_json(caption.words)
        records.append(f'{{"text": {text}, "score": {score}, "words": {words}, "attention": {maps}}}')
    return f'{{"path": {as_json(path)}, "captions": {_json_list(records)}}}'


def _json_list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"
