"""What a reader meets first: a short README, links that lead somewhere, nothing twice, every public name described."""

import configparser
import re
from collections import defaultdict
from pathlib import Path

import fastattn
from fastattn.cli.inspect import _EXTRAS
from tests import ROOT
from tests.clone.test_docs import anchors

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A number, or a range of numbers, with a unit of speed, size or quality.
NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNIT = r"(?:ms|us|seconds|minutes|hours|[KMG]B|BLEU|tokens(?: a second)?|times as)\b|%"
FIGURE = re.compile(rf"(?<![\w.,-]){NUMBER}(?: (?:to|or|and) {NUMBER})?(?:\s(?:{UNIT})|%)")
RUN = 3  # lines of code, or rows of a table, that no two places share


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_readme_is_read_in_a_minute() -> None:
    text = text_of(ROOT / "README.md")
    assert len(text.splitlines()) <= 160 and len(text.encode()) <= 10_000
    beginning = "\n".join(text.splitlines()[:60])
    for answer in ("private", "docs/models.md", "docs/serving.md", "docs/performance.md", "pip install fastattn"):
        assert answer in beginning, answer


def test_links_lead_to_pages_and_headings() -> None:
    """MkDocs checks those between its own pages; here are those of the files around them too."""
    count = 0
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(page)):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor:
                assert anchor in anchors(text_of(target)), f"{page.name}: {link}"
            count += 1
    assert count > 80


def test_no_table_and_no_snippet_stands_in_two_places() -> None:
    places: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for page in PAGES:
        for block in re.findall(r"^```\w+\n(.*?)^```$|((?:^\|.*\n)+)", text_of(page), re.DOTALL | re.MULTILINE):
            lines = [line.strip() for line in "".join(block).splitlines() if len(line.strip()) > 4]
            for start in range(len(lines) - RUN + 1):
                places[tuple(lines[start : start + RUN])].add(page.name)
    assert len(places) > 300
    assert not {lines: pages for lines, pages in places.items() if len(pages) > 1}


def test_every_figure_stands_in_a_file_of_results() -> None:
    """Numbers with a unit, but for those of the tables that the results write and of snippets."""
    results = "\n".join(text_of(path) for path in sorted((ROOT / "bench" / "results").rglob("*.md")))
    count = 0
    for page in PAGES:
        prose = re.sub(r"<!-- (\w+): written.*?<!-- end of \1 -->|```.*?```", "", text_of(page), flags=re.DOTALL)
        for figure in FIGURE.finditer(prose):
            assert figure[0].replace("\n", " ") in results, f"{page.name}: {figure[0]}"
            count += 1
    assert count > 50


def test_the_reference_has_every_public_name() -> None:
    described = set(re.findall(r"^::: fastattn\.(\w+)$", text_of(ROOT / "docs/reference/python.md"), re.MULTILINE))
    assert described >= set(fastattn.__all__) - {"__version__"}


def test_version_and_requirements_are_everywhere_the_same() -> None:
    version = fastattn.__version__
    recipe = text_of(ROOT / "conda/meta.yaml")
    assert f"\nversion: {version}\n" in text_of(ROOT / "CITATION.cff")
    assert f'set version = "{version}"' in recipe
    assert re.search(r"^## (\S+)", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)[1] == version  # type: ignore[index]
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    required = settings["options"]["install_requires"].split("\n")
    names = {line.partition(";")[0].strip() for line in required if line}
    extras = set(settings["options.extras_require"]) - {"test", "check", "docs"}
    listed = re.findall(r"^\| `fastattn\[(\w+)\]`", text_of(ROOT / "docs/index.md"), re.MULTILINE)
    assert extras == set(_EXTRAS) == set(listed)
    run = recipe.partition("  run:\n")[2].partition("\ntest:")[0]
    assert {line.strip("- ").replace(" ", "") for line in run.splitlines() if line} == names | {"python>=3.10"}
