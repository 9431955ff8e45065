"""sentencepiece's text normaliser: leftmost longest rewriting by a compiled table, then its treatment of spaces.

The table ("precompiled charsmap") is a u32 length, a Darts-clone double-array trie of that many bytes over UTF-8, and
the replacements, each ended by a NUL. It is walked character by character, and each step is remembered, so that a
file's bytes are only looked at where a text leads.
"""

import re
import struct
from bisect import bisect_left, bisect_right
from operator import itemgetter

import numpy as np

from fastattn.errors import TokenizerError
from fastattn.text.spm_file import FILE, NormalizerSpec

SPACE = "\u2581"  # what stands for a space inside pieces

# A state remembers this many characters that no rule continues with; more would let a text fill the memory.
REMEMBERED_MISSES = 4096
# The most characters that a rule takes, and bytes that it gives. Those of NFKC take 4 and give 33; without a limit a
# text could be followed along a cycle of the trie to its end, from each of its characters, or grow by the file's size.
LONGEST_RULE = 128


class _State(dict[str, "_State | None"]):
    """A node of the trie: next character -> node or None; ``replacement`` where a rule ends here."""

    __slots__ = ("charsmap", "node", "replacement")

    def __init__(self, charsmap: "Charsmap", node: int, replacement: str | None):
        super().__init__()
        self.charsmap = charsmap
        self.node = node
        self.replacement = replacement

    def __missing__(self, character: str) -> "_State | None":
        state = self.charsmap.step(self.node, character)
        if state is not None or len(self) < REMEMBERED_MISSES:
            self[character] = state
        return state


class Charsmap:
    """The rewriting rules of a compiled table; ``root`` is the state before any character."""

    def __init__(self, data: bytes):
        if len(data) <= 4:
            raise TokenizerError(f"{FILE}: the normaliser's table has {len(data)} bytes, more than 4 were expected")
        (length,) = struct.unpack_from("<I", data)
        if length > len(data) - 4 or length % 4 or length == 0:
            raise TokenizerError(f"{FILE}: the normaliser's table of {len(data)} bytes claims a trie of {length}")
        self._units = memoryview(data)[4 : 4 + length].cast("I")
        self._replacements = data[4 + length :]
        self.root = _State(self, 0, None)
        self._states: dict[int, _State] = {}  # by node: no more than the trie has, however a text comes to them

    def step(self, node: int, character: str) -> _State | None:
        """The state after one more character, or None where no rule goes on with it."""
        value = -1
        encoded = character.encode("utf-8")
        for count, byte in enumerate(encoded, 1):
            unit = self._unit(node)
            node ^= ((unit >> 10) << ((unit & 0x200) >> 6)) ^ byte
            unit = self._unit(node)
            if unit & 0x800000FF != byte:
                return None
            if unit & 0x100:
                if count < len(encoded):
                    raise TokenizerError(f"{FILE}: a rule of the normaliser's table ends inside a character")
                leaf = node ^ ((unit >> 10) << ((unit & 0x200) >> 6))
                value = self._unit(leaf) & 0x7FFFFFFF
        state = self._states.get(node)
        if state is None:
            state = self._states[node] = _State(self, node, self._replacement(value) if value >= 0 else None)
        return state

    def goes_on_in_ascii(self, state: _State) -> bool:
        """Whether a rule has an ASCII character next."""
        unit = self._unit(state.node)
        nodes_C = state.node ^ ((unit >> 10) << ((unit & 0x200) >> 6)) ^ np.arange(128)
        # Steps alone would do, a hundredth of a second for all states that are asked; most characters lead nowhere.
        labels_C = np.frombuffer(self._units, np.uint32).take(nodes_C, mode="clip") & 0x800000FF
        possible_C = (labels_C == np.arange(128)) | (nodes_C >= len(self._units))
        return any(state[chr(code)] is not None for code in np.flatnonzero(possible_C))

    def _unit(self, node: int) -> int:
        if node >= len(self._units):
            raise TokenizerError(f"{FILE}: the normaliser's table points outside itself")
        return self._units[node]

    def _replacement(self, start: int) -> str:
        end = self._replacements.find(b"\0", start, start + LONGEST_RULE + 1)
        if start >= len(self._replacements) or end < 0 and start + LONGEST_RULE >= len(self._replacements):
            raise TokenizerError(f"{FILE}: the normaliser's table points outside its replacements")
        if end < 0:
            raise TokenizerError(f"{FILE}: a rule of the normaliser's table gives more than {LONGEST_RULE} bytes")
        try:
            return self._replacements[start:end].decode("utf-8")
        except UnicodeDecodeError:
            raise TokenizerError(f"{FILE}: a replacement in the normaliser's table is not UTF-8") from None


