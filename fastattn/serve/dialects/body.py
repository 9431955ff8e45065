"""What the routes of all dialects share: a request's body and the Service."""

import json
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from prometheus_client import Counter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from fastattn.serve.service import Service

STRICT: ContextVar[bool] = ContextVar("strict", default=False)  # whether unknown fields are refused; the gate sets it
UNKNOWN_FIELDS = Counter("fastattn_unknown_fields", "Fields of requests that the server ignores.", ["body"])
MOST_NAMES, LONGEST_NAME = 1000, 64  # names of unknown fields in the log, and characters of a name
_logged_fields: set[tuple[str, str]] = set()


class Body(BaseModel):
    """A request's body. Clients send fields of newer servers: an unknown field is ignored, counted, and logged once.

    With ``--strict`` an unknown field is refused.
    """

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _drop_unknown_fields(self) -> "Body":
        unknown_fields, body = self.__pydantic_extra__ or {}, type(self).__name__
        for name in list(unknown_fields):
            if STRICT.get():
                raise PydanticCustomError("unknown_field", "the field {name} is not known", {"name": repr(name)})
            del unknown_fields[name]
            UNKNOWN_FIELDS.labels(body).inc()
            logged = body, name[:LONGEST_NAME]
            if logged not in _logged_fields and len(_logged_fields) < MOST_NAMES:
                _logged_fields.add(logged)
                sys.stderr.write(json.dumps({"unknown_field": logged[1], "body": body}) + "\n")
        return self


async def _service(request: Request) -> Service:  # FastAPI would run a plain function in a thread
    service: Service = request.app.state.service
    return service


InjectedService = Annotated[Service, Depends(_service)]
TokenIds = Annotated[list[Annotated[int, Field(strict=True)]], Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1)]
TextOrTexts = str | Texts


def _check_bool(value: Any) -> Any:
    if not isinstance(value, bool):  # Literal takes 0 for False
        raise PydanticCustomError("bool_type", "Input should be a valid boolean")
    return value


OnlyFalse = Annotated[Literal[False], BeforeValidator(_check_bool)]
OnlyTrue = Annotated[Literal[True], BeforeValidator(_check_bool)]


def describe(problems: Sequence[Any], skipped: int = 0) -> str:
    """The first of pydantic's problems as a line: the place of each, without so many parts, and what is wrong there."""
    named = [(".".join(map(str, problem["loc"][skipped:])), problem["msg"]) for problem in problems[:3]]
    return "; ".join(f"{field}: {message}" if field else message for field, message in named)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
