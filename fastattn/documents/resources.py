"""String resources of programs: Java's properties, Apple's strings and string catalogs, Android's, JSON and YAML."""

import html
import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from fastattn.documents.catalogs import translate_messages, translate_values
from fastattn.documents.html import match_tags
from fastattn.documents.markup import Paragraph, Piece, edits_of
from fastattn.documents.tables import quoted, string_spans
from fastattn.documents.tagged import whole_piece, xml_tokens
from fastattn.documents.texts import DocumentPlan, SourceText, decode_text, lines_of
from fastattn.documents.xml import Element, local_name, parse_xml
from fastattn.errors import InputError

_PROPERTY = re.compile(
    r"^[ \t\f]*(?![#!])(?:\\(?:\r\n|[^\r\n])|[^\\:=\s])+[ \t\f]*(?:[=:][ \t\f]*)?"
    r"(?P<value>(?:\\(?:\r\n|[\s\S])|[^\\\r\n])*)",
    re.MULTILINE,
)
_PROPERTY_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|((?:\r\n|[\r\n])[ \t\f]*)|([\s\S]))")
_APPLE_ENTRY = re.compile(
    r"/\*.*?(?:\*/|\Z)|//[^\r\n]*|(?:\"(?:[^\"\\]|\\.)*\"|(?<![\w.$/-])[\w.$/-]+)\s*=\s*\"(?P<value>(?:[^\"\\]|\\.)*)\"\s*;",
    re.DOTALL,
)
_APPLE_ESCAPE = re.compile(r"\\(?:[Uu]([0-9a-fA-F]{4})|()([\s\S]))")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ESCAPES = {text: f"\\{letter}" for letter, text in _CONTROLS.items()} | {"\\": "\\\\"}
# A pattern of Java's MessageFormat, where two apostrophes are one.
_MESSAGE_FORMAT = re.compile(r"\{\d+(?:,[^{}]*)?\}")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z\d]+)*")
_ANDROID_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|()([\s\S]))")
_ANDROID_ENCLOSING = frozenset("a annotation b big em font i small strike strong sub sup tt u".split())


def _unescape(text: str, escape: "re.Pattern[str]") -> str:
    """A text without its escapes: groups of ``escape`` are a code point, what stands for nothing, a character."""

    def character(match: "re.Match[str]") -> str:
        return chr(int(match[1], 16)) if match[1] else _CONTROLS.get(match[3], match[3]) if match[3] else ""

    return escape.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def translate_properties(data: bytes, name: str) -> DocumentPlan:
    """Java's properties in UTF-8 or, as before Java 9, Latin-1; a file of ASCII gets other letters as escapes."""
    try:
        page, encoding = data.decode(), "utf-8"
    except UnicodeDecodeError:
        page, encoding = data.decode("latin-1"), "latin-1"
    if "\0" in page:
        raise InputError(f"{name}: a NUL byte, so this is not text")
    writes_escapes = page.isascii() or encoding == "latin-1"

    def text_of(source: str) -> str:
        text = _unescape(source, _PROPERTY_ESCAPE)
        return text.replace("''", "'") if _doubles_apostrophes(text) else text

    def source_of(value: SourceText, text: str) -> str:
        is_doubled = _doubles_apostrophes(_unescape(page[value.start : value.end], _PROPERTY_ESCAPE))
        text = text.replace("'", "''") if is_doubled else text
        source = "".join(_ESCAPES.get(character, character) for character in text)
        source = f"\\{source}" if source.startswith(" ") else source
        return source if not writes_escapes else "".join(map(_java_escape, source))

    values = [SourceText(*match.span("value"), text_of(match["value"])) for match in _PROPERTY.finditer(page)]
    return (yield from translate_values(page, values, source_of)).encode(encoding)


def _doubles_apostrophes(text: str) -> bool:
    """Whether a text is a pattern whose apostrophes are all double: single ones, as in '{', stay as they are."""
    return bool(_MESSAGE_FORMAT.search(text)) and "'" not in text.replace("''", "")


def _java_escape(character: str) -> str:
    if character.isascii():
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def translate_strings(data: bytes, name: str) -> DocumentPlan:
    """Apple's .strings: lines such as "key" = "text";"""
    page = decode_text(data, name)
    matches = [match for match in _APPLE_ENTRY.finditer(page) if match["value"] is not None]
    if page.strip() and not matches:
        raise InputError(f'{name}: expected lines such as "key" = "text";')
    values = [SourceText(*match.span("value"), _unescape(match["value"], _APPLE_ESCAPE)) for match in matches]

    def source_of(_: SourceText, text: str) -> str:
        return "".join(_ESCAPES.get(character, character) for character in text).replace('"', '\\"')

    return (yield from translate_values(page, values, source_of)).encode()


