"""Tables of the documents, which stand between two marks that name the command that writes them."""

import re
import sys
from pathlib import Path


class Section:
    """The text between ``<!-- NAME: written by python -m bench COMMAND -->`` and ``<!-- end of NAME -->``.

    document  None: nothing is written
    """

    def __init__(self, document: Path | None, name: str, command: str = ""):
        self.document, self._name = document, name
        begin, end = f"<!-- {name}: written by python -m bench {command or name} -->\n", f"<!-- end of {name} -->"
        self._between = re.compile(f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", re.DOTALL)

    def is_missing(self) -> bool:
        """Whether the document lacks the marks; prints a message if so."""
        if self.document is None or self._between.search(self.document.read_text(encoding="utf-8")):
            return False
        print(f"{self.document} has no marks between which {self._name!r} belongs", file=sys.stderr)
        return True

    def show(self, text: str) -> None:
        print(text)
        if self.document is not None:
            before = self.document.read_text(encoding="utf-8")
            self.document.write_text(self._between.sub(lambda _: f"\n{text}\n", before), encoding="utf-8")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
