"""The value mode of tests/core/sandbox in a container."""

from tests.core.sandbox.test_sandbox_cases import *  # noqa: F403
