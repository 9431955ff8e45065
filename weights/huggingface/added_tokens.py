"""Special and added tokens, as tokenizer_config.json and the older files beside it state them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, is_text, read_object, shorten
from fastattn.weights.folder import Folder

CONFIG = "tokenizer_config.json"
# Their order is that in which transformers gives ids to those that a vocabulary lacks.
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRA = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
MOST_ADDED = 1 << 16

# A token as tokenizer.json has it under added_tokens, without its id.
Token = dict[str, Any]


@dataclass(frozen=True)
class AddedTokens:
    """The tokens that a tokenizer's files state.

    named   name in NAMES -> token, of those that are stated
    extra   further special ones
    stated  id -> token
    where   the file that states them, in errors
    """

    named: dict[str, Token]
    extra: list[Token]
    stated: dict[int, Token]
    where: str

    def and_extra(self, tokens: list[Token]) -> "AddedTokens":
        """These, and further ones after them."""
        return replace(self, extra=self.extra + [_token(token, self.where) for token in tokens])

    def content(self, name: str, default: str) -> str:
        """The content of a named token."""
        return str(self.named[name]["content"]) if name in self.named else default

    def with_ids(self, vocabulary: Mapping[str, int], defaults: Mapping[str, str | Token]) -> list[Token]:
        """The ``added_tokens`` of a tokenizer.json, by id; a token that the vocabulary lacks gets the next id.

        vocabulary  token -> id
        defaults    name -> token, of the named ones that a kind of tokenizer has
        Raises CheckpointError where a file states another id.
        """
        tokens: dict[str, tuple[int, Token]] = {}
        wanted = {**{name: _token(token, "") for name, token in defaults.items()}, **self.named}
        named = [wanted[name] for name in NAMES if name in wanted]
        overriding = {token["content"]: token for token in [*self.extra, *named]}
        following = max(vocabulary.values(), default=-1) + 1
        for token in [*(self.stated[index] for index in sorted(self.stated)), *named, *self.extra]:
            content = token["content"]
            if content in tokens:
                continue
            index = vocabulary.get(content, following)
            following += index == following
            tokens[content] = (index, overriding.get(content, token))
        for index, token in self.stated.items():
            given = tokens[token["content"]][0]
            if given != index:
                raise CheckpointError(
                    f"{self.where}: {shorten(token['content'])} has the id {index}, by the vocabulary it is {given}"
                )
        return [{"id": index} | token for index, token in sorted(tokens.values(), key=lambda pair: pair[0])]


def read_added_tokens(folder: Folder, prefix: str, config: JsonObject) -> AddedTokens:
    """The tokens stated in the tokenizer_config.json ``config``; older files say what it does not."""
    values: dict[str, Any] = {name: config.values.get(name) for name in (*NAMES, *EXTRA)}
    where = config.where
    stated: dict[int, Token] = {}
    decoder = config.nested("added_tokens_decoder").values
    if decoder:
        stated = {_index(index, where): _token(token, where) for index, token in decoder.items()}
    else:
        if folder.contains(prefix + "special_tokens_map.json"):
            values |= read_object(folder, prefix + "special_tokens_map.json").values
        if folder.contains(prefix + "added_tokens.json"):
            added = read_object(folder, prefix + "added_tokens.json")
            where = added.where
            stated = {
                _index(index, where): _token(token, where, special=False) for token, index in added.values.items()
            }
    if len(stated) > MOST_ADDED:
        raise CheckpointError(f"{where}: {len(stated)} added tokens, more than {MOST_ADDED}")
    by_content = {token["content"]: token for token in stated.values()} if decoder else {}
    named = {name: _token(values[name], where) for name in NAMES if values.get(name) not in (None, "")}
    named = {name: by_content.get(token["content"], token) | {"special": True} for name, token in named.items()}
    extra = [_token(token, where) for name in EXTRA for token in _listed(values.get(name))]
    return AddedTokens(named, extra, stated, where)


def _listed(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _index(value: object, where: str) -> int:
    index = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else value
    if type(index) is not int or not 0 <= index < 1 << 31:
        raise CheckpointError(f"{where}: the id of an added token should be a number of 31 bits, is {shorten(value)}")
    return index


def _token(value: object, where: str, special: bool = True) -> Token:
    """A token from its content, or from an object of its content and flags."""
    stated: Mapping[str, object] = value if isinstance(value, Mapping) else {"content": value}
    content = stated.get("content")
    if not is_text(content) or not content:
        raise CheckpointError(
            f"{where}: a token should be a string, or an object with its content, is {shorten(value)}"
        )
    special = bool(stated.get("special", special))
    flags = dict.fromkeys(FLAGS, False) | {"normalized": not special, "special": special}
    return {"content": content} | {name: bool(stated.get(name, default)) for name, default in flags.items()}
