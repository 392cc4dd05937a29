"""Weights & Biases. WANDB_MODE=offline keeps runs in `wandb/` of the project, for `wandb sync`."""

import wandb

from rlm_core.trackers import Told


def send(told: Told) -> None:
    """One run in the project of the same name."""
    run = wandb.init(
        project=told.project,
        name=told.run,
        config=told.config,
        dir=str(told.directory),
        reinit="create_new",
        settings=wandb.Settings(silent=True),
    )
    for number, step in enumerate(told.steps, 1):
        run.log({f"train/{name}": value for name, value in step.items()}, step=number)
    run.summary.update(told.figures)
    run.finish()
