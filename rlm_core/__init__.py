"""The logic of rlm-flows: self-play reinforcement learning of small code models. Never imports Prefect."""
