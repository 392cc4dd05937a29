"""Whether what `verify_runner` needs is there. Looks without importing Prefect, which takes seconds."""

import socket
from importlib.util import find_spec
from urllib.parse import urlsplit

from rlm_core.config import PrefectSection
from rlm_core.errors import InfrastructureFault, UsageError

_PACKAGES = {"threads": (), "dask": ("prefect_dask", "distributed"), "ray": ("prefect_ray", "ray")}
_ANSWER_S = 10.0


def require_runner(section: PrefectSection) -> None:
    """See that the packages of `verify_runner` are installed, and that something answers at the cluster's address.

    Ray by itself would try an address where nobody answers for many minutes.

    Raises:
        UsageError: a package is not installed; the message says what to install.
        InfrastructureFault: nothing answers.
    """
    kind = section.verify_runner
    missing = [package.replace("_", "-") for package in _PACKAGES[kind] if find_spec(package) is None]
    if missing:
        needed = " and ".join(missing)
        raise UsageError(f"prefect.verify_runner: {kind} needs {needed}; install them: pip install 'rlm-flows[{kind}]'")
    if section.cluster is None:
        return
    address = urlsplit(section.cluster if "://" in section.cluster else f"//{section.cluster}")
    try:
        socket.create_connection((address.hostname, address.port), _ANSWER_S).close()
    except OSError as error:
        raise InfrastructureFault(f"prefect.cluster: nothing answers at {section.cluster}: {error}") from error
