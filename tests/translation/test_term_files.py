"""Files of terms and of translations, and files that are none."""

import pytest

from fastattn.errors import InputError
from fastattn.translation.term_files import read_glossary, read_memory

TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Good <bpt i="1">x</bpt>morning<ept i="1">y</ept>.</seg></tuv>
<tuv xml:lang="pt-BR"><seg>Bom dia.</seg></tuv><tuv xml:lang="de"><seg>Guten Morgen.</seg></tuv></tu>
<tu><tuv lang="EN"><seg>Yes</seg></tuv><tuv lang="de"><seg>Ja</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>No</seg></tuv></tu>
<tu><tuv lang="en"><seg>A</seg></tuv><tuv lang="ja"><seg/></tuv><tuv lang="ja"><seg>B</seg></tuv></tu>
</body></tmx>"""
TBX = """<martif><text><body><termEntry><langSet xml:lang="en"><tig><term>car</term></tig></langSet>
<langSet xml:lang="pt"><ntig><termGrp><term>viatura</term></termGrp></ntig></langSet></termEntry></body></text>
</martif>"""


def write(folder, name, text, encoding="utf-8"):
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


def test_two_columns(tmp_path):
    path = write(tmp_path, "a.tsv", "\ufeffcar\tviatura\r\n# no\n\n one two \t um dois \n")
    assert read_glossary(path) == {"car": "viatura", "one two": "um dois"} == read_memory(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tmx(tmp_path, encoding):
    path = write(tmp_path, "a.tmx", TMX.replace('"1.0"?', f'"1.0" encoding="{encoding}"?'), encoding)
    assert read_memory(path, "en", "pt") == {"Good morning.": "Bom dia."}
    assert read_memory(path, "en", "de") == {"Good morning.": "Guten Morgen.", "Yes": "Ja"}
    assert read_memory(path, "en", "ja") == {"A": "B"}
    assert read_memory(path) == {"Good morning.": "Bom dia.", "Yes": "Ja"} and read_memory(path, "fr", "pt") == {}


def test_tbx(tmp_path):
    path = write(tmp_path, "a.TBX", TBX)
    assert read_glossary(path) == {"car": "viatura"} == read_glossary(path, "en", "pt")
    assert read_glossary(path, "pt", "en") == {"viatura": "car"}


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><tmx><tu>&b;</tu></tmx>'


def test_what_is_none(tmp_path):
    for name, text, encoding, message in [
        ("a.tsv", "car viatura\n", "utf-8", "line 1: expected a term, a tab and its translation"),
        ("a.tsv", "a\tb\n\tx\n", "utf-8", "line 2: expected a term"),
        ("a.tsv", "a\tb\tc\n", "utf-8", "line 1: expected a term"),
        ("a.tsv", "caf\u00e9\tb\n", "latin-1", "not UTF-8"),
        ("a.tmx", "<tmx>", "utf-8", "not XML: "),
        ("a.tmx", "", "utf-8", "not XML: "),
        ("a.tmx", "<tmx/>", "utf-8", "has no tu$"),
        ("a.tmx", BOMB, "utf-8", "declares entities"),
        ("a.tmx", BOMB, "utf-16", "declares entities"),
    ]:
        with pytest.raises(InputError, match=message):
            read_memory(write(tmp_path, name, text, encoding))


def test_what_is_not_there(tmp_path):
    for name in ("a.tsv", "a.tmx"):
        with pytest.raises(InputError, match="cannot read"):
            read_memory(tmp_path / name)
