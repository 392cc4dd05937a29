"""What runs are called, in words that tell where they stand."""

from prefect import get_client, get_run_logger
from prefect.runtime import flow_run

from rlm_core.errors import one_line


def name_this_run(name: str) -> None:
    """Give the flow run at work this name: some are known only once it is. That it cannot be given is no error."""
    assert flow_run.id is not None
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run.id, name=name)
    except Exception as error:
        get_run_logger().info("this run could not be named %s: %s", name, one_line(error))
