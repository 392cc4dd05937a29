"""Trackio. Runs are kept where TRACKIO_DIR says, in its own cache by default; `trackio show` draws them."""

from rlm_core.trackers import Told


def send(told: Told) -> None:
    """One run in the project of the same name."""
    import trackio

    run = trackio.init(project=told.project, name=told.run, config=told.config)
    for number, step in enumerate(told.steps, 1):
        run.log({f"train/{name}": value for name, value in step.items()}, step=number)
    run.log(told.figures, step=len(told.steps) + 1)
    run.finish()
