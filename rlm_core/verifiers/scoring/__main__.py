"""The scorer itself: judges texts by JSON Schemas and by reasoning-gym's scorers, in a process that may be killed.

    python -m rlm_core.verifiers.scoring DESCRIPTOR

Its parent (scorer.py) sends one message per request over a socket and gets one back, as frames of JSON:

    {"cpu_s", "memory_mb", "depth"}, once         null
    {"do": "prepare", "key", "verifier"}          null, or why the verifier is not usable
    {"do": "score", "key", "text"}                {"score", "reason"}

A text that takes more CPU seconds than allowed ends the process (SIGXCPU); it ends, too, when its parent hangs up.
"""

import contextlib
import math
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from rlm_core.sandbox.inside import wire
from rlm_core.sandbox.text import readable
from rlm_core.verifiers.scoring import BadVerifier, ScoreText, Worth, datasets, schemas, scored


def main(descriptor: int) -> NoReturn:
    """Answer requests until the parent goes away."""
    limits = wire.receive(descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wire.send(descriptor, wire.frame(None))
    prepared: dict[str, ScoreText] = {}
    while True:
        request = wire.receive(descriptor)
        if request["do"] == "prepare":
            reply: Any = None
            try:
                prepared[request["key"]] = _prepare(request["verifier"], limits["depth"])
            except BadVerifier as error:
                reply = readable(str(error), 300)
            except Exception as error:  # of a library, which did not expect such a verifier
                reply = readable(f"preparing it raised {type(error).__name__}: {error}", 300)
        else:
            with _limited(limits):
                reply = _score(prepared[request["key"]], request["text"])
        wire.send(descriptor, wire.frame(reply))


def _prepare(verifier: dict[str, Any], depth: int) -> ScoreText:
    if verifier["kind"] == "json_schema":
        return schemas.by_schema(verifier["json_schema"], depth)
    return datasets.by_dataset(verifier["dataset"], verifier["entry"], verifier["pass_at"])


def _score(score_text: ScoreText, text: str) -> Worth:
    """What a text is worth; whatever goes wrong with it is its own fault, since the verifier was tried beforehand."""
    try:
        return score_text(text)
    except MemoryError:
        return scored("judging it needs too much memory")
    except RecursionError:
        return scored("it nests too deeply to be judged")
    except Exception as error:
        return scored(readable(f"judging it raised {type(error).__name__}: {error}"))


@contextlib.contextmanager
def _limited(limits: dict[str, Any]) -> Iterator[None]:
    """So many more CPU seconds and so much more memory than were used so far."""
    cpu_s = math.ceil(time.process_time() + limits["cpu_s"])
    bounds = {resource.RLIMIT_CPU: cpu_s}
    if sys.platform == "linux":  # elsewhere the address space is not limited by the kernel
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        bounds[resource.RLIMIT_AS] = pages * os.sysconf("SC_PAGE_SIZE") + (limits["memory_mb"] << 20)
    before = {what: resource.getrlimit(what) for what in bounds}
    try:
        for what, bound in bounds.items():
            hard = before[what][1]
            resource.setrlimit(what, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
        yield
    finally:
        for what, both in before.items():
            resource.setrlimit(what, both)


if __name__ == "__main__":
    with contextlib.suppress(wire.Closed):
        main(int(sys.argv[1]))
