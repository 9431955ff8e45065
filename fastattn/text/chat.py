"""From conversations to prompts, by a language model's chat template."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastattn.errors import CheckpointError, FastattnError, InputError, check_bool, check_several, described
from fastattn.text import check_text

# Keys of a model's reasoning in a message. Templates get it as "thinking" and "reasoning_content", as in transformers.
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """A checkpoint's Jinja template, which turns a conversation into a prompt as transformers does.

    source          the template
    special_tokens  more variables of the template: bos_token, eos_token, ...

    Templates come from strangers: they have access to their variables alone, and ``text.sandbox`` bounds their time and
    memory. Needs the extra: pip install 'fastattn[chat]'.
    Raises CheckpointError for an invalid template, FastattnError if jinja2 is not installed.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None):
        try:
            from fastattn.text.sandbox import PricedTemplate, RefusedError
        except ImportError as error:
            raise FastattnError(f"conversations need the extra: pip install 'fastattn[chat]' ({error})") from None
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._refused_error = RefusedError
        try:
            self._template = PricedTemplate(source)
        except Exception as error:  # noqa: BLE001 - jinja2's errors, and errors of compiling the code that it generates
            raise _failure(error) from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt of a conversation.

        messages               dicts {"role": str, "content": str}; a content may be a list of dicts, if the template
                               takes lists. Other items go to the template unchanged
        add_generation_prompt  whether the prompt ends with the beginning of an answer
        variables              further variables of the template, such as tools; plain data
        Raises InputError for messages that are invalid or that the template refuses, CheckpointError for a template
        that fails or exceeds its bounds.
        """
        context = {
            **self._special_tokens,
            "tools": None,
            "documents": None,
            **variables,
            "messages": check_messages(messages),
            "add_generation_prompt": check_bool("add_generation_prompt", add_generation_prompt),
        }
        try:
            plain = {name: _plain_copy(value, name) for name, value in context.items()}
        except RecursionError:
            raise InputError("messages and variables are nested too deeply") from None
        without_none = [{key: item for key, item in each.items() if item is not None} for each in plain["messages"]]
        # Some templates fail without a content: they get the contents of None in a second attempt.
        for variant in (without_none, plain["messages"])[: 1 + (without_none != plain["messages"])]:
            try:
                return self._template.render(plain | {"messages": variant})
            except self._refused_error as error:
                raise InputError(f"the chat template refuses these messages: {_shortened(error)}") from None
            except Exception as error:  # noqa: BLE001 - whatever the template's expressions raise
                failure = error
        raise _failure(failure)


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages with reasoning as templates get it, without items of None other than contents.

    Raises InputError for a message without a role, or without a content unless it is the assistant's or calls tools.
    """
    checked: list[dict[str, Any]] = []
    for number, message in enumerate(check_several("messages", messages, "a list of messages")):
        if not isinstance(message, Mapping):
            expected = '{"role": ..., "content": ...}'
            raise InputError(f"messages should hold {expected}, number {number} is {described(message)}")
        items = {name: item for name, item in message.items() if item is not None or name == "content"}
        reasoning = next((items[name] for name in REASONING_KEYS if name in items), None)
        checked.append(items if reasoning is None else {"thinking": reasoning, **items, "reasoning_content": reasoning})
        role, content = (checked[-1].get(name) for name in ("role", "content"))
        if not isinstance(role, str):
            raise InputError(f'message {number} should have a str as "role", got {described(role)}')
        if isinstance(content, str):
            check_text(content)
        elif content is None and (role == "assistant" or "tool_calls" in message):
            continue
        elif not isinstance(content, list):
            raise InputError(f'message {number} should have a str as "content", got {described(content)}')
    if not checked:
        raise InputError("messages should hold at least one message")
    return checked


def _plain_copy(value: Any, name: str) -> Any:
    """A copy of the variable ``name`` in Python's built-in classes; InputError for values that JSON does not have."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain_copy(key, name): _plain_copy(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_copy(item, name) for item in value]
    raise InputError(f"{name} should hold plain data, got a {type(value).__name__}")


def _failure(error: Exception) -> FastattnError:
    line = getattr(error, "lineno", None)
    location = f"line {line}: " if isinstance(line, int) and type(error).__module__.startswith("jinja2") else ""
    if isinstance(error, RecursionError):
        return CheckpointError("chat template: it is nested too deeply")
    return CheckpointError(f"chat template: {location}{_shortened(error)}")


def _shortened(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."
