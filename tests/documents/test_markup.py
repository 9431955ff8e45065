"""LaTeX, RTF, reStructuredText and SubStation Alpha: what is read, and what stays."""

import re
import time

import pytest

from fastattn import translate_document
from fastattn.errors import InputError
from tests.documents.backwards import Backwards, Unchanged, grows_as_its_length

LATEX = [
    (r"\section{a b} c d", r"\section{b a} d c"),
    (r"a \emph{b c} d", r"d \emph{c b} a"),
    (r"a b\footnote{c d} e", r"e b\footnote{d c} a"),
    ("a b % c d\ne f", "b a % c d\nf e"),
    (r"a $x + y$ b \cite[p. 1]{c d} e", r"e b \cite[p. 1]{c d} $x + y$ a"),
    ("\\begin{verbatim}\na b\n\\end{verbatim}\nc d", "\\begin{verbatim}\na b\n\\end{verbatim}\nd c"),
    (
        "\\begin{itemize}\n\\item a b\n\\item[c d] e f\n\\end{itemize}",
        "\\begin{itemize}\n\\item b a\n\\item[c d] f e\n\\end{itemize}",
    ),
    ("\\begin{tabular}{l l}\na b & c d \\\\\n\\end{tabular}", "\\begin{tabular}{l l}\nb a & d c \\\\\n\\end{tabular}"),
    (r"{\bf a b} c", r"c {\bf b a}"),
    (r"a\'e 50\% b", r"b 50\% aé"),
    (r"a~b \LaTeX{} c", r"c \LaTeX{} b a"),
    (r"\caption[x y]{a b}", r"\caption[x y]{b a}"),
    (r"\unknown{a b} c d", r"\unknown{a b} d c"),
    (r"a \verb|b c| d", r"d \verb|b c| a"),
    ("a b\r\n\r\nc d", "b a\r\n\r\nd c"),
    (
        "%\\title{x y}\n\\title[x y]{a\\thanks{b c} \\emph{d e}}\\author{x y}\\date{x y}\n\\begin{document}\nf g",
        "%\\title{x y}\n\\title[x y]{\\emph{e d} a\\thanks{c b}}\\author{x y}\\date{x y}\n\\begin{document}\ng f",
    ),
    (r"\q{}a b", r"\q{}b a"),
    (r"a \href{x y}{b c} d", r"d \href{x y}{c b} a"),
    ("a `b' c `d' e", "e `d' c `b' a"),
    ("a \\\\% c d\ne f", "a \\\\% c d\nf e"),
    (r"a \\& b c", r"a \\& c b"),
    (r"a \url{x%20}\footnote{b c} d", r"d a \url{x%20}\footnote{c b}"),
    (r"a \verb|%|\footnote{b c} d", r"d \verb|%|\footnote{c b} a"),
    (r"a \textcolor {red} {b c} d", r"d \textcolor {red} {c b} a"),
    ("a \\href{u v}\n{b c} d", "d \\href{u v}\n{c b} a"),
    (r"a \textcolor[rgb]{x y}{b c} \hyperref[x]{d e} {f}", r"{f} \hyperref[x]{e d} \textcolor[rgb]{x y}{c b} a"),
    (r"\textcolor{red}b c", r"\textcolor{red}c b"),
    (
        "\\newcommand{\\x}[1]{\\title{#1 a b}}\\title{a \\# b}\n\\begin{document}",
        "\\newcommand{\\x}[1]{\\title{#1 a b}}\\title{b \\# a}\n\\begin{document}",
    ),
]


@pytest.mark.parametrize(("source", "expected"), LATEX)
def test_latex(source, expected):
    page = "\\author{x y}\n\\begin{document}\n%s\n\\end{document}\nx y\\footnote{x y}"
    page = "%s" if "\\begin{document}" in source else page
    assert translate_document(Backwards(), (page % source).encode(), "tex").decode() == page % expected


