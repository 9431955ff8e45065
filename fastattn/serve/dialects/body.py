"""What the routes of all dialects share: a request's body and the Service."""

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict

from fastattn.serve.service import Service


class Body(BaseModel):
    """A request's body. An unknown field is refused, since a client that sends it expects some effect."""

    model_config = ConfigDict(extra="forbid")


async def _service(request: Request) -> Service:  # FastAPI would run a plain function in a thread
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
