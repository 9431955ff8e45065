"""``fastattn search``: finds the rows of a file of vectors that are most similar to queries."""

import math
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.lines import open_lines, open_output
from fastattn.cli.options import declare, open_model, without_none
from fastattn.cli.printing import Progress, as_json
from fastattn.cli.vector_options import open_array
from fastattn.errors import InputError
from fastattn.printable import counted
from fastattn.system.files import as_text, open_bytes, raw_lines

if TYPE_CHECKING:
    import numpy as np

    from fastattn.encoders.encoder import Encoder

QUERIES_AT_ONCE = 64  # queries for which the vectors are read together
_FoundRow = tuple[Any, int, str | None]  # score, row, text


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
FILE has vectors as `fastattn encode` writes them, or any .npy of float32 or
float16; packed bits (ubinary and binary), which are compared by how many
differ; or, with --calibration, int8 or uint8. A .npy is mapped, not loaded;
.jsonl and .csv are read whole. A vector of nan, of a line that failed, is
never found. Vectors narrower than the model's are compared with the first
numbers of a query's (Matryoshka).
"""
)
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@declare(
    """
-i, --input FILE -> vectors_path: The vectors to search. [required]
--texts FILE -> texts_path: Show the lines of FILE, one for each vector.
--model
-k, --top-k INTEGER>=1: How many rows to find (default: 10).
--score-function [cosine|dot]: How vectors of numbers are compared (default: cosine).
--calibration FILE: For int8 and uint8 numbers: the float vectors that they were calibrated with.
--json: Write JSON lines.
--precision [float32|bfloat16|int8|auto]
--threads
--device
""",
    top_k={"default": 10},
    score_function={"default": "cosine"},
)
def search(
    queries: tuple[str, ...],
    vectors_path: str,
    texts_path: str | None,
    model: str | None,
    top_k: int,
    score_function: str,
    calibration: str | None,
    json: bool,
    **options: Any,
) -> None:
    """Find the vectors of a file that are most similar to QUERYs, or to the lines of standard input.

    -m names the model that made the vectors. The default is minilm, for English.
    """
    lines = open_lines(queries, None, from_file="<")
    with open_output(None) as output, Progress() as progress:
        corpus_ND = open_array(vectors_path)
        if corpus_ND.ndim != 2 or corpus_ND.dtype not in ("float32", "float16", "int8", "uint8"):
            expected = "vectors of float32, float16, int8 or uint8 are expected"
            raise InputError(f"{vectors_path}: {expected}, got {corpus_ND.dtype} {corpus_ND.shape}")
        if corpus_ND.dtype.kind == "f" and calibration is not None:
            raise click.UsageError(f"--calibration is for int8 and uint8; {vectors_path} has {corpus_ND.dtype}")
        text_of_row = None if texts_path is None else _text_of_row(texts_path, len(corpus_ND), vectors_path)
        encoder, _ = open_model("Encoder", model, progress, **options)
        from fastattn.vectors.search import semantic_search

        progress.clear()
        search_options = {"threads": options["threads"], **without_none(device=options["device"])}
        query_options = _query_options(encoder, corpus_ND, vectors_path, calibration)
        function = "hamming" if query_options.get("output_dtype", "float32").endswith("binary") else score_function
        decimals, with_query = 0 if function == "hamming" else 4, len(queries) != 1
        for burst in lines.bursts():
            while queries_Q := list(islice(burst, QUERIES_AT_ONCE)):
                vectors_QD = encoder.encode_query(queries_Q, **query_options)
                result = semantic_search(vectors_QD, corpus_ND, top_k, function, **search_options)
                for query, scores_k, ids_k in zip(queries_Q, result.scores, result.ids, strict=True):
                    pairs = [(score, int(row)) for score, row in zip(scores_k, ids_k, strict=True) if row >= 0]
                    rows = [(score, row, None if text_of_row is None else text_of_row(row)) for score, row in pairs]
                    table = f"{query}\n" * with_query + _as_table(rows, decimals)
                    output.write((_as_json(query, rows) if json else table).encode())
                output.flush()


def _text_of_row(path: str, rows: int, vectors_path: str) -> Callable[[int], str]:
    """A function that gives a row's text, its line in the file; InputError unless the file has ``rows`` lines."""
    with open_bytes(path) as file:
        lines = list(raw_lines(file, path))
    if len(lines) != rows:
        counts = f"{path} has {counted(len(lines), 'line')}, {vectors_path} {counted(rows, 'vector')}"
        raise InputError(f"{counts}: expected a line for each")
    return lambda row: as_text(lines[row], row + 1, path)


def _query_options(encoder: "Encoder", corpus_ND: "np.ndarray", path: str, calibration: str | None) -> dict[str, Any]:
    """Arguments of ``encode_query`` for query vectors like the corpus; InputError if the model makes no such vectors.

    calibration  a file of float vectors, for the ranges of whole numbers; None: whole numbers are packed bits
    """
    from fastattn.vectors.quantized import calibrated_ranges

    width, dtype, dimension = corpus_ND.shape[1], str(corpus_ND.dtype), encoder.dimension
    is_packed = corpus_ND.dtype.kind != "f" and calibration is None
    most_columns = -(-dimension // 8) if is_packed else dimension
    if not 0 < width <= most_columns:
        form = " as packed bits; --calibration is for other bytes" if is_packed else ""
        raise InputError(
            f"{path} has rows of {width} {dtype}; expected 1 to {most_columns}, the model's {dimension} numbers{form}"
        )
    dimensions = min(dimension, 8 * width if is_packed else width)
    options: dict[str, Any] = {"truncate_dim": dimensions if dimensions < dimension else None}
    if is_packed:
        options["output_dtype"] = "ubinary" if dtype == "uint8" else "binary"
    elif calibration is not None:
        options |= {"output_dtype": dtype, "ranges": calibrated_ranges(open_array(calibration), dimensions)}
    return options


def _as_table(rows: list[_FoundRow], decimals: int) -> str:
    lines = []
    for rank, (score, row, text) in enumerate(rows, start=1):
        lines.append("\t".join([str(rank), f"{score:.{decimals}f}", str(row), *([] if text is None else [text])]))
    return "".join(f"{line}\n" for line in lines)


def _as_json(query: str, rows: list[_FoundRow]) -> str:
    results = []
    for score, row, text in rows:
        fraction = float(str(score)) if math.isfinite(score) else None  # the shortest decimal fraction of the float32
        results.append({"score": fraction, "row": row} | ({} if text is None else {"text": text}))
    return as_json({"query": query, "results": results}) + "\n"
