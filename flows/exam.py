"""An exam by itself: any policy on any suite."""

from typing import Any

from prefect import flow

from flows.console import outlive_the_reader
from flows.endings import MISTAKES, completed, mistaken
from rlm_core.config import Count, Positive, Temperature, Tokens
from rlm_core.config_file import load_config
from rlm_core.exams.order import order_exam
from rlm_core.progress import stopping_on_signals
from tasks.evaluate import evaluate
from tasks.stage import results_of, unplaced


@flow(name="exam", flow_run_name="{policy} on {suite}")
def exam(
    config: str = "configs/quick.yaml",
    policy: str = "incumbent",
    suite: str = "bank:benchmark",
    samples: Positive | None = None,
    temperature: Temperature | None = None,
    max_tokens: Tokens | None = None,
    seed: Count | None = None,
) -> dict[str, Any]:
    """Examine a policy on a suite, beside an iteration or without one.

    Args:
        config: path of the config file, relative to the working directory. It says what is not given here.
        policy: base, incumbent, the number of an iteration, the directory of an adapter, reference or empty.
        suite: `bank:benchmark`, `human-eval`, a file …; see docs/exams.md.
        samples: answers to each problem.
        temperature: 0 is greedy: one answer to each problem.
        max_tokens: of one answer.
        seed: by default that of the project's own exams.

    Returns:
        The path of the report, who was examined on what, whether it was there before, and its pass@k.
    """
    outlive_the_reader()
    try:
        settings = load_config(config)
        with stopping_on_signals():
            order = order_exam(settings, policy, suite, samples, temperature, max_tokens, seed)
            result = unplaced(evaluate, settings.prefect, task_run_name=f"{order.who} on {suite}")(
                timeout_s=settings.prefect.evaluate_timeout_s,
                files={},
                **order.parameters(),
            )
        sat = results_of(result, order.directory)
        figures: dict[str, Any] = sat.figures
        before = ", as it was sat before" if figures["reused"] else ""
        return completed(
            f"{policy} on {suite}: pass@1 {figures['pass_at']['1']:.3f}{before}",
            {"report": sat.files["report"].path, **figures},
        )
    except MISTAKES as error:
        return mistaken(error)
