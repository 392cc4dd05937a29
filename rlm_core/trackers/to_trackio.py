"""Trackio. Runs are kept where TRACKIO_DIR says, in its own cache by default; `trackio show` draws them."""

from contextlib import redirect_stdout
from io import StringIO

from rlm_core.trackers import Told


def send(told: Told) -> None:
    """One run in the project of the same name."""
    import trackio

    # Its advice would stand between the lines of `rlm run`; and how busy the machine is now is not the iteration's.
    with redirect_stdout(StringIO()):
        trackio.init(
            project=told.project, name=told.run, config=told.config, auto_log_cpu=False, auto_log_gpu=False, embed=False
        )
        for number, step in enumerate(told.steps, 1):
            trackio.log({f"train/{name}": value for name, value in step.items()}, step=number)
        trackio.log(told.figures, step=len(told.steps) + 1)
        trackio.finish()  # the run's own method would have it finished once more when the process ends
