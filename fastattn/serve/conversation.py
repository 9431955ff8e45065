"""Conversations as clients send them: messages, tools and rules for the answer, and how a model gets them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastattn.errors import InputError
from fastattn.generation.calls import Generation
from fastattn.text.chat import ChatTemplate
from fastattn.text.tool_calls import THINK, AnswerParts, SplitAnswer, answer_parts, call_schema


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
        """What the model reads: contents, calls and tools."""
        contents = [str(message.get("content") or "") for message in self.messages]
        calls = [json.dumps(message["tool_calls"]) for message in self.messages if message.get("tool_calls")]
        return [*contents, *calls, *([json.dumps(self.tools)] if self.tools else [])]

    def arguments(self, template: ChatTemplate) -> dict[str, Any]:
        """The arguments of ``Generator.generate``."""
        arguments, variables, messages = dict(self.options), dict(self.variables), list(self.messages)
        if "developer" not in template.source:
            messages = [{**message, "role": _known_role(message["role"])} for message in messages]
        if self._tool_names:
            variables["tools"] = list(self.tools)
        if self._tool_names and self.tool_choice != "auto":
            functions = [tool["function"] for tool in self.tools]
            name = None if self.tool_choice == "required" else self.tool_choice
            if "json_schema" in arguments:
                raise InputError("give response_format, or a tool_choice that has the answer call a tool, not both")
            arguments["json_schema"] = call_schema(functions, name, template.source)
        if variables:
            arguments["template_variables"] = variables
        return {"messages": messages, **arguments}

    @property
    def _tool_names(self) -> list[str]:
        return [] if self.tool_choice == "none" else [tool["function"]["name"] for tool in self.tools]

    def parts(self, template: ChatTemplate) -> AnswerParts:
        """What splits the answer as it comes."""
        return AnswerParts(self._tool_names, self._is_in_reasoning(template))

    def read(self, generation: Generation, template: ChatTemplate) -> SplitAnswer:
        return answer_parts(generation.text, self._tool_names, self._is_in_reasoning(template))

    def _is_in_reasoning(self, template: ChatTemplate) -> bool:
        if THINK not in template.source:
            return False
        arguments = self.arguments(template)
        prompt = template.render(arguments["messages"], **arguments.get("template_variables", {}))
        return prompt.rstrip().endswith(THINK)


def _known_role(role: str) -> str:
    return "system" if role == "developer" else role
