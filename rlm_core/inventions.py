"""What came of the problems that the model was asked for, and of a bank that is proved, in figures and in words."""

from collections.abc import Sequence
from typing import Self

from rlm_core.records import Record, StageResult


class Inventions(Record):
    """Of one iteration: what the model was asked for, what the bank was to give, and what could be used of it."""

    invented_asked: int = 0
    """Problems that the model was asked for, mutants among them."""
    invented: int = 0
    """Those of them that became problems of the iteration."""
    majorities_asked: int = 0
    """Proposals without a solution, for which one was looked for in several answers."""
    majorities_found: int = 0
    """Those for which most answers agreed."""
    claims_checked: int = 0
    """Expected values that the model claimed for its own problems, and that their solutions could be run for."""
    claims_wrong: int = 0
    """Those of them that the solutions do not give."""
    bank_tried: int = 0
    """Problems of a bank of the user's own that were to be proved."""
    bank_refused: int = 0
    """Those of them that were not, and are not asked."""

    @classmethod
    def of(cls, made: Sequence[StageResult]) -> Self:
        """Those of the results of generate, mutate and filter, in this order; what a result does not tell is 0."""
        told = {name: made[-1].figures[name] for name in cls.model_fields if name in made[-1].figures}
        asked = sum(int(str(result.figures.get("asked", 0))) for result in made[:-1])
        return cls.model_validate({**told, "invented_asked": asked})


def in_words(found: Inventions) -> str:
    """What is worth knowing; nothing where the model was asked for nothing, and nothing of the bank was refused."""
    words = []
    if found.invented_asked and not found.invented:
        words.append(
            f"none of {found.invented_asked} that the model was asked for could be used, others took their place"
        )
    elif found.invented_asked:
        words.append(f"{found.invented} of {found.invented_asked} that the model was asked for could be used")
    if found.majorities_asked:
        words.append(f"{found.majorities_found} of {found.majorities_asked} without a solution got one by majority")
    if found.claims_checked:
        words.append(f"{found.claims_wrong} of {found.claims_checked} values that the model claimed were wrong")
    if found.bank_refused:
        words.append(
            f"{found.bank_refused} of {found.bank_tried} problems of the bank that came up could not be proved and "
            "were left out, problems.rejections.jsonl says why"
        )
    return "; ".join(words)
