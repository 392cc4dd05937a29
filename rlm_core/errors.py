"""The errors that a person or the world can cause, each with the exit code that `rlm` ends with.

    RlmError                        1   anything below; one line says what, where and the way out
    ├── UsageError                  2   what was asked for cannot be done as asked
    │   ├── ConfigError                 a setting is unknown, of the wrong type or out of range
    │   ├── ProblemError                a problem or suite file is missing, empty or malformed
    │   ├── ModelError                  a base model cannot be found or loaded
    │   └── AdapterError                an adapter is incomplete or was made for another base
    ├── Busy                        3   another process holds the project, or the home of rlm up
    ├── SandboxUnavailable          4   the asked-for sandbox cannot be had on this machine
    ├── LedgerError                 5   the ledger is locked, damaged or from a newer version
    ├── StageFailed                 6   a stage could not finish: too many broken rollouts, exam not complete, no disk …
    ├── InfrastructureFault         7   the machinery, not the work, failed; worth another try
    └── Interrupted               130   a person or the system asked to stop; what was finished is kept

Our own bugs are `assert`s and are not in this tree.
"""

import re


class RlmError(Exception):
    """Base of all errors that are shown to a person as one line."""

    exit_code = 1


class UsageError(RlmError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown, of the wrong type or out of range."""


class ProblemError(UsageError):
    """A problem or suite file is missing, empty or malformed."""


class ModelError(UsageError):
    """A base model cannot be found, fetched or loaded."""


class AdapterError(UsageError):
    """An adapter is incomplete or was made for another base."""


class Busy(RlmError):
    """Another process holds the lock of the project, or of the home of `rlm up`."""

    exit_code = 3


class SandboxUnavailable(RlmError):
    """The asked-for sandbox cannot be had on this machine. Nothing weaker is used in its place."""

    exit_code = 4


class LedgerError(RlmError):
    """The ledger is locked, damaged or from a newer version."""

    exit_code = 5


class StageFailed(RlmError):
    """A stage could not finish; what it had finished is kept."""

    exit_code = 6


class InfrastructureFault(RlmError):
    """The machinery failed, not the work: a sandbox that died, an answer that never came. Worth another try."""

    exit_code = 7


class Interrupted(RlmError):
    """A person or the system asked to stop. What was finished is kept and found again by the next run."""

    exit_code = 130


CREDENTIALS = re.compile(r"(?<=//)[^\s/?#]*@")
"""What stands before the host in an address."""


def one_line(error: object, longest: int | None = None) -> str:
    """What somebody else's error says, as part of a line of ours: white space is single blanks, addresses are without
    user and password, and no more than `longest` characters are kept."""
    return " ".join(CREDENTIALS.sub("…@", str(error)).split())[:longest]
