"""Where untrusted code runs: nowhere else in this project is code of a model executed. See docs/sandbox.md."""

from rlm_core.sandbox.container import Container
from rlm_core.sandbox.limits import Limits
from rlm_core.sandbox.sandbox import AUTOMATIC, Sandbox, available, open_sandbox

__all__ = ["AUTOMATIC", "Container", "Limits", "Sandbox", "available", "open_sandbox"]
