"""Tables and records: chosen fields, everything else as it was."""

import json

import pytest

from fastattn.documents.translating import translate_document
from fastattn.errors import InputError
from tests.documents.backwards import Backwards

CSV = 'id,text,more\r\n1,"one, two",x y\r\n2,"three ""four""\nfive",x y\r\n3\r\n'


def translated(form, data, *fields):
    return translate_document(Backwards(), data.encode(), form, name="a", fields=fields).decode()


def test_csv():
    assert translated("csv", CSV, "text") == 'id,text,more\r\n1,"two one,",x y\r\n2,"""four"" three\nfive",x y\r\n3\r\n'
    assert translated("csv", CSV, "text", "more").count("y x") == 2
    assert translated("csv", CSV, "3") == CSV.replace("x y", "y x")
    assert translated("csv", "one two\n", "1") == "two one\n"
    assert translated("csv", "<p>one <b>two</b></p>\n", "1") == "<p><b>two</b> one</p>\n"
    assert (
        translated("csv", "", "1") == ""
        and translated("csv", "\ufefftext\none two\n", "text") == "\ufefftext\ntwo one\n"
    )


def test_tsv():
    assert translated("tsv", "a\tb\none two\tc d\n", "a") == "a\tb\ntwo one\tc d\n"
    assert translated("tsv", "a\tb\none, two\tc d\n", "a") == "a\tb\ntwo one,\tc d\n"


def test_semicolons():
    """They are told by the names of columns, or by rows of as many cells."""
    table = 'id;text\n1;"one, %ls\ntwo"\n2;three, four\n'
    expected = 'id;text\n1;"two\n%ls one,"\n2;four three,\n'
    assert (
        translated("csv", table, "text")
        == translated("csv", table, "2")
        == expected.replace("two\n%ls one,", "%ls one,\ntwo")
    )
    assert translated("csv", "a,b;c\none two,x;y\n", "a") == "a,b;c\ntwo one,x;y\n"
    assert translated("csv", "one; two\nthree\n", "1") == "two one;\nthree\n"


def test_quotes_in_tsv():
    """Quotes around fields are a table's own; within a field they are text, and so they stay."""
    quoted = 'a\tb\n"one\ttwo three"\t"say ""c d"""\n'
    assert translated("tsv", quoted, "b") == 'a\tb\n"one\ttwo three"\t"d"" ""c say"\n'
    assert translated("tsv", 'a\tb\n5" one\t6" two\n', "a") == 'a\tb\none 5"\t6" two\n'
    assert translated("tsv", 'a\tb\n"one two\tc\n', "a") == 'a\tb\ntwo "one\tc\n'
    with pytest.raises(InputError, match="not a table: the quote in line 2 does not end a cell"):
        translated("csv", 'a,b\n"one two,c\n', "a")


def test_json_lines():
    lines = [
        {"a": "one two", "b": {"c": "three four", "d": 1}},
        {"a": None, "b": {"c": ["five six", 2]}},
        {"b.c": "x y"},
    ]
    data = "\n".join([json.dumps(lines[0]), "", *map(json.dumps, lines[1:])]) + "\r\n"
    found = translated("jsonl", data, "a", "b.c")
    first, empty, second, third, end = found.split("\n")
    assert json.loads(first) == {"a": "two one", "b": {"c": "four three", "d": 1}} and empty == "" and end == ""
    assert json.loads(second) == {"a": None, "b": {"c": ["six five", 2]}} and third == '{"b.c": "y x"}\r'


def test_json_lines_stay_as_they_are_written_but_for_their_texts():
    line = '{"n":1.10, "m" : -0, "a":"one \\u00e9", "x":{"a":"no", "l":[{"a":"b"},"c"]},"z\\"}":1e400,'
    line += '"b":["t u",[1],"v w"]}'
    found = translated("jsonl", f"  {line}\r\n\n{line}", "a", "b")
    expected = line.replace('"one \\u00e9"', '"é one"').replace("t u", "u t").replace("v w", "w v")
    assert found == f"  {expected}\r\n\n{expected}"
    assert translated("jsonl", '{"a": "b c", "a": "one two"}', "a", "a") == '{"a": "b c", "a": "two one"}'


def test_what_is_wrong():
    for form, data, fields, message in (
        ("csv", CSV, ("nothing",), "^a: has no column 'nothing'; it has id, text, more$"),
        ("csv", CSV, ("4",), "^a: has 3 columns, and no column 4$"),
        ("csv", CSV, ("0",), "no column 0$"),
        ("csv", 'a,"b', ("1",), "^a: not a table: "),
        ("csv", CSV, (), "^a: name the fields to translate$"),
        ("html", "<p>", ("a",), "^a: html has no fields$"),
        ("jsonl", "{}\n{", ("a",), "^a, line 2: not JSON: "),
        ("jsonl", "[]\n", ("a",), "^a, line 1: expected a JSON object$"),
        ("jsonl", '{"b": "x"}\n', ("a", "c"), "^a: no record has a text in a or c$"),
        ("jsonl", "[" * 100_000, ("a",), "^a, line 1: not JSON: "),
        ("doc", "", (), "form of document"),
    ):
        with pytest.raises(InputError, match=message):
            translated(form, data, *fields)


def test_a_field_named_twice_is_one():
    found = translate_document(Backwards(), b"a,b\nx,one two\n", "csv", fields=["b", "b"])
    assert found == b"a,b\nx,two one\n"
