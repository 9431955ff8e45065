"""Prints the Markdown table of published models: what each needs, and its largest difference to sentence-transformers.

Run from the root, in an environment with sentence-transformers: python -m tests.architectures.run_published [NAME...]
"""

import sys
import tempfile
from pathlib import Path

from fastattn.errors import FastattnError
from tests.architectures.published import ENCODERS, RERANKERS, Published
from tests.architectures.published_comparison import compare


def row(published: Published) -> str:
    """A line of the table; a model that is not supported says why."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            difference = compare(published, Path(folder))
        except FastattnError as error:
            return f"| {published.name} | {published.needs} | {str(error).rpartition('/')[2]} |"
    return f"| {published.name} | {published.needs} | {difference.largest:.1e} |"


def main() -> None:
    chosen = [
        published
        for published in [*ENCODERS, *RERANKERS]
        if not sys.argv[1:] or any(name in published.name for name in sys.argv[1:])
    ]
    print("| model | needs, beside BERT | largest difference |\n| --- | --- | --- |")
    for published in chosen:
        print(row(published), flush=True)


if __name__ == "__main__":
    main()
