"""What runs are called, in words that tell where they stand."""

from prefect import get_client
from prefect.runtime import flow_run


def name_this_run(name: str) -> None:
    """Give the flow run at work this name: some are known only once it is."""
    assert flow_run.id is not None
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, name=name)
