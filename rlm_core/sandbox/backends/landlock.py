"""No namespaces: the children see the names of the machine's files, and may open next to none of them."""

from rlm_core.sandbox.backends.base import Backend, Launch, kernel_missing, spare_user
from rlm_core.sandbox.interpreter import INSIDE, Interpreter


def _missing() -> str | None:
    # Before version 3 Landlock does not hinder truncating a readable file, and here nothing else would.
    return kernel_missing(landlock_abi=3)


def _launch(interpreter: Interpreter) -> Launch:
    user = spare_user()
    everybody_reads = interpreter.readable_by_all and interpreter.reachable_by_all
    return Launch(
        command=(str(interpreter.executable),),
        directory=INSIDE.parent,
        user=user,
        keep_read_access=user is not None and not everybody_reads,
        # Without a user of its own, the limit would count everything that the person is running.
        count_threads=user is not None,
        listable=tuple(map(str, interpreter.readable)),
        readable=tuple(map(str, interpreter.exposed)),
        packages=tuple(map(str, interpreter.packages)),
        real_pids=True,
    )


BACKEND = Backend(name="landlock", title="landlock+seccomp", missing=_missing, launch=_launch)
