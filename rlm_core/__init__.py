"""The logic of rlm-flows: self-play reinforcement learning of small code models. Never imports Prefect.

OpenBLAS has to be in the process before MLX is, so it is loaded here, before any module of this package can import MLX;
the allocator is told what it needs to know likewise.
"""

from rlm_core.cpu import allocator, blas

allocator.keep_freed_memory()
blas.load()
