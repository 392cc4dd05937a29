"""Problems composed of typed primitives, with references, cases and words; see docs/sources.md."""

from rlm_core.sources.procedural.source import problems

__all__ = ["problems"]
