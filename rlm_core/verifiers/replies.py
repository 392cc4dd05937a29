"""What the replies of a child mean, for people."""

from dataclasses import dataclass

from rlm_core.sandbox.child import Reply
from rlm_core.sandbox.text import GARBAGE, readable


@dataclass(frozen=True)
class Described:
    """An exception as a child described it, checked."""

    ancestry: list[str]
    name: str
    message: str

    def __str__(self) -> str:
        return readable(f"{self.name}: {self.message}" if self.message else self.name)


def why_not_loaded(reply: Reply, entry_point: str = "") -> str:
    """Why there is nothing to call, or "" when there is."""
    if reply.kind == "loaded":
        return ""
    if reply.kind == "missing":
        return f"no function named {entry_point}"
    if reply.kind == "raised":
        return f"does not load: {exception_of(reply) or GARBAGE}"
    return f"does not load: {why_lost(reply)}"


def why_lost(reply: Reply) -> str:
    """What became of the child."""
    if reply.kind in ("crashed", "not_run"):
        return str(reply.payload)
    return "it took too long" if reply.kind == "timeout" else GARBAGE


def exception_of(reply: Reply) -> Described | None:
    """What a child said about an exception, or None when that is not of the right form."""
    match reply.payload:
        case [list(ancestry), str(name), str(message)] if all(isinstance(each, str) for each in ancestry):
            return Described(ancestry, name, message)
    return None
