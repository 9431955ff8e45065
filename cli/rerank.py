"""``fastattn rerank``: sorts documents by how well they answer a query."""

import math
from itertools import chain
from typing import Any

import click

from fastattn.cli.lines import open_lines, open_output
from fastattn.cli.options import TEXT, declare, open_model
from fastattn.cli.printing import Progress, as_json


@click.command(
    epilog="""\b
Examples:
  fastattn rerank -m ./my-reranker "Who eats?" "A man eats." "A plane lands."
  fastattn rerank -m OWNER/NAME "Who eats?" -i documents.txt -k 10
  grep lunch notes.txt | fastattn rerank -m ./my-reranker "Who eats?" --json

\b
One line for each document, the best first, with tabs between: rank, score and
the document. --json writes a single line instead, with the documents' rows
counted from 0:
  {"query": ..., "results": [{"score": ..., "row": ..., "text": ...}, ...]}
"""
)
@click.argument("query", type=TEXT)
@click.argument("documents", nargs=-1, metavar="[DOCUMENT]...")
@declare("""
--model
--input
-k, --top-k INTEGER>=1: Write so many of the best (default: all).
--json: Write JSON.
--precision [float32|bfloat16|int8|auto]
--threads
--device
""")
def rerank(
    query: str,
    documents: tuple[str, ...],
    model: str | None,
    input_path: str | None,
    top_k: int | None,
    json: bool,
    **options: Any,
) -> None:
    """Order DOCUMENTs, the lines of a file, or of standard input, by how well they answer QUERY.

    -m names a reranker: an encoder with a head that gives a pair of texts a score.
    """
    if model is None:
        raise click.UsageError("there is no default model to rerank with; name one with -m")
    lines = open_lines(documents, input_path)
    with open_output(None) as output, Progress() as progress:
        encoder, _ = open_model("CrossEncoder", model, progress, **options)
        progress.clear()
        texts = chain.from_iterable(lines.bursts())
        entries = encoder.rank(query, texts, top_k, return_documents=True, show_progress_bar=True)
        if json:
            output.write(_as_json(query, entries).encode())
        else:
            for rank, entry in enumerate(entries, start=1):
                output.write(f"{rank}\t{entry['score']:.4f}\t{entry['text']}\n".encode())


def _as_json(query: str, entries: list[dict[str, Any]]) -> str:
    from numpy import float32

    results = []
    for entry in entries:
        score = float(str(float32(entry["score"])))  # the shortest decimal fraction of the float32
        finite_score = score if math.isfinite(score) else None
        results.append({"score": finite_score, "row": entry["corpus_id"], "text": entry["text"]})
    return as_json({"query": query, "results": results}) + "\n"
