"""What untrusted code may use up, in one place."""

from typing import Annotated

from pydantic import Field

from rlm_core.records import Record

Seconds = Annotated[float, Field(gt=0, le=3600)]


class Limits(Record):
    """Limits of a sandbox. The parent enforces times by killing; the kernel enforces the rest in the child."""

    load_s: Seconds = 5.0
    """CPU seconds for loading the code: everything at its top level."""
    case_s: Seconds = 2.0
    """CPU seconds for one call of the entry point."""
    patience: Annotated[float, Field(ge=1, le=20)] = 4.0
    """How many times longer than its CPU seconds a request may take on the clock, because the machine may be busy."""
    total_s: Seconds = 60.0
    """Seconds on the clock for all cases of one answer together, loading included: the last backstop."""
    respawns: Annotated[int, Field(ge=0, le=20)] = 2
    """How often a child that was lost to a crash or a timeout is replaced, per answer. Cases after that are not run."""

    cpu_s: Annotated[int, Field(ge=1, le=3600)] = 20
    """CPU seconds of one child, all threads together."""
    memory_mb: Annotated[int, Field(ge=64, le=65536)] = 1024
    """Address space of one child."""
    file_mb: Annotated[int, Field(ge=0, le=1024)] = 1
    """Largest file that may be written. Nothing is writable, so this is a second line of defence."""
    open_files: Annotated[int, Field(ge=8, le=1024)] = 64
    """Open descriptors of one child."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 64
    """Threads of one child, where they can be counted; see docs/sandbox.md."""

    output_kb: Annotated[int, Field(ge=0, le=4096)] = 64
    """What one child prints, standard output and error together; the rest is dropped."""
    frame_mb: Annotated[int, Field(ge=1, le=64)] = 4
    """One answer on the wire."""
    nodes: Annotated[int, Field(ge=1, le=10_000_000)] = 200_000
    """Values within one value, each list, item, key counted."""
    depth: Annotated[int, Field(ge=1, le=200)] = 60
    """Nesting of one value."""
    text_chars: Annotated[int, Field(ge=20, le=10_000)] = 500
    """An exception's message, and other text for people."""

    start_s: Seconds = 20.0
    """Starting the sandbox itself."""
    zygote_s: Seconds = 2.0
    """An answer of the sandbox's own machinery; after that it is taken for dead."""
