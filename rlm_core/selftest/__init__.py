"""Whether a sandbox of this machine holds: honest and dishonest answers of our own, judged as a model's would be.

The answers are in answers.yaml; what they reach for is planted by canaries.py; run.py judges them and looks at what
became of it.
"""

from rlm_core.problems import Mode
from rlm_core.selftest.answers import MODES
from rlm_core.selftest.report import SelfTest, Tried
from rlm_core.selftest.run import LIMITS, self_test

__all__ = ["LIMITS", "MODES", "Mode", "SelfTest", "Tried", "self_test"]
