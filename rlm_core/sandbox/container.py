"""What the `docker` sandbox runs in, in one place."""

from typing import Annotated

from pydantic import Field

from rlm_core.records import Record


class Container(Record):
    """The container of one zygote. Its limits hold for the zygote and its child together; see also `Limits`."""

    image: Annotated[str, Field(pattern=r"^\w[\w./:@-]*$")] = "python:3.12-slim"
    """An image with Python 3.11 or newer as `python3`. It has to be there: nothing is pulled."""
    memory_mb: Annotated[int, Field(ge=128, le=1 << 20)] = 2048
    """Memory, swap included. With more than `limits.memory_mb`, a child meets its own limit first."""
    cpus: Annotated[float, Field(ge=0.1, le=1024)] = 1.0
    """Processors' worth of time."""
    pids: Annotated[int, Field(ge=8, le=32768)] = 256
    """Processes and threads."""
    host: Annotated[str, Field(min_length=1)] | None = None
    """Address of the engine, such as `unix:///run/docker.sock`; null for the one that `docker` takes by itself."""
