"""Translations as ``fastattn translate`` writes them: a line each, or a JSON object."""

import math
from typing import Any

from fastattn.cli.lines import InputLine
from fastattn.cli.printing import as_json
from fastattn.system.files import OutputFile, one_line


def _links(line: InputLine, result: Any) -> str:
    from fastattn.translation.alignment import pharaoh, word_links

    return pharaoh(line.text, result.text, word_links(line.text, result))


class Printing:
    """Writes results one by one, as text or as JSON lines, and flushes each.

    marks      write the reason in the place of a line that failed
    languages  that were asked for, for JSON
    """

    def __init__(
        self, output: OutputFile, as_json: bool, scores: bool, hypotheses: int, marks: bool, languages: dict[str, str]
    ):
        self.lines = self.marked = self.unsure = 0
        self.first = self.first_unsure = ""  # of those marked, and of those whose language is
        self._output = output
        self._as_json = as_json
        self._scores = scores
        self._numbered = hypotheses > 1
        self._marks, self._languages = marks, languages
        self.alignments = False  # whether links of words are written too

    def write(self, line: InputLine, result: Any) -> None:
        self.lines += 1
        if getattr(result, "language", "") and not result.sure:  # which was found, and may be another
            self.first_unsure = self.first_unsure or f"{line.location}: {result.language} ({result.confidence:.0%})"
            self.unsure += 1
        if found := getattr(result, "remarks", ()):
            self.first = self.first or f"{line.location}: {', '.join(found)}"
            self.marked += 1
        if self._as_json:
            text = as_json(self._record(line, result), allow_nan=False)
        elif line.error is not None:
            text = self._line(f"[not translated: {line.error}]" if self._marks else "", math.nan)
        else:
            text = "\n".join(map(self._line, result.hypotheses, result.scores))
            text += f" ||| {_links(line, result)}" if self.alignments else ""
        self._output.write((text + "\n").encode("utf-8", "surrogatepass"))
        self._output.flush()

    def _record(self, line: InputLine, result: Any) -> dict[str, Any]:
        if line.error is not None:
            reason = {"error": str(line.error)} if self._marks else {}
            return {"source": line.text, "translation": "", "hypotheses": []} | reason
        hypotheses = [
            {"text": text, "score": score if math.isfinite(score) else None}
            for text, score in zip(result.hypotheses, result.scores)
        ]
        remarks: dict[str, Any] = {"remarks": list(result.remarks)} if hasattr(result, "remarks") else {}
        remarks |= {"through": result.through[0]} if getattr(result, "through", None) else {}
        if self.alignments:
            remarks["alignment"] = _links(line, result)
        if hasattr(result, "exact"):
            remarks["memory"] = "exact" if result.exact else [one._asdict() for one in result.near]
        if hasattr(result, "language"):
            remarks["detected"] = {"language": result.language, "confidence": round(result.confidence, 3)}
        return {"source": line.text, "translation": result.text, "hypotheses": hypotheses} | self._languages | remarks

    def _line(self, hypothesis: str, score: float) -> str:
        text = one_line(hypothesis)
        if self._scores:
            text = f"{score:.6f}\t{text}"
        return f"{self.lines}\t{text}" if self._numbered else text
