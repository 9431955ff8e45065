"""Translators' files: what has no translation gets one."""

import re

import polib
import pytest

from fastattn.documents.translating import translate_document
from fastattn.errors import InputError
from tests.documents.backwards import Backwards

PO = r"""# A header.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=n;\n"

#. for translators
#: a.c:1
#, c-format
msgctxt "menu"
msgid "open file %s now\n"
msgstr ""

msgid "done one"
msgstr "already"

#, fuzzy
msgid "one two"
msgstr "wrong"

msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#~ msgid "gone away"
#~ msgstr ""
"""


@pytest.mark.parametrize(
    "forms, expected",
    {
        "nplurals=1; plural=0;": {0: "left %(n)s"},
        "nplurals=2; plural=(n != 1);": {0: "left 1", 1: "left %(n)s"},
        "nplurals=2; plural=n>1": {0: "left 1", 1: "left %(n)s"},
        "nplurals=3; plural=(n==1 ? 2 : n==0 ? 0 : 1);": {0: "left %(n)s", 1: "left %(n)s", 2: "left 1"},
        "": {0: "left 1", 1: "left %(n)s"},
    }.items(),
)
def test_plural_forms(forms, expected):
    header = f'msgid ""\nmsgstr ""\n"Plural-Forms: {forms}\\n"\n\n' if forms else ""
    page = header + 'msgid "1 left"\nmsgid_plural "%(n)s left"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    (entry,) = polib.pofile(translate_document(Backwards(), page.encode(), "po").decode() + "\n")
    assert entry.msgstr_plural == expected


def test_plural_forms_that_cannot_be_read():
    page = 'msgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2; plural=import os;\\n"\n\nmsgid "a"\nmsgstr ""\n'
    with pytest.raises(InputError, match="^a: Plural-Forms: "):
        translate_document(Backwards(), page.encode(), "po", name="a")


def test_po():
    found = polib.pofile(translate_document(Backwards(), PO.encode(), "po").decode() + "\n")
    entry, done, fuzzy, plural, gone = found
    assert (entry.msgid, entry.msgstr, entry.msgctxt) == ("open file %s now\n", "now %s file open\n", "menu")
    assert entry.comment == "for translators" and entry.occurrences == [("a.c", "1")] and entry.flags == ["c-format"]
    assert done.msgstr == "already" and (fuzzy.msgstr, fuzzy.flags) == ("two one", [])
    assert plural.msgstr_plural == {0: "files %d", 1: "file one", 2: "files %d"}
    assert gone.obsolete and gone.msgstr == "" and found.header == "A header."
    again = translate_document(Backwards(), f"{found}".encode(), "po").decode()
    assert again.strip() == f"{found}".strip()


XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<!-- kept -->
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file><body>
<trans-unit id="1"><source>one <g id="1">two <x id="2"/>three</g> four</source></trans-unit>
<trans-unit id="2"><source>one two</source><target state="final">there</target></trans-unit>
<trans-unit id="3" translate="no"><source>one two</source></trans-unit>
<trans-unit id="4"><source>one two</source><target state="new" x="y">one two</target><note>n</note></trans-unit>
</body></file></xliff>"""


def test_a_fuzzy_message_with_plural_forms_is_translated_anew():
    page = 'msgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n#, fuzzy\n'
    page += 'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] "old"\nmsgstr[1] "old %d"\n'
    (entry,) = polib.pofile(translate_document(Backwards(), page.encode(), "po").decode() + "\n")
    assert entry.msgstr_plural == {0: "file one", 1: "files %d"} and not entry.fuzzy


def test_without_a_header_there_is_none():
    page = 'msgid "one two"\nmsgstr ""\n'
    assert translate_document(Backwards(), page.encode(), "po").decode() == 'msgid "one two"\nmsgstr "two one"\n'


def test_xliff():
    found = translate_document(Backwards(), XLIFF.encode(), "xliff").decode()
    assert '<target>four <g id="1">three two <x id="2"/></g> one</target>' in found
    assert '<source>one <g id="1">two <x id="2"/>three</g> four</source>' in found and "<!-- kept -->" in found
    assert '<target state="final">there</target>' in found and "<source>one two</source></trans-unit>" in found
    assert '<target x="y">two one</target><note>n</note>' in found


def test_what_of_xliff_is_to_be_translated():
    """What is nearest says so; a target that only waits for its translation gets it."""
    unit = '<trans-unit id="{}"{}><source>one two</source>{}</trans-unit>'
    for around, of_unit, target, is_translated in (
        ("", "", "", True),
        (' translate="no"', "", "", False),
        (' translate="no"', ' translate="yes"', "", True),
        (' translate="yes"', ' translate="no"', "", False),
        ("", "", "<target/>", True),
        ("", "", "<target>there</target>", False),
        ("", "", '<target state="translated">there</target>', False),
        *(
            ("", "", f'<target state="{state}">there</target>', True)
            for state in ("new", "needs-translation", "initial")
        ),
        ("", ' state="initial"', "<target>there</target>", True),
    ):
        group = f"<group{around}>{unit.format(1, of_unit, target)}</group>"
        page = f'<xliff version="1.2"><file><body>{group}</body></file></xliff>'
        found = translate_document(Backwards(), page.encode(), "xliff").decode()
        assert ("<target>two one</target>" in found) == is_translated, page
        assert is_translated or page in found


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (
            "<source>a <mrk mtype='protected'>b c</mrk> d</source>",
            "<target>d a <mrk mtype='protected'>b c</mrk></target>",
        ),
        ("<source><![CDATA[A & B]]></source>", "<target>B &amp; A</target>"),
        (
            "<source>a b. c d.</source><seg-source><mrk mtype='seg' mid='1'>a b.</mrk> "
            "<mrk mtype='seg' mid='2'>c d.</mrk></seg-source>",
            "</seg-source><target><mrk mtype='seg' mid='1'>b. a</mrk> <mrk mtype='seg' mid='2'>d. c</mrk></target>",
        ),
    ],
)
def test_parts_of_a_unit(unit, expected):
    document = f"<xliff version='1.2'><file><body><trans-unit id='1'>{unit}</trans-unit></body></file></xliff>"
    found = translate_document(Backwards(), document.encode(), "xliff").decode()
    assert re.sub(r"\s+", "", expected.replace("'", '"')) in re.sub(r"\s+", "", found)


def test_xliff_2():
    page = (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="pt"><file id="f">'
        '<unit id="u"><segment><source>one <pc id="1">two</pc> <ph id="2"/>three</source></segment>'
        '<ignorable><source> a b </source></ignorable></unit></file></xliff>'
    )  # fmt: skip
    found = translate_document(Backwards(), page.encode(), "xliff").decode()
    assert '<target>three <pc id="1">two</pc> <ph id="2"/>one</target>' in found and found.count("<target") == 1


def test_what_is_damaged():
    for form, data, message in (
        ("po", b"hello", "^a: not a PO file: it has no msgid$"),
        ("po", b'msgid "a"\nfoo bar\n', "^a: not a PO file: "),
        ("xliff", b"<xliff><file>", "^a: not XML: "),
        ("xliff", b"<html/>", "^a: expected XLIFF, whose first element is xliff, found html$"),
        ("xliff", b'<!DOCTYPE x [<!ENTITY e "e">]><xliff>&e;</xliff>', "^a: declares entities, which are not read$"),
        ("xliff", b"", "^a: not XML: "),
    ):
        with pytest.raises(InputError, match=message):
            translate_document(Backwards(), data, form, name="a")


def test_entities_are_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret words")
    page = f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]><xliff><source>a &e;</source></xliff>'
    with pytest.raises(InputError, match="declares entities"):
        translate_document(Backwards(), page.encode(), "xliff")