class Chinese(Backwards):
    def translate_iter(self, texts, **options):
        yield from ("\u597d" for _ in texts)


@pytest.mark.parametrize(
    ("codec", "name"),
    [("latin-1", "latin1"), ("mac-roman", "applemac"), ("cp1252", "ansinew"), ("mac-latin2", "macce")],
)
def test_a_latex_file_in_the_encoding_that_it_names(codec, name):
    page = "%% \\usepackage[utf8]{inputenc}\n\\usepackage[%s]{inputenc}\n\\begin{document}\n%s\n\\end{document}"
    source, expected = page % (name, "a ``b\xe9'' c"), page % (name, "c ``b\xe9'' a")
    assert translate_document(Backwards(), source.encode(codec), "tex") == expected.encode(codec)
    assert translate_document(Backwards(), source.encode("utf-8-sig"), "tex") == expected.encode("utf-8-sig")
    assert translate_document(Chinese(), source.encode(codec), "tex") == (page % ("utf8", "\u597d")).encode()


def test_a_part_of_latex_that_shows_a_document():
    page = "a b\n\n\\begin{verbatim}\n\\begin{document}\nc d\n\\end{document}\n\\end{verbatim}\n\n%s"
    found = translate_document(Backwards(), (page % "e f").encode(), "tex").decode()
    assert found == page.replace("a b", "b a") % "f e"


RTF = [
    (r"a b\par c d", r"b a\par d c"),
    (r"a {\b b c} d", r"d {\b c b} a"),
    (r"a \b b c\b0  d", r"d \b c b\b0  a"),
    (r"{\*\x a b}c d", r"{\*\x a b}d c"),
    (r"a \'e9 b", r"b {\uc1\u233?} a"),
    (r"a \u-10179?\u-8704? b", r"b \u-10179?\u-8704? a"),
    (r"a b\tab c d", r"b a\tab d c"),
    (r"{\fonttbl{\f0 a b;}}\f0 c d", r"{\fonttbl{\f0 a b;}}\f0 d c"),
    (r"a \{b\} c", r"c \{b\} a"),
    (r"a {\field{\*\fldinst HYPERLINK x}{\fldrslt b c}} d", r"d {\field{\*\fldinst HYPERLINK x}{\fldrslt c b}} a"),
    ("a\nb c", "c ab"),
    (r"{\uc0 a\u8217 b c} d", r"d {\uc0 c a{\uc1\u8217?}b}"),
    (r"\uc- a b", r"\uc- b a"),
    (r"a b{\footnote c d\par e {\b f}} g", r"g b{\footnote d c\par {\b f} e} a"),
    (
        r"a b{\super\chftn{\footnote\pard {\super\chftn } c d}} e",
        r"e b{\super\chftn{\footnote\pard {\super\chftn } d c}} a",
    ),
    (r"a b{\footnote c d{\footnote e f} g} h", r"h b{\footnote g d{\footnote e f} c} a"),
    (r"a b{\footnote c d ", r"b a{\footnote d c "),
    (r"{\*\x{\footnote a b}}c d", r"{\*\x{\footnote a b}}d c"),
    (r"{\pict\bin5 }}{{a}a b\bin3 c}{ d", r"{\pict\bin5 }}{{a}d b\bin3 c}{ a"),
    (r"{\bin4 {a b}c d", r"{\bin4 {a b}d c"),
    ("a b\\\nc d\\\r\ne f", "b a\\\nd c\\\r\nf e"),
    ("\\cf0\na b", "\\cf0\nb a"),
    ("\\cf0(a) b", "\\cf0 b (a)"),
    (r"{\mmathPr\mlMargin0}\cf0 a b", r"{\mmathPr\mlMargin0}\cf0 b a"),
]


@pytest.mark.parametrize(("source", "expected"), RTF)
def test_rtf(source, expected):
    page = "{\\rtf1\\ansi\\ansicpg1252 %s}"
    found = translate_document(Backwards(), (page % source).encode(), "rtf").decode()
    if "u-10179" in source:
        expected = expected.replace("\\u-10179?\\u-8704?", "{\\uc1\\u-10179?\\u-8704?}")
    assert found == page % expected


