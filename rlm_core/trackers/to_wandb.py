"""Weights & Biases. WANDB_MODE=offline keeps runs in `wandb/` of the project, for `wandb sync`."""

from rlm_core.trackers import Told

_ASK_S = 5.0
"""How long it may ask for an account at a terminal; then the run is kept offline."""


def send(told: Told) -> None:
    """One run in the project of the same name."""
    import wandb

    run = wandb.init(
        project=told.project,
        name=told.run,
        config=told.config,
        dir=str(told.directory),
        reinit="create_new",
        settings=wandb.Settings(silent=True, login_timeout=_ASK_S),
    )
    for number, step in enumerate(told.steps, 1):
        run.log({f"train/{name}": value for name, value in step.items()}, step=number)
    run.summary.update(told.figures)
    run.finish()
