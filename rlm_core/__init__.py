"""The logic of rlm-flows: self-play reinforcement learning of small code models. Never imports Prefect.

OpenBLAS has to be in the process before MLX is, so it is loaded here, before any module of this package can import MLX.
"""

from rlm_core import blas

blas.load()
