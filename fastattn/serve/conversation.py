"""Conversations as clients send them, and the arguments with which a model gets a conversation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastattn.errors import InputError
from fastattn.text.chat import ChatTemplate
from fastattn.text.tool_calls import THINK, call_schema

RESERVED = frozenset(("messages", "add_generation_prompt", "self", "tools"))  # template variables that no request sets


@dataclass(frozen=True)
class Conversation:
    """A request for an answer.

    messages     each {"role", "content"} and other keys that the template reads; a tool call's arguments are a dict
    tools        each {"type": "function", "function": {"name", "description", "parameters"}}
    tool_choice  "auto", "none", "required", or the name of the tool that the answer calls
    variables    the chat template's variables
    options      options of ``Generator.generate``
    """

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] = ()
    tool_choice: str = "auto"
    variables: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The texts that the model reads: each message, then tools, variables and the answer's schema as one text."""
        message_texts = ["".join(_strings({**message, "role": ""})) for message in self.messages]
        last_text = "".join(_strings([self.tools, self.variables, self.options.get("json_schema")]))
        return [*message_texts, last_text] if last_text else message_texts

    def arguments(self, template: ChatTemplate) -> tuple[dict[str, Any], tuple[list[str], bool]]:
        """(the arguments of ``Generator.generate``; those of ``AnswerParts``, which splits the answer)."""
        arguments, variables = dict(self.options), dict(self.variables)
        roles = {} if "developer" in template.source else {"developer": "system"}
        messages = [{**message, "role": roles.get(message["role"], message["role"])} for message in self.messages]
        if not RESERVED.isdisjoint(variables):
            raise InputError(f"chat_template_kwargs should name none of {', '.join(sorted(RESERVED))}")
        must_call = self.tool_choice not in ("auto", "none")
        may_call = self.tool_choice != "none" and "json_schema" not in arguments
        tool_names = [tool["function"]["name"] for tool in self.tools] if may_call else []
        if tool_names:
            variables["tools"] = list(self.tools)
        if must_call and "json_schema" in arguments:
            raise InputError("give response_format, or a tool_choice that has the answer call a tool, not both")
        if must_call and not self.tools:
            raise InputError("tool_choice asks for a call, and there are no tools")
        if must_call:
            functions = [tool["function"] for tool in self.tools]
            name = None if self.tool_choice == "required" else self.tool_choice
            arguments["json_schema"] = call_schema(functions, name, template.source)
        may_think = THINK in template.source and "json_schema" not in arguments
        begins_in_thought = may_think and template.render(messages, **variables).rstrip().endswith(THINK)
        if variables:
            arguments["template_variables"] = variables
        return {"messages": messages, **arguments}, (tool_names, begins_in_thought)


def _strings(value: Any) -> Iterator[str]:
    """The texts within plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.items() for part in item for text in _strings(part))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _strings(item))