class Normalizer:
    """Text to the string that sentencepiece segments: rewritten, spaces settled and written as U+2581."""

    def __init__(self, spec: NormalizerSpec, suffix: bool = False, verbatim: tuple[str, ...] = ()):
        """``suffix`` puts the dummy space at the end; ``verbatim`` strings are never rewritten."""
        self._spec = spec
        self._suffix = suffix
        self._charsmap = Charsmap(spec.charsmap) if spec.charsmap else None
        self._verbatim = LongestMatch(verbatim) if verbatim else None
        self._plain = re.compile(f"[{re.escape(self._plain_ascii())}]*") if self._plain_ascii() else None

    def normalize(self, text: str) -> str:
        """The normalised text; empty where nothing but spaces came."""
        if not text:
            return ""
        spec = self._spec
        if self._plain is not None and self._verbatim is None and self._plain.fullmatch(text):
            parts: list[str] | str = text
        else:
            parts = self._rewrite(text)
        if spec.remove_extra_whitespaces:
            if all(part == " " for part in parts):
                return ""
            result = _collapse_spaces(parts)
        else:
            result = "".join(parts)
        space = SPACE if spec.escape_whitespaces else " "
        if spec.escape_whitespaces:
            result = result.replace(" ", SPACE)
        if spec.add_dummy_prefix and not self._suffix:
            result = space + result
        if spec.remove_extra_whitespaces:
            result = result.rstrip(space)
        if spec.add_dummy_prefix and self._suffix:
            result += space
        return result

    def _plain_ascii(self) -> str:
        """The ASCII characters that no rule of ASCII characters alone begins with."""
        characters = [chr(code) for code in range(128)]
        if self._charsmap is None:
            return "".join(characters)
        plain = []
        for character in characters:
            state = self._charsmap.root[character]
            if state is None or (state.replacement is None and not self._charsmap.goes_on_in_ascii(state)):
                plain.append(character)
        return "".join(plain)

    def _rewrite(self, text: str) -> list[str]:
        """The parts that take the place of each leftmost longest match, in order."""
        root = self._charsmap.root if self._charsmap is not None else None
        if root is None and self._verbatim is None:
            return list(text)
        parts: list[str] = []
        position, length = 0, len(text)
        while position < length:
            if self._verbatim is not None and (found := self._verbatim.match(text, position)):
                parts.append(found)
                position += len(found)
                continue
            state = root[text[position]] if root is not None else None
            if state is None:
                parts.append(text[position])
                position += 1
                continue
            replacement, end = text[position], position + 1
            at = end
            while True:
                if state.replacement is not None:
                    replacement, end = state.replacement, at
                if at == length:
                    break
                state = state[text[at]]
                if state is None:
                    break
                at += 1
                if at - position > LONGEST_RULE:
                    raise TokenizerError(
                        f"{FILE}: a rule of the normaliser's table takes more than {LONGEST_RULE} characters"
                    )
            parts.append(replacement)
            position = end
        return parts


class LongestMatch:
    """Finds the longest of some strings that stands at a position of a text.

    The strings are sorted, and those that share what was read so far lie together: two bisections a character, and no
    memory for a trie's nodes.
    """

    def __init__(self, strings: tuple[str, ...]):
        self._sorted = sorted(strings)
        self._firsts = {string[0] for string in strings}
        self._longest = max(map(len, strings), default=0)

    def match(self, text: str, position: int) -> str:
        """The string found, or an empty one."""
        if text[position] not in self._firsts:
            return ""
        strings, found = self._sorted, ""
        low, high = 0, len(strings)
        for depth, character in enumerate(text[position : position + self._longest]):
            low = bisect_left(strings, character, low, high, key=itemgetter(depth))
            high = bisect_right(strings, character, low, high, key=itemgetter(depth))
            if low < high and len(strings[low]) == depth + 1:
                found = strings[low]
                low += 1
            if low == high:
                break
        return found


def _collapse_spaces(parts: list[str] | str) -> str:
    """Drop the spaces that begin a part while the part before it ends in one (or none stands before it)."""
    joined = "".join(parts)
    if joined[:1] != " " and "  " not in joined:
        return joined
    kept = []
    after_space = True
    for part in parts:
        if after_space:
            part = part.lstrip(" ")
        if part:
            kept.append(part)
            after_space = part[-1] == " "
    return "".join(kept)
