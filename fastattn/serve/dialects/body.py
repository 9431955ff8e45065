"""The common parts of dialects' request bodies."""

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict

from fastattn.serve.service import Service


class Body(BaseModel):
    """A request's body: a field that is not known is refused, since nothing would follow it."""

    model_config = ConfigDict(extra="forbid")


async def _of_request(request: Request) -> Service:  # a plain function would get a thread for each request
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_of_request)]


def several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
