"""`rlm`: run iterations, look at a project, check the machine.

Each command imports what it needs when it is called, so that help and errors come at once: MLX, mlx-lm and Prefect take
seconds to import.
"""

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from rlm_core.config import Config, VerifySection
from rlm_core.config_file import load_config
from rlm_core.errors import RlmError, UsageError
from rlm_core.problems import Mode
from rlm_core.starter.new_project import CONFIG_NAME
from rlm_core.state.project import Project

DEFAULT_CONFIG = CONFIG_NAME if Path(CONFIG_NAME).is_file() else "configs/quick.yaml"
"""In a directory that `rlm init` made its config, in a checkout of this repository the one for a first try."""

app = typer.Typer(
    name="rlm",
    help="Self-play reinforcement learning of small code models, as Prefect flows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The project's settings, a YAML file.")]


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where the project is to be; made if it is not there.")] = Path(),
    from_: Annotated[
        Path | None, typer.Option("--from", help="Config of mlxsmith 0.1.0, to take settings and exams over from.")
    ] = None,
) -> None:
    """Make a project: a config with every setting explained, problems, an exam. Nothing is overwritten."""
    from rlm_cli.init import init_project

    init_project(directory, from_)


@app.command()
def run(
    config: ConfigOption = Path(DEFAULT_CONFIG),
    iterations: Annotated[
        int, typer.Option("--iterations", "-n", min=1, help="How many to run, one after another.")
    ] = 1,
) -> None:
    """Run the next iteration: it goes on from what was accepted last, or is on probation.

    An iteration that was interrupted is continued from what it had finished.
    """
    from rlm_cli.embedded import run_iterations
    from rlm_cli.status import show_outcome

    project = Project(Path(load_config(config).project))
    for result in run_iterations(config, iterations):
        show_outcome(result, project)


@app.command()
def status(config: ConfigOption = Path(DEFAULT_CONFIG)) -> None:
    """Show where a project stands: its incumbent, its best score, the iteration to come."""
    from rlm_cli.status import show_status
    from rlm_core.state.ledger import open_ledger

    project = Project(Path(load_config(config).project))
    with open_ledger(project.ledger, create=False) as ledger:
        show_status(project, ledger)


@app.command()
def history(
    config: ConfigOption = Path(DEFAULT_CONFIG),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per iteration.")] = False,
) -> None:
    """List the finished iterations with their scores and decisions."""
    from rlm_cli.status import show_history
    from rlm_core.state.ledger import open_ledger

    project = Project(Path(load_config(config).project))
    with open_ledger(project.ledger, create=False) as ledger:
        show_history(ledger, as_json)


@app.command("show")
def show_one(
    iteration: Annotated[int, typer.Argument(min=1, help="A finished iteration.")],
    config: ConfigOption = Path(DEFAULT_CONFIG),
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the pages as they are written.")] = False,
) -> None:
    """Show an iteration: its stages, samples of its problems, answers to be looked at, and the gate's page."""
    from rlm_cli.show import show_iteration

    show_iteration(Project(Path(load_config(config).project)), iteration, as_markdown)


@app.command()
def report(
    config: ConfigOption = Path(DEFAULT_CONFIG),
    as_html: Annotated[
        bool, typer.Option("--html", help="Write one HTML file, with the learning curve and the newest iterations.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to; report.html in the project by default.")
    ] = None,
) -> None:
    """Show what a project has come to: its learning curve and its iterations. No server is needed."""
    from rlm_cli.report import report_project

    report_project(Project(Path(load_config(config).project)), as_html, output)


@app.command()
def rollback(
    iteration: Annotated[int, typer.Argument(min=0, help="An accepted iteration; 0 is before the first.")],
    config: ConfigOption = Path(DEFAULT_CONFIG),
) -> None:
    """Go back to what an earlier iteration accepted. It is recorded, and later iterations keep their numbers."""
    from rlm_cli.rollback import roll_back

    settings = load_config(config)
    roll_back(Project(Path(settings.project)), settings.model.base, iteration)


@app.command()
def prune(
    config: ConfigOption = Path(DEFAULT_CONFIG),
    keep: Annotated[int, typer.Option(min=0, help="Newest iterations of which everything stays.")] = 3,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove; without it the command only shows what would go.")
    ] = False,
) -> None:
    """Remove adapters that were rejected, and rollouts and verdicts of old iterations."""
    from rlm_cli.prune import prune_project

    prune_project(Project(Path(load_config(config).project)), keep, yes)


