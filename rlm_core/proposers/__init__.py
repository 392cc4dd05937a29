"""What proposes problems, each in a module of its own; docs/sources.md shows how to add one.

Their weights are in `generate.sources` of the config. The bank is none of them: what it gives is no proposal, and the
filter takes it where it is needed.
"""

from rlm_core.config import SourceName
from rlm_core.proposers import model, procedural
from rlm_core.proposers.proposer import Proposer

PROPOSERS: dict[SourceName, Proposer] = {
    "model": model.propose,
    "procedural": procedural.propose,
}
"""By the name that the config has for it, in the order in which they are asked."""
