"""Documents of real life: their structure, their speed beside lines, and how surely languages are found."""

import sysconfig
import time
from collections import Counter
from pathlib import Path

from bench.checks import Data, Findings, check, need
from bench.timing import alternate
from fastattn import Translator, translate_document
from fastattn.text.detecting import likely_languages

PAGES, LARGEST = 10, 150_000  # bytes of a page
PLACES = (Path("/usr/share/doc"), Path(sysconfig.get_path("stdlib")), Path("/usr/lib/node_modules"))
SHARE = 0.9  # of the speed of lines


@check(
    "documents-html",
    f"{PAGES} pages of documentation on this machine, en-pt: html5lib finds the same elements with the same parents in "
    "the translation",
)
def pages(findings: Findings, data: Data) -> None:
    need("html5lib")
    found = dict[str, Path]()
    for place in PLACES:
        for path in sorted(place.rglob("*.html")):
            if 5000 < path.stat().st_size < LARGEST and not path.is_symlink():
                found.setdefault("/".join(path.parts[:6]), path)
    with Translator("en-pt") as translator:
        for path in list(found.values())[:PAGES]:
            before = path.read_bytes()
            start = time.perf_counter()
            after = translate_document(translator, before, "html", name=str(path))
            seconds = time.perf_counter() - start
            elements = _elements(before)
            same = sum((elements & _elements(after)).values())
            findings.at_least(
                path.name, same / elements.total(), f"of {elements.total()} elements", 1.0, f"{seconds:.1f} s"
            )
            findings.at_most("more", _elements(after).total() - elements.total(), "", 0)
    findings.at_least("pages", len(found), "", PAGES)


def _elements(page: bytes) -> Counter[tuple[str, ...]]:
    """How often each element stands in each path of elements."""
    import html5lib

    counts: Counter[tuple[str, ...]] = Counter()

    def count(element: object, path: tuple[str, ...]) -> None:
        path = (*path, str(element.tag))  # type: ignore[attr-defined]
        counts[path] += 1
        for child in element:  # type: ignore[attr-defined]
            count(child, path)

    count(html5lib.parse(page, namespaceHTMLElements=False), ())
    return counts


@check(
    "documents-lines", "a text of 1,000 paragraphs, with blank lines and blanks around: each line's form is as it was"
)
def lines(findings: Findings, data: Data) -> None:
    texts = data.flores("en")
    document = "".join(
        f"{'  ' * (n % 3)}{texts[n % len(texts)]}{' ' * (n % 2)}\n" + "\n" * (n % 4) + "   \n" * (n % 7 == 0)
        for n in range(1000)
    )
    with Translator("en-pt") as translator:
        found = translate_document(translator, document.encode(), "txt").decode()
    before, after = document.split("\n"), found.split("\n")
    findings.at_most("lines more or less", abs(len(before) - len(after)), f"of {len(before)}", 0)
    forms = [(len(one) - len(one.lstrip()), len(one) - len(one.rstrip()), not one.strip()) for one in before]
    same = sum(
        form == (len(one) - len(one.lstrip()), len(one) - len(one.rstrip()), not one.strip())
        for form, one in zip(forms, after)
    )
    findings.at_least("lines of the same form", same, f"of {len(before)}", len(before))


@check(
    "documents-speed",
    f"500 sentences of FLORES, en-pt: as paragraphs of HTML, plain and with a tag in each, at least {SHARE} of the "
    "speed of lines",
)
def speed(findings: Findings, data: Data) -> None:
    texts = data.flores("en")[:500]
    plain = "".join(f"<p>{text}</p>\n" for text in texts).encode()
    tagged = "".join(f"<p>{' '.join(['<b>' + text.split()[0] + '</b>', *text.split()[1:]])}</p>\n" for text in texts)
    with Translator("en-pt") as translator:
        times = alternate(
            {
                "lines": lambda: list(translator.translate_iter(texts)),
                "paragraphs": lambda: translate_document(translator, plain, "html"),
                "tags": lambda: translate_document(translator, tagged.encode(), "html"),
            },
            rounds=7,
            seconds=90.0,
        )
    for name in ("paragraphs", "tags"):
        findings.at_least(name, times["lines"] / times[name], "of the speed of lines", SHARE, f"{times[name]:.2f} s")


@check("detection", "the language of each sentence of FLORES dev, en, pt and zh, among a hundred: at least 95% right")
def detection(findings: Findings, data: Data) -> None:
    for language in ("en", "pt", "zh"):
        texts = data.flores(language)
        found = [likely_languages(text, most=1)[0] for text in texts]
        right = sum(code.partition("-")[0] == language for code, _ in found)
        sure = [code.partition("-")[0] == language for code, share in found if share >= 0.8]
        remark = f"{len(sure)} sure, of which {len(sure) - sum(sure)} wrong"
        findings.at_least(f"{language}:", 100 * right / len(texts), "%", 95.0, remark)
