"""``fastattn search``: the rows of a file of vectors that are most similar to a query."""

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.lines import open_lines
from fastattn.cli.loading import loading
from fastattn.cli.options import given, located_encoder, model_option, precision_option, threads_option
from fastattn.cli.output import Output, open_output
from fastattn.cli.progress import Compiling, Progress
from fastattn.errors import InputError
from fastattn.files import as_text, open_bytes, raw_lines

if TYPE_CHECKING:
    import numpy as np

    from fastattn.encoder import Encoder

TOGETHER = 64  # queries for which the vectors are read once
_Row = tuple[Any, int, str | None]  # score, row, text


@click.command(
    epilog="""\b
Examples:
  fastattn encode -i sentences.txt -o vectors.npy
  fastattn search "Who eats?" -i vectors.npy --texts sentences.txt
  fastattn search -m ./my-encoder -i vectors.npy -k 3 --json < questions.txt

\b
One line for each row found, the best first, with tabs between: rank, score,
row number, and its text where --texts is given. Rows are counted from 0. If
there may be several queries, each is on a line of its own before its rows.
--json writes a line for each query:
  {"query": ..., "results": [{"score": ..., "row": ..., "text": ...}, ...]}

\b
FILE.npy has float32 vectors, as `fastattn encode` writes them, or packed bits
(uint8, or int8 as sentence-transformers' "binary"), which are compared by how
many differ. It is mapped, not loaded. Narrower vectors than the model's are
compared with the first numbers of a query's (Matryoshka vectors).
"""
)
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("-i", "--input", "vectors_path", required=True, metavar="FILE.npy", help="The vectors to search.")
@click.option("--texts", "texts_path", metavar="FILE", help="Show the lines of FILE, one for each vector.")
@model_option
@click.option("-k", "--top-k", type=click.IntRange(min=1), default=10, help="How many rows to find (default: 10).")
@click.option(
    "--score-function",
    type=click.Choice(["cosine", "dot"]),
    default="cosine",
    help="How float32 vectors are compared (default: cosine).",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON lines.")
@precision_option("float32", "bfloat16", "int8", "auto")
@threads_option
def search(
    queries: tuple[str, ...],
    vectors_path: str,
    texts_path: str | None,
    model: str | None,
    top_k: int,
    score_function: str,
    as_json: bool,
    precision: str | None,
    threads: int | None,
) -> None:
    """Find the vectors of a file that are most similar to QUERYs, or to the lines of standard input.

    -m names the model that made the vectors. The default is minilm, for English.
    """
    lines = open_lines(queries, None)
    with open_output(None) as output, Progress() as progress:
        with loading():
            corpus_ND = _mapped(vectors_path)
            texts = None if texts_path is None else _texts(texts_path, len(corpus_ND), vectors_path)
            path = located_encoder(model, progress)
            Compiling(progress)
            from fastattn.encoder import Encoder
            from fastattn.vector_search import semantic_search

            encoder = Encoder(path, **given(precision=precision, threads=threads))
        progress.clear()
        embed = _embedding(encoder, corpus_ND, vectors_path)
        function = score_function if corpus_ND.dtype == "float32" else "hamming"
        write = _write_json if as_json else partial(_write_table, len(queries) != 1, 0 if function == "hamming" else 4)
        for burst in lines.bursts():
            while queries_Q := list(islice(burst, TOGETHER)):
                found = semantic_search(embed(queries_Q), corpus_ND, top_k, function, threads=threads)
                for query, scores_k, ids_k in zip(queries_Q, found.scores, found.ids, strict=True):
                    rows = [(score, int(row)) for score, row in zip(scores_k, ids_k, strict=True) if row >= 0]
                    shown = [(score, row, None if texts is None else texts(row)) for score, row in rows]
                    write(output, query, shown)
                output.flush()


def _mapped(path: str) -> "np.ndarray":
    """The vectors of a .npy file, read only."""
    import numpy as np

    try:
        array = np.lib.format.open_memmap(path, "r")
    except (ValueError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: expected a .npy file of vectors, as encode -o FILE.npy writes; {reason}") from None
    if array.ndim != 2 or array.dtype not in (np.float32, np.int8, np.uint8):
        raise InputError(f"{path}: expected float32 vectors or packed bits, got {array.dtype} of shape {array.shape}")
    return array


def _texts(path: str, rows: int, vectors_path: str) -> Callable[[int], str]:
    """A function from a row to its line of a file, which has as many."""
    with open_bytes(path) as file:
        lines = list(raw_lines(file, path))
    if len(lines) != rows:
        raise InputError(f"{path} has {len(lines):,} lines, {vectors_path} {rows:,} vectors: expected a line for each")
    return lambda row: as_text(lines[row], row + 1, path)


def _embedding(encoder: "Encoder", corpus_ND: "np.ndarray", path: str) -> "Callable[[list[str]], np.ndarray]":
    """A function from queries to vectors in the form of the corpus; InputError where they have none."""
    import numpy as np

    width, dtype, most = corpus_ND.shape[1], corpus_ND.dtype, encoder.dimension
    bits = dtype != np.float32
    widest = -(-most // 8) if bits else most
    if not 0 < width <= widest:
        form = " as packed bits" if bits else ""
        raise InputError(
            f"{path} has rows of {width} {dtype}; expected 1 to {widest}, the model's {most} numbers{form}"
        )
    numbers = min(most, 8 * width if bits else width)
    options = given(
        truncate_dim=numbers if numbers < most else None, prompt_name="query" if "query" in encoder.prompts else None
    )

    def embed(queries: list[str]) -> np.ndarray:
        vectors_QD = encoder.encode(queries, **options)
        if not bits:
            return vectors_QD
        packed_QD = np.packbits(vectors_QD > 0, axis=1)
        return packed_QD if dtype == np.uint8 else (packed_QD ^ 0x80).view(np.int8)

    return embed


def _write_table(headed: bool, decimals: int, output: Output, query: str, rows: list[_Row]) -> None:
    if headed:
        output.write(f"{query}\n".encode())
    for rank, (score, row, text) in enumerate(rows, start=1):
        columns = [str(rank), f"{score:.{decimals}f}", str(row), *([] if text is None else [text])]
        output.write(("\t".join(columns) + "\n").encode())


def _write_json(output: Output, query: str, rows: list[_Row]) -> None:
    results = []
    for score, row, text in rows:
        number = float(str(score)) if math.isfinite(score) else None  # the shortest decimals of the float32
        results.append({"score": number, "row": row} | ({} if text is None else {"text": text}))
    output.write((json.dumps({"query": query, "results": results}, ensure_ascii=False) + "\n").encode())