def translate_json(data: bytes, name: str, language: str | None = None) -> DocumentPlan:
    """All texts of a JSON file, such as i18next's or an ARB file, whose names that begin with @ are notes."""
    page = decode_text(data, name)
    _parse_json(page, name)
    values, edits = list[SourceText](), list[tuple[int, int, str]]()
    for path, (start, end) in string_spans(page):
        if path == ("@@locale",) and language:
            edits.append((start, end, json.dumps(language)))
        elif not any(isinstance(part, str) and part.startswith("@") for part in path):
            values.append(SourceText(start, end, json.loads(page[start:end])))
    page = yield from translate_values(page, values, lambda _, text: quoted(text), edits)
    return page.encode("utf-8", "surrogatepass")


def _parse_json(page: str, name: str) -> Any:
    try:
        return json.loads(page)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not JSON: {error}") from None


def translate_string_catalog(data: bytes, name: str, language: str | None = None, fuzzy: bool = False) -> DocumentPlan:
    """Xcode's string catalog: each string without a translation into the language gets one. fuzzy: marked for review"""
    page = decode_text(data, name)
    catalog = _parse_json(page, name)
    strings = catalog.get("strings") if isinstance(catalog, dict) else None
    if not isinstance(strings, dict) or not all(isinstance(entry, dict) for entry in strings.values()):
        raise InputError(f"{name}: not a string catalog: it has no strings")
    if language is None:
        raise InputError(f"{name}: a string catalog takes the language of its translations: --to")
    source_language, units = str(catalog.get("sourceLanguage")), list[dict[str, Any]]()
    for key, entry in strings.items():
        localizations = entry.setdefault("localizations", {})
        if entry.get("shouldTranslate", True) and isinstance(localizations, dict) and language not in localizations:
            original = localizations.get(source_language)
            original = {"stringUnit": {"state": "new", "value": key}} if original is None else original
            localizations[language] = json.loads(json.dumps(original))
            units += _string_units(localizations[language])
    translations = yield from translate_messages([unit["value"] for unit in units])
    for unit, translation in zip(units, translations):
        unit |= {"state": "needs_review" if fuzzy else "translated", "value": translation}
    for entry in strings.values():
        if not entry.get("localizations"):
            entry.pop("localizations", None)
    written = json.dumps(catalog, ensure_ascii=False, indent=2, separators=(",", " : "))
    written = re.sub(r"(?m)^( *)(.* : )\{\}(?=,?$)", r"\1\2{\n\n\1}", written)  # as Xcode writes it
    return (written + page[len(page.rstrip()) :]).encode("utf-8", "surrogatepass")


def _string_units(value: Any) -> Iterator[dict[str, Any]]:
    """The string units of a localization, of plurals and devices too."""
    if isinstance(value, dict):
        unit = value.get("stringUnit")
        if isinstance(unit, dict) and isinstance(unit.get("value"), str):
            yield unit
        for inner in value.values():
            yield from _string_units(inner)


def translate_android(data: bytes, name: str) -> DocumentPlan:
    """Android's string resources: strings, arrays and plurals, without those that say translatable="false"."""
    root = parse_xml(data, name)
    if local_name(root) != "resources":
        raise InputError(f"{name}: expected string resources, whose first element is resources, found {root.tag}")
    encoding = root.getroottree().docinfo.encoding or "UTF-8"
    page = decode_text(data, name, encoding)
    tokens = xml_tokens(page)
    closers = match_tags([(token.kind, token.name) for token in tokens])
    starts = list(accumulate((len(token.source) for token in tokens), initial=0))
    tags = (number for number, token in enumerate(tokens) if token.name and token.kind != "close")
    paragraphs, values = list[Paragraph](), list[SourceText]()
    for number, element in zip(tags, root.iter("*")):
        if number in closers and _is_android_text(element):
            start, end = number + 1, closers[number]
            if len(element) == 0 and re.search("</?[a-z]", element.text or ""):  # HTML as text
                values.append(SourceText(starts[start], starts[end], _android_text(element.text)))
            else:
                paragraphs.append(Paragraph(starts[start], list(_android_pieces(tokens, closers, start, end))))

    def source_of(value: SourceText, text: str) -> str:
        is_section = "<![CDATA[" in page[value.start : value.end] and "]]>" not in text
        return f"<![CDATA[{html.unescape(_android_source(text))}]]>" if is_section else _android_source(text)

    edits = yield from edits_of(page, paragraphs, _android_source)
    page = yield from translate_values(page, values, source_of, edits)
    return page.encode(encoding, "xmlcharrefreplace")


