"""The YAML that Marian writes: maps of scalars and lists, and vocabularies of one token a line. Nothing more of YAML.

Values are kept as text, as they are spelled: whoever asks for one says what it should be.
"""

import re

from fastattn.errors import CheckpointError
from fastattn.weights.json_file import is_text, parse_json, shorten

Value = str | list[str] | None

KEY = re.compile(r"([A-Za-z0-9_.-]+)[ \t]*:(?:[ \t]+(.*))?")
ITEM = re.compile(r"[ \t]*-(?:[ \t]+(.*))?")
COMMENT = re.compile(r"(?:^|(?<=[ \t]))#")
QUOTED = r'"(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\''
QUOTED_VALUE = re.compile(rf"({QUOTED})(?:[ \t]+#.*)?")
FOREIGN = tuple("&*!|>%@`{}[]\"',")  # a plain value begins with none of these: anchors, tags, blocks and so on
FLOW_LIST = re.compile(r"\[(.*)\](?:[ \t]+#.*)?")
FLOW_PART = re.compile(rf"{QUOTED}|,|[^,\"']+|.")
NULLS = ("", "~", "null", "Null", "NULL")

ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))", re.DOTALL)
ESCAPED = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b", " ": " ",
    '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip


def parse_options(data: bytes, where: str) -> dict[str, Value]:
    """A map from names to scalars and lists of scalars; raises CheckpointError, with the line, for anything else."""
    options: dict[str, Value] = {}
    items: list[str] | None = None  # those of the key before, where it may have some
    for number, line in enumerate(_text(data, where).split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() in ("---", "..."):
            continue
        place = f"{where}: line {number}"
        key, item = KEY.fullmatch(line), ITEM.fullmatch(line)
        if key is not None:
            name, written = key.groups()
            if name in options:
                raise CheckpointError(f"{place}: {name} is given twice")
            options[name] = _value(written or "", place)
            items = [] if options[name] is None and not (written or "").startswith(NULLS[1:]) else None
        elif item is not None and items is not None:
            items.append(_scalar(item[1] or "", place) or "")
            options[name] = items
        else:
            raise CheckpointError(f"{place}: should be 'name: value' or '- value', is {shorten(line.strip())}")
    return options


def parse_vocabulary(data: bytes, where: str) -> dict[int, str]:
    """id -> token of a vocab.yml, or of the same as JSON; raises CheckpointError for a line that is no entry."""
    if data[:1] == b"{":
        return _json_vocabulary(data, where)
    tokens: dict[int, str] = {}
    key = ""  # of an entry in two lines
    for number, line in enumerate(_text(data, where).split("\n"), 1):
        line = line.rstrip("\r")
        if not line or line in ("---", "..."):
            continue
        if not key and line.startswith("? "):
            key = line[2:]
            continue
        token, _, written = (key + line).rpartition(":")
        written = written.strip(" \t")
        if not (written.isascii() and written.isdigit() and len(written) < 10):
            raise CheckpointError(f"{where}: line {number}: should be 'token: id', is {shorten(line)}")
        key, index = "", int(written)
        if index in tokens:
            raise CheckpointError(f"{where}: line {number}: id {index} is given twice")
        tokens[index] = _unquoted(token.rstrip(" \t"), f"{where}: line {number}")
    return tokens


def _json_vocabulary(data: bytes, where: str) -> dict[int, str]:
    entries = parse_json(data, where)
    if not all(is_text(token) and type(index) is int and index >= 0 for token, index in entries.items()):
        raise CheckpointError(f"{where}: should hold a JSON object of tokens and their ids")
    tokens = {index: token for token, index in entries.items()}
    if len(tokens) != len(entries):
        raise CheckpointError(f"{where}: two tokens have the same id")
    return tokens


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where}: not UTF-8 at byte {error.start}") from None


def _value(written: str, place: str) -> Value:
    flow = FLOW_LIST.fullmatch(written.strip())
    if flow is None:
        return _scalar(written, place)
    items: list[str] = []
    item: str | None = None
    for part in FLOW_PART.findall(flow[1] + ("," if flow[1].strip() else "")):
        part = part.strip()
        if part == "," and item is not None:
            items.append(_unquoted(item, place))
            item = None
        elif part and (item is not None or part.startswith(FOREIGN[:-3]) or part in (",", "'", '"')):
            raise CheckpointError(f"{place}: should be a list of values, is {shorten(written)}")
        elif part:
            item = part
    return items


def _scalar(written: str, place: str) -> str | None:
    written = written.strip()
    match = QUOTED_VALUE.fullmatch(written)
    if match is not None:
        return _unquoted(match[1], place)
    plain = COMMENT.split(written, 1)[0].rstrip()
    if plain.startswith(FOREIGN) or ": " in plain or plain.endswith(":"):
        raise CheckpointError(f"{place}: should be one value or a list, is {shorten(written)}")
    return None if plain in NULLS else plain


def _unquoted(written: str, place: str) -> str:
    """A scalar without its quotes and escapes (YAML 1.2, 5.7)."""
    if len(written) >= 2 and written[0] == written[-1] == "'":
        return written[1:-1].replace("''", "'")
    if len(written) < 2 or not written[0] == written[-1] == '"':
        return written
    inside = written[1:-1]
    if "\\" not in inside:
        return inside
    try:
        text = ESCAPE.sub(_escaped, inside)
        # JSON spells what is beyond 16 bits as two halves.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        text.encode()
    except (KeyError, ValueError, OverflowError):
        raise CheckpointError(f"{place}: an escape that YAML does not know: {shorten(written)}") from None
    return text


def _escaped(match: re.Match[str]) -> str:
    number = match[1] or match[2] or match[3]
    return chr(int(number, 16)) if number else ESCAPED[match[4]]
