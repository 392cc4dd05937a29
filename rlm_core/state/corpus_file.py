"""The corpus as an iteration gets it: a file, without what is in its exams."""

from collections.abc import Sequence

from rlm_core.config import Config
from rlm_core.files import write_jsonl
from rlm_core.proposals.known import KnownProblems, repeats
from rlm_core.records import FileRef
from rlm_core.sources import read_problems
from rlm_core.state.corpus import CorpusAnswer
from rlm_core.state.run import Run


def write_corpus(run: Run, corpus: Sequence[CorpusAnswer], config: Config) -> FileRef:
    """What an iteration may rehearse and show, as its file, so that the stages' keys contain it.

    Answers to problems that are in an exam suite, or nearly, are left out. The filter keeps such problems from being
    trained on; but suites can be exchanged, and then an old problem may be in a new suite.
    """
    suites = {"benchmark": config.evaluate.benchmark, "holdout": config.evaluate.holdout}
    known = KnownProblems({group: read_problems(name) for group, name in suites.items()})
    kept = [answer for answer in corpus if not repeats(answer.problem, known, list(suites), config.filter)]
    return FileRef.of(write_jsonl(run.corpus, kept))