@pytest.mark.parametrize(
    ("number", "codec"),
    [
        (10000, "mac-roman"),
        (28605, "iso8859-15"),
        (936, "gbk"),
        (65001, "utf-8"),
        (10029, "mac-latin2"),
        (932, "cp932"),
    ],
)
def test_code_pages_of_rtf(number, codec):
    """A double-byte character may be an escape and an ASCII letter, such as KATAKANA LETTER DI in code page 932."""
    page = "{{\\rtf1\\ansi\\ansicpg{} {}}}"
    source, expected = ("a \\'83a", 0x30C2) if number == 932 else ("a \xfc", 0xFC)
    found = translate_document(Backwards(), page.format(number, source).encode(codec), "rtf").decode()
    assert found == page.format(number, f"{{\\uc1\\u{expected}?}} a")


RST = [
    ("a b\n===\n\nc d\n", "b a\n===\n\nd c\n"),
    ("* a b\n  c d\n* e f\n", "* d c\n  b a\n* f e\n"),
    ("a b::\n\n    c d\n\ne f\n", "b a::\n\n    c d\n\nf e\n"),
    (".. note:: a b\n\n   c d\n", ".. note:: b a\n\n   d c\n"),
    (".. code-block:: python\n\n   c d\n\ne f\n", ".. code-block:: python\n\n   c d\n\nf e\n"),
    ("a ``b c`` d\n", "d ``b c`` a\n"),
    ("a **b c** *d e* f\n", "f *e d* **c b** a\n"),
    ("a `b c <http://x>`_ d\n", "d `c b <http://x>`_ a\n"),
    (":param x: a b\n", ":param x: b a\n"),
    (".. _a: http://b c\n.. comment a b\n\nd e\n", ".. _a: http://b c\n.. comment a b\n\ne d\n"),
    ("term x\n    a b\n", "x term\n    b a\n"),
    ("+---+\n| a |\n+---+\n", "+---+\n| a |\n+---+\n"),
    (".. [1] a b\n", ".. [1] b a\n"),
    (">>> a b\nc d\n\ne f\n", ">>> a b\nc d\n\nf e\n"),
    (".. toctree::\n   :maxdepth: 2\n\n   a b\n", ".. toctree::\n   :maxdepth: 2\n\n   a b\n"),
    (".. figure:: a b.png\n   :alt: c d\n\n   e f\n", ".. figure:: a b.png\n   :alt: c d\n\n   f e\n"),
    ("=====\n a b\n=====\n", "=====\n b a\n=====\n"),
    ("a :ref:`b c` d |e| f_\n", "f_ |e| d :ref:`b c` a\n"),
    (".. deprecated:: 1.0\n   a b\n", ".. deprecated:: 1.0\n   b a\n"),
    (".. glossary::\n\n   x\n     a b\n", ".. glossary::\n\n   x\n     b a\n"),
    (
        ".. class:: f(a, b)\n   g(a, b)\n   :x: c d\n\n   a b\n\n   .. py:method:: h(a, b)\n\n      :param x: c d\n",
        ".. class:: f(a, b)\n   g(a, b)\n   :x: c d\n\n   b a\n\n   .. py:method:: h(a, b)\n\n      :param x: d c\n",
    ),
    (
        ".. option:: -x a b\n.. data:: x (a b)\n\n   a b::\n\n     c d\n\ne f\n",
        ".. option:: -x a b\n.. data:: x (a b)\n\n   b a::\n\n     c d\n\nf e\n",
    ),
    (".. Note::\n\n   a b\n", ".. Note::\n\n   b a\n"),
    (".. header:: a b\n\n.. class:: c d\n\n   e f\n", ".. header:: b a\n\n.. class:: c d\n\n   f e\n"),
    (":a b:\n  c d\n", ":a b:\n  d c\n"),
    ("- a b::\n\n    c d\n\n  e f\n", "- b a::\n\n    c d\n\n  f e\n"),
    ("__ http://x\n\n  a b\n", "__ http://x\n\n  b a\n"),
    ("..\n\n  a b\n", "..\n\n  b a\n"),
    ("..\f a b\n", "..\f a b\n"),
    ("a ``:b:`c d``` e\n", "e ``:b:`c d``` a\n"),
    ("H\\ :sub:`2`\\ O a b\n", "b a O\\ :sub:`2`\\ H\n"),
    ("a :sub:`b`\\ c d\n", "d :sub:`b`\\ c a\n"),
    ("a \\*b c\n", "c \\*b a\n"),
    ("a ``b``\\ c d\n", "d ``b``\\ c a\n"),
    ("* - a b c d\n", "* - d c b a\n"),
]


