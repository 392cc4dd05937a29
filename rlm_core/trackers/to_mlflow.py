"""MLflow. MLFLOW_TRACKING_URI says where to; without it runs are kept in `mlflow.sqlite` of the project."""

import os

from rlm_core.trackers import Told

_LONGEST = 6_000
"""Characters of a parameter's value that MLflow takes."""


def send(told: Told) -> None:
    """One run in the experiment of the project's name."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{told.directory / 'mlflow.sqlite'}"
    files = None if "MLFLOW_TRACKING_URI" in os.environ else (told.directory / "mlflow").as_uri()
    client = MlflowClient(tracking_uri=place)
    experiment = client.get_experiment_by_name(told.project)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(told.project, files)
    run_id = client.create_run(experiment_id, run_name=told.run).info.run_id
    metrics = [
        Metric(f"train/{name}", value, 0, number)
        for number, step in enumerate(told.steps, 1)
        for name, value in step.items()
    ]
    metrics += [Metric(name, value, 0, 0) for name, value in told.figures.items()]
    params = [Param(name, str(value)[:_LONGEST]) for name, value in told.config.items()]
    for start in range(0, len(metrics), 1_000):  # as many as it takes at once
        client.log_batch(run_id, metrics=metrics[start : start + 1_000])
    client.log_batch(run_id, params=params, tags=[RunTag("rlm.run", told.run)])
    client.set_terminated(run_id)
