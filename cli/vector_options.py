"""The options of a call to an Encoder: those of every command that makes vectors."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.arrays import open_array
from fastattn.cli.command import with_options
from fastattn.cli.options import TEXT, given

if TYPE_CHECKING:
    import numpy as np

    from fastattn.encoders.encoder import Encoder

# The options that choose vectors, which ``chosen_vectors`` takes.
vector_options = with_options(
    click.option(
        "--normalize/--no-normalize", default=None, help="Scale vectors to unit length (default: as the model says)."
    ),
    click.option(
        "--pooling",
        metavar="MODE[,MODE]",
        help="cls, max, mean, mean_sqrt_len, mean_sqrt_len_tokens, weightedmean, lasttoken (default: as the model "
        "says).",
    ),
    click.option("--truncate-dim", type=click.IntRange(min=1), help="Keep this many first dimensions (default: all)."),
    click.option(
        "--prompt",
        type=TEXT,
        metavar="TEXT",
        help="Put TEXT before each line; '' for nothing (default: the model's own).",
    ),
    click.option(
        "--prompt-name", type=TEXT, metavar="NAME", help="Put the model's prompt of that name before each line."
    ),
    click.option(
        "--task",
        type=click.Choice(["query", "document"]),
        help="What the lines are: put the model's prompt for queries or documents before each, if it has one.",
    ),
    click.option(
        "--long",
        type=click.Choice(["truncate", "mean", "error"]),
        help="What becomes of a line with more tokens than the model takes (default: truncate).",
    ),
    click.option(
        "--output-dtype",
        type=click.Choice(["float32", "int8", "uint8", "binary", "ubinary"]),
        help="Type of the numbers written (default: float32).",
    ),
    click.option(
        "--calibration",
        metavar="FILE",
        help="A file of float vectors, whose ranges int8 and uint8 numbers divide.",
    ),
)


def calibration_vectors(options: dict[str, Any]) -> "np.ndarray | None":
    """The vectors that --calibration names; click.UsageError for options that do not go together."""
    if options["prompt"] is not None and options["prompt_name"] is not None:
        raise click.UsageError("give --prompt or --prompt-name, not both")
    if (options["output_dtype"] in ("int8", "uint8")) != (options["calibration"] is not None):
        raise click.UsageError("--output-dtype int8 and uint8 need --calibration, others take none")
    return None if options["calibration"] is None else open_array(options["calibration"])


def chosen_vectors(
    options: dict[str, Any], vectors_MD: "np.ndarray | None", encoder_of: "Callable[[], Encoder]"
) -> dict[str, Any]:
    """The options of ``Encoder.encode`` for those of the command line.

    encoder_of  called where vectors are calibrated
    """
    options = dict(options)
    del options["calibration"]
    pooling = options.pop("pooling")
    normalize = options.pop("normalize")
    chosen = given(
        **options,
        normalize_embeddings=normalize,
        pooling=None if pooling is None else tuple(pooling.split(",")),
    )
    if vectors_MD is not None:
        from fastattn.vectors.quantized import calibrated_ranges

        width = encoder_of().encode([], **chosen | {"output_dtype": "float32"}).shape[1]
        chosen["ranges"] = calibrated_ranges(vectors_MD, width)
    return chosen