@pytest.mark.parametrize(("source", "expected"), RST)
def test_rst(source, expected):
    assert translate_document(Backwards(), source.encode(), "rst").decode() == expected


class Longer(Backwards):
    def translate_iter(self, texts, **options):
        yield from (f"{text} longer" for text in texts)


def test_a_heading_of_rst_is_as_long_as_its_text():
    assert translate_document(Longer(), b"abc\n---\n", "rst") == b"abc longer\n----------\n"


ASS = [
    (r"a b\Nc d", r"d c\Nb a"),
    (r"{\i1}a b{\i0} c", None),
    (r"{\fna b}c d\Ne f", None),
    (r"{\p1}m 0 0 l 1 1{\p0}", r"{\p1}m 0 0 l 1 1{\p0}"),
]


@pytest.mark.parametrize(("source", "expected"), ASS)
def test_ass(source, expected):
    page = "[Script Info]\nTitle: x y\n[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,%s\n"
    found = translate_document(Backwards(), (page % source).encode(), "ass").decode()
    if expected is None:
        assert all(tag in found for tag in re.findall(r"\{.*?\}", source)) and "c" in found
    else:
        assert found == page % expected


@pytest.mark.parametrize(
    ("form", "piece"),
    [
        ("tex", r"a \emph{b} $c$ {"),
        ("tex", r"\( \[ $ a"),
        ("rtf", r"{\b a} \'e9 \u8217?"),
        ("rtf", r"{\footnote {\b a} \bin1 {"),
        ("rst", "a *b `c **d "),
        *(("rst", piece * 10) for piece in ("a.", "::", "a -a ")),
        ("ass", " " * 20),
        ("ass", "Dialogue:"),
    ],
)
def test_time_grows_as_the_length(form, piece):
    joint = "" if form in ("rst", "ass") else "\n\n"
    head = {
        "ass": "[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,a",
        "rtf": "{\\rtf1 ",
        "tex": "\\begin{document}\n",
    }.get(form, "")
    grows_as_its_length(form, lambda n: head + joint.join([piece * 5] * n))


@pytest.mark.parametrize("piece", ["a::\n\n", "["])
def test_long_files_of_rst_take_seconds(piece):
    """Copies of the rest of a file, and a pattern's retries, are no steps of Python."""
    start = time.process_time()
    translate_document(Unchanged(), piece.encode() * 100_000, "rst")
    assert time.process_time() - start < 20


def test_what_is_no_such_document():
    with pytest.raises(InputError, match=r"^the document: expected RTF, which begins with \{\\rtf$"):
        translate_document(Backwards(), b"a b", "rtf")
    with pytest.raises(InputError, match=r"^the document: expected a part \[Events\]$"):
        translate_document(Backwards(), b"a b", "ass")
    with pytest.raises(
        InputError, match="^the document: says that it is in 'cp1', which is not known$".replace("cp1", "cp99999")
    ):
        translate_document(Backwards(), b"{\\rtf1\\ansicpg99999 a b}", "rtf")