def _android_pieces(tokens: Sequence[Piece], closers: dict[int, int], number: int, end: int) -> Iterator[Piece]:
    """Pieces of the tokens [number, end); inner elements that are no part of the sentence stay, such as xliff:g."""
    while number < end:
        token, stop = tokens[number], number + 1
        if token.source.startswith("<![CDATA["):
            token = Piece("text", token.source, token.source[9:-3])
        elif token.kind not in ("text", "close") and token.name.rpartition(":")[2] not in _ANDROID_ENCLOSING:
            stop = closers.get(number, number) + 1
            token = whole_piece(tokens[number:stop])
        yield token._replace(text=_android_text(token.text))
        number = stop


def _is_android_text(element: Element) -> bool:
    ancestors = list(element.iterancestors())
    is_item = local_name(element) == "item" and local_name(ancestors[0]) in ("string-array", "plurals")
    is_inner = any(local_name(outer) in ("string", "item") for outer in ancestors)
    stays = is_inner or any(part.get("translatable") == "false" for part in (element, *ancestors))
    return (is_item or local_name(element) == "string") and not stays and not (element.text or "").startswith("@")


def _android_text(source: str) -> str:
    text = re.sub(r"[ \t\r\n]+", " ", source)  # blanks are one, and a bare quote is none
    return _unescape(re.sub(r"(\\.)|\"", r"\1", text), _ANDROID_ESCAPE)


def _android_source(text: str) -> str:
    source = re.sub(r"[\\'\"]|\A[@?]", r"\\\g<0>", text)
    return html.escape(source.replace("\n", "\\n").replace("\t", "\\t"), quote=False)


def translate_yaml(data: bytes, name: str, language: str | None = None) -> DocumentPlan:
    """All texts of a YAML file, such as Rails'. A language at its root gets the name of the translation's language."""
    import yaml  # PyYAML comes with huggingface_hub

    page = decode_text(data, name)
    try:
        roots = list(yaml.compose_all(page, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{name}: not YAML: {' '.join(str(error).split())[:200]}") from None
    edits = list[tuple[int, int, str]]()
    if len(roots) == 1 and isinstance(roots[0], yaml.MappingNode) and len(roots[0].value) == 1 and language:
        key = roots[0].value[0][0]
        if _LANGUAGE.fullmatch(str(key.value)):
            edits.append((key.start_mark.index, key.end_mark.index, language))
    values, styles = list[SourceText](), dict[int, str]()  # start of a text -> its quote, or a block's sign, or ""
    for node in _yaml_texts(roots):
        properties = re.compile(r"(?:[&!]\S*\s+)*").match(page, node.start_mark.index)  # an anchor and a tag
        start = properties.end() if properties else 0
        if node.style in ("|", ">"):
            values += _block_values(page, start, node)
        else:
            values.append(SourceText(start, node.end_mark.index, node.value))
            styles[start] = node.style or ""

    def source_of(value: SourceText, text: str) -> str:
        style = styles.get(value.start)
        if style is None or (style == "" and _is_plain(text)):
            return text
        return "'" + text.replace("'", "''") + "'" if style == "'" and "\n" not in text else quoted(text)

    return (yield from translate_values(page, values, source_of, edits)).encode()


def _yaml_texts(roots: list[Any]) -> list[Any]:
    """The nodes of texts, without keys; a node that aliases name too comes once."""
    texts, nodes, seen = list[Any](), roots[::-1], set[int]()
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "scalar":
            texts += [node] if node.tag == "tag:yaml.org,2002:str" else []
        else:
            nodes += [item[1] if node.id == "mapping" else item for item in reversed(node.value)]
    return texts


def _block_values(page: str, start: int, node: Any) -> Iterator[SourceText]:
    """The lines of a literal block, or the paragraphs of a folded one."""
    lines, position, indent, was_deeper = list[SourceText](), start, -1, False
    for line in lines_of(page[start : node.end_mark.index]):
        text, is_header = line.strip(), position == start
        start_of_line, begin = position, position + len(line) - len(line.lstrip())
        indent = begin - position if indent < 0 and text and not is_header else indent
        position += len(line)
        is_deeper = bool(lines) and begin - start_of_line > indent
        if text and not is_header and lines and not is_deeper and not was_deeper and node.style == ">":
            lines[-1] = SourceText(lines[-1].start, begin + len(text), f"{lines[-1].text} {text}")
        elif text and not is_header:
            lines.append(SourceText(begin, begin + len(text), text))
        else:
            yield from lines
            lines = []
        was_deeper = is_deeper
    yield from lines


def _is_plain(text: str) -> bool:
    """Whether a text without quotes is that text in YAML, within brackets too."""
    import yaml

    try:
        return yaml.safe_load(f"[{text}]") == [text] and yaml.safe_load(f"a: {text}") == {"a": text}
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: of a date or a number that is none
        return False
