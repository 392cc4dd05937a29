"""Tests. The package comes first, so that OpenBLAS is in the process before MLX is."""

import rlm_core  # noqa: F401