@app.command()
def verify(
    problem: Annotated[Path | None, typer.Argument(help="A problem file that holds one problem.")] = None,
    answer: Annotated[
        Path | None, typer.Argument(help="A file with the answer: code, or text where no code is asked for.")
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Try bundled honest and dishonest answers in the sandbox instead.")
    ] = False,
    sandbox: Annotated[str | None, typer.Option(help="Which sandbox runs it; auto takes the strongest.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="Judge by the problem's cases or its pytest tests alone.")] = None,
    partial_credit: Annotated[float | None, typer.Option(min=0, max=1, help="As in the section verify.")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Use its section verify.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
) -> None:
    """Judge one answer to one problem, or see whether the sandbox holds.

    Exits 0 when the answer passed or the sandbox holds, 1 when not, 2 when it could not be judged or tried.
    """
    from rlm_cli.selftest import run_self_test
    from rlm_cli.verify import judge_by_hand

    section = load_config(config).verify if config else VerifySection()
    given = {"sandbox": sandbox, "partial_credit": partial_credit}
    section = section.model_copy(update={name: value for name, value in given.items() if value is not None})
    if self_test:
        if problem is not None:
            raise UsageError("--self-test brings its own answers: give it no PROBLEM and no ANSWER")
        raise typer.Exit(run_self_test(section, mode, as_json))
    if problem is None or answer is None:
        raise UsageError("PROBLEM and ANSWER are needed, or --self-test in their place")
    raise typer.Exit(judge_by_hand(problem, answer, mode, section, as_json))


@app.command()
def prove(
    problems: Annotated[Path, typer.Argument(help="A problem file.")],
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Use its sections filter and verify.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each that is refused.")] = False,
) -> None:
    """Tell which problems of a file an iteration would train on, and why it would refuse the others.

    Exits 0 when all are proved, 1 when not, 2 when the file cannot be used at all.
    """
    from rlm_cli.prove import prove_file

    settings = load_config(config) if config else Config()
    raise typer.Exit(prove_file(problems, settings.verify, settings.filter, as_json))


@app.command()
def exam(
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "-p",
            help="base, incumbent, the number of an iteration, the directory of an adapter; or, without a model, "
            "reference or empty: what each problem brings along.",
        ),
    ] = "incumbent",
    suite: Annotated[
        str, typer.Option("--suite", "-s", help="bank:benchmark, human-eval, a file …; see docs/exams.md.")
    ] = "bank:benchmark",
    config: ConfigOption = Path(DEFAULT_CONFIG),
    samples: Annotated[int | None, typer.Option("--samples", "-n", help="Answers to each problem.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy: one answer to each problem.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Of one answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="By default that of the project's own exams.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report here, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Examine any policy on any suite. What is not given is as in the config's section evaluate.

    A report of the same policy, suite, settings and code is not made again.
    """
    from rlm_cli.exam import run_exam

    run_exam(load_config(config), policy, suite, samples, temperature, max_tokens, seed, output, as_json)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A report of `rlm exam`, or of an iteration's exams.")],
    second: Annotated[Path, typer.Argument(help="Another report on the same exam.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as one JSON object.")] = False,
) -> None:
    """Compare two reports on the same exam: difference, interval, p-value, and where the second is better or worse."""
    from rlm_cli.compare import compare_reports

    compare_reports(first, second, as_json)


@app.command()
def export(
    target: Annotated[Path, typer.Argument(help="Directory of the new model; must not be there.")],
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="incumbent, the number of an iteration, the directory of an adapter.")
    ] = "incumbent",
    gguf: Annotated[bool, typer.Option("--gguf", help="Write a GGUF file for llama.cpp, too.")] = False,
    config: ConfigOption = Path(DEFAULT_CONFIG),
) -> None:
    """Fuse the accepted adapter into its base: a model of its own with a card, examined again before it is in place."""
    from rlm_cli.export import export_policy

    export_policy(load_config(config), policy, target, gguf)


@app.command()
def up(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Of the server and its UI, on 127.0.0.1.")] = 4200,
    home: Annotated[
        Path | None, typer.Option(help="Directory of Prefect's database and logs; ~/.prefect by default.")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Runs that may be at work at the same time.")] = 2,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Start rlm serve, too: a server of the accepted adapter, see docs/serving.md."),
    ] = False,
    serve_port: Annotated[int, typer.Option(min=1, max=65_535, help="Where it listens, on 127.0.0.1.")] = 8080,
    config: Annotated[
        Path, typer.Option("--config", "-c", help="With --serve: the settings of the project that is served.")
    ] = Path(DEFAULT_CONFIG),
) -> None:
    """Start Prefect's server with its UI, deploy everything, and work on what is asked for until Ctrl-C.

    What dies is started again. At the end all that was started is stopped; the next run continues from there.
    """
    from rlm_cli.up import Inference, bring_up

    if serve:
        load_config(config)
    bring_up(port, home, at_once, Inference(config, serve_port) if serve else None)


@app.command()
def serve(
    config: ConfigOption = Path(DEFAULT_CONFIG),
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes one that is free.")] = 8080,
    token_env: Annotated[
        str | None, typer.Option(help="Name of the environment variable with the token that requests must have.")
    ] = None,
) -> None:
    """Serve the project's accepted adapter to OpenAI clients until Ctrl-C, and each new one without a restart.

    How many requests it takes on, and how large ones, is in the config's section serve; see docs/serving.md.
    """
    from rlm_cli.serve import serve_project

    serve_project(load_config(config), host, port, token_env)


@app.command()
def doctor(
    rebuild_ledger: Annotated[
        bool, typer.Option("--rebuild-ledger", help="Make a project's damaged ledger anew instead.")
    ] = False,
    config: ConfigOption = Path(DEFAULT_CONFIG),
) -> None:
    """Check this machine: the BLAS under MLX, the compiler, the sandboxes, the default model. Exits 1 on a failure."""
    from rlm_cli.doctor import examine_machine
    from rlm_cli.rebuild import make_ledger_anew

    if rebuild_ledger:
        make_ledger_anew(Project(Path(load_config(config).project)))
    else:
        raise typer.Exit(examine_machine())


def main() -> None:
    """Run the command; an error that a person can do something about is one line and an exit code."""
    try:
        code = app(standalone_mode=False)
    except RlmError as error:
        _end(f"rlm: {error}", error.exit_code)
    except typer.TyperException as error:
        _end(f"rlm: {error.format_message() if hasattr(error, 'format_message') else error}", 2)
    except (KeyboardInterrupt, typer.Abort):
        _end("rlm: stopped; the next run continues from what was finished", 130)
    except Exception:
        traceback.print_exc()
        _end("rlm: this is a bug in rlm-flows; please report it with the lines above", 70)
    else:
        sys.exit(code or 0)


def _end(line: str, code: int) -> None:
    print(line, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
