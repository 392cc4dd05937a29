"""The adversarial candidates of tests/core/sandbox in a container."""

from tests.core.sandbox.test_sandbox_adversarial import *  # noqa: F403
