"""The part of YAML that Marian writes: maps of scalars and lists, and vocabularies of one token a line.

Values stay text, spelled as in the file; the caller interprets it.
"""

import re
from collections.abc import Iterator

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import decode, is_text, parse_json, shorten

Value = str | list[str] | None

KEY = re.compile(r"([A-Za-z0-9_.-]+)[ \t]*:(?:[ \t]+(.*))?")
ITEM = re.compile(r"[ \t]*-(?:[ \t]+(.*))?")
COMMENT = re.compile(r"(?:^|(?<=[ \t]))#")
QUOTED = r'"(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\''
QUOTED_VALUE = re.compile(rf"({QUOTED})(?:[ \t]+#.*)?")
RESERVED = tuple("&*!|>%@`{}[]\"',")  # begin no plain value, but anchors, tags, blocks and so on
FLOW_LIST = re.compile(r"\[(.*)\](?:[ \t]+#.*)?")
# A quote may lack its end: a pattern that needs the end would look for it from every quote, in quadratic time.
FLOW_PART = re.compile(r'"(?:[^"\\]|\\.)*"?|\'(?:[^\']|\'\')*\'?|,|[^,"\']+')
FLOW_ITEM = re.compile(rf"{QUOTED}|[^,&*!|>%@`{{}}\[\]\"'][^{{}}\[\]\"']*")
LONGEST_LINE = 1 << 16  # bytes
NULLS = ("", "~", "null", "Null", "NULL")

ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))", re.DOTALL)
ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b", " ": " ",
    '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip


def parse_options(data: bytes, where: str) -> dict[str, Value]:
    """A map from names to scalars and lists of scalars; CheckpointError, which names the line, for anything else."""
    options: dict[str, Value] = {}
    items: list[str] | None = None  # the list of the last key, if the key may have one
    for location, line in _read_lines(data, where):
        if line.lstrip().startswith("#"):
            continue
        key, item = KEY.fullmatch(line), ITEM.fullmatch(line)
        if key is not None:
            name, value = key.groups()
            if name in options:
                raise CheckpointError(f"{location}: {name} is given twice")
            options[name] = _parse_value(value or "", location)
            items = [] if options[name] is None and not (value or "").startswith(NULLS[1:]) else None
        elif item is not None and items is not None:
            items.append(_parse_scalar(item[1] or "", location) or "")
            options[name] = items
        else:
            raise CheckpointError(f"{location}: should be 'name: value' or '- value', is {shorten(line.strip())}")
    return options


def parse_vocabulary(data: bytes, where: str) -> dict[int, str]:
    """{id: token} of a vocab.yml, which may be JSON; CheckpointError for a line that is no entry."""
    if data[:1] == b"{":
        return _json_vocabulary(data, where)
    tokens: dict[int, str] = {}
    key = ""  # the first line, without "? ", of an entry on two lines
    for location, line in _read_lines(data, where):
        if not key and line.startswith("? "):
            key = line[2:]
            continue
        token, _, number = (key + line).rpartition(":")
        number = number.strip(" \t")
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise CheckpointError(f"{location}: should be 'token: id', is {shorten(line)}")
        key, index = "", int(number)
        if index in tokens:
            raise CheckpointError(f"{location}: id {index} is given twice")
        tokens[index] = _unquote(token.rstrip(" \t"), location)
    return tokens


def _json_vocabulary(data: bytes, where: str) -> dict[int, str]:
    entries = parse_json(data, where)
    if not all(is_text(token) and type(index) is int and index >= 0 for token, index in entries.items()):
        raise CheckpointError(f"{where}: should hold a JSON object of tokens and their ids")
    tokens = {index: token for token, index in entries.items()}
    if len(tokens) != len(entries):
        raise CheckpointError(f"{where}: two tokens have the same id")
    return tokens


def _read_lines(data: bytes, where: str) -> Iterator[tuple[str, str]]:
    """(the line's name in errors, its text) of each line that is neither empty nor a document marker."""
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        location = f"{where}: line {number}"
        if len(raw) > LONGEST_LINE:
            raise CheckpointError(f"{location}: has {len(raw)} bytes, more than {LONGEST_LINE}")
        line = decode(raw.removesuffix(b"\r"), location)
        if line.strip() and line.rstrip() not in ("---", "..."):
            yield location, line


def _parse_value(text: str, location: str) -> Value:
    flow = FLOW_LIST.fullmatch(text.strip())
    if flow is None:
        return _parse_scalar(text, location)
    items: list[str] = []
    item: str | None = None
    for part in FLOW_PART.findall(flow[1] + ("," if flow[1].strip() else "")):
        part = part.strip()
        if part == "," and item is not None:
            items.append(_unquote(item, location))
            item = None
        elif part and (item is not None or FLOW_ITEM.fullmatch(part) is None):
            raise CheckpointError(f"{location}: should be a list of values, is {shorten(text)}")
        elif part:
            item = part
    return items


def _parse_scalar(text: str, location: str) -> str | None:
    text = text.strip()
    match = QUOTED_VALUE.fullmatch(text)
    if match is not None:
        return _unquote(match[1], location)
    plain_value = COMMENT.split(text, 1)[0].rstrip()
    if plain_value.startswith(RESERVED) or ": " in plain_value or plain_value.endswith(":"):
        raise CheckpointError(f"{location}: should be one value or a list, is {shorten(text)}")
    return None if plain_value in NULLS else plain_value


def _unquote(quoted: str, location: str) -> str:
    """A scalar without its quotes and escapes (YAML 1.2, 5.7)."""
    if len(quoted) >= 2 and quoted[0] == quoted[-1] == "'":
        return quoted[1:-1].replace("''", "'")
    if len(quoted) < 2 or not quoted[0] == quoted[-1] == '"':
        return quoted
    content = quoted[1:-1]
    if "\\" not in content:
        return content
    try:
        text = ESCAPE.sub(_unescape, content)
        # JSON writes characters beyond 16 bits as two surrogates.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        text.encode()
    except (KeyError, ValueError, OverflowError):
        raise CheckpointError(f"{location}: an escape that YAML does not know: {shorten(quoted)}") from None
    return text


def _unescape(match: re.Match[str]) -> str:
    number = match[1] or match[2] or match[3]
    return chr(int(number, 16)) if number else ESCAPES[match[4]]
