"""Conversations as clients send them: messages, tools and rules for the answer, and how a model gets them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastattn.errors import InputError
from fastattn.text.chat import ChatTemplate
from fastattn.text.tool_calls import THINK, call_schema

RESERVED = frozenset(("messages", "add_generation_prompt", "self", "tools"))  # variables that templates get anyway


@dataclass(frozen=True)
class Conversation:
    """A request for an answer.

    messages     {"role", "content"} and what else the template reads; a tool call's arguments are a dict
    tools        {"type": "function", "function": {"name", "description", "parameters"}} of each
    tool_choice  "auto", "none", "required", or the name of the tool that the answer calls
    variables    of the chat template
    options      of ``Generator.generate``
    """

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] = ()
    tool_choice: str = "auto"
    variables: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """What the model reads: each message, then tools, variables and the schema of the answer."""
        more = "".join(_strings([self.tools, self.variables, self.options.get("json_schema")]))
        return ["".join(_strings({**message, "role": ""})) for message in self.messages] + ([more] if more else [])

    def arguments(self, template: ChatTemplate) -> dict[str, Any]:
        """The arguments of ``Generator.generate``."""
        arguments, variables, messages = dict(self.options), dict(self.variables), list(self.messages)
        if "developer" not in template.source:
            messages = [{**message, "role": _known_role(message["role"])} for message in messages]
        if self._tool_names:
            variables["tools"] = list(self.tools)
        if not RESERVED.isdisjoint(variables.keys() - {"tools"} if self._tool_names else variables):
            raise InputError(f"chat_template_kwargs should name none of {', '.join(sorted(RESERVED))}")
        if self.tool_choice not in ("auto", "none") and "json_schema" in arguments:
            raise InputError("give response_format, or a tool_choice that has the answer call a tool, not both")
        if self.tool_choice not in ("auto", "none") and not self.tools:
            raise InputError("tool_choice asks for a call, and there are no tools")
        if self._tool_names and self.tool_choice != "auto":
            functions = [tool["function"] for tool in self.tools]
            name = None if self.tool_choice == "required" else self.tool_choice
            arguments["json_schema"] = call_schema(functions, name, template.source)
        if variables:
            arguments["template_variables"] = variables
        return {"messages": messages, **arguments}

    @property
    def _tool_names(self) -> list[str]:
        """The tools that the answer may call: none where it has a form of its own."""
        is_free = self.tool_choice != "none" and "json_schema" not in self.options
        return [tool["function"]["name"] for tool in self.tools] if is_free else []

    def splitting(self, template: ChatTemplate, arguments: dict[str, Any]) -> tuple[list[str], bool]:
        """How the answer of a call with these arguments is split: the arguments of ``AnswerParts``."""
        if THINK not in template.source or "json_schema" in arguments:
            return self._tool_names, False
        prompt = template.render(arguments["messages"], **arguments.get("template_variables", {}))
        return self._tool_names, prompt.rstrip().endswith(THINK)


def _strings(value: Any) -> Iterator[str]:
    """The texts within plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.items() for part in item for text in _strings(part))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _strings(item))


def _known_role(role: str) -> str:
    return "system" if role == "developer" else role
