"""``fastattn classify``: reads lines and writes each with its most probable labels."""

import time
from itertools import islice
from typing import Any

import click

from fastattn.cli.lines import InputLine, open_lines, open_output, progress_text
from fastattn.cli.options import declare, open_model
from fastattn.cli.printing import Progress, as_json
from fastattn.printable import json_decimals, printable

LINES_AT_ONCE = 1024  # the most lines that are classified together, in batches of similar lengths


@click.command(
    epilog="""\b
Examples:
  fastattn classify -m ./my-classifier "What a day!"
  fastattn classify -m OWNER/NAME -i reviews.txt -o labels.tsv
  tail -f reviews.txt | fastattn classify -m ./my-classifier --all --json

\b
One line for each line, with tabs between: the label, its probability, the
text; with -k several labels, each followed by its probability, the most
probable first. --json writes JSON lines instead:
  {"text": ..., "labels": [{"label": ..., "score": ...}, ...]}

\b
Through a pipe, a FIFO or a terminal, a line is answered before the next one
comes.
"""
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@declare("""
--model
--input
--output
-k, --top-k INTEGER>=1: Write so many labels of each line (default: 1).
--all -> all_labels: Write all labels of each line.
--json: Write JSON lines.
--precision [float32|bfloat16|int8|auto]
--threads
--device
""")
def classify(
    texts: tuple[str, ...],
    model: str | None,
    input_path: str | None,
    output_path: str | None,
    top_k: int | None,
    all_labels: bool,
    json: bool,
    **options: Any,
) -> None:
    """Label TEXTs, the lines of a file, or of standard input.

    -m names a classifier: an encoder with a head that gives a text labels.
    """
    if model is None:
        raise click.UsageError("there is no default model to classify with; name one with -m")
    if all_labels and top_k is not None:
        raise click.UsageError("give --top-k or --all, not both")
    lines = open_lines(texts, input_path)
    with open_output(output_path) as output, Progress() as progress:
        classifier, _ = open_model("TextClassifier", model, progress, **options)
        progress.enabled &= not output.is_terminal()
        start = time.monotonic()
        for burst in lines.bursts():
            while burst_texts := list(islice(burst, LINES_AT_ONCE)):
                for labels in classifier.classify(burst_texts, top_k=None if all_labels else top_k or 1):
                    line = lines.finish()
                    columns = [f"{printable(entry['label'])}\t{entry['score']:.4f}" for entry in labels]
                    text = _as_json(line, labels) if json else "\t".join([*columns, line.text])
                    output.write(f"{text}\n".encode())
                output.flush()
                progress.show(progress_text(lines, time.monotonic() - start))


def _as_json(line: InputLine, labels: list[dict[str, Any]]) -> str:
    from numpy import float32

    scores = json_decimals(float32(entry["score"]) for entry in labels)
    records = [f'{{"label": {as_json(entry["label"])}, "score": {score}}}' for entry, score in zip(labels, scores)]
    return f'{{"text": {as_json(line.text)}, "labels": [{", ".join(records)}]}}'
