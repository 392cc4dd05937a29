"""A project as one HTML file that needs nothing else: no server, no network, no script."""

from collections.abc import Iterator
from html import escape

from markdown_it import MarkdownIt

from rlm_core.errors import StageFailed
from rlm_core.pages.curve import points, svg
from rlm_core.pages.iteration_page import iteration_page, read_ended
from rlm_core.pages.learning_page import LEGEND, learning_page
from rlm_core.state.ledger import FinishedIteration, Ledger
from rlm_core.state.project import Project
from rlm_core.state.prune import size_of
from rlm_core.state.run import Run

_SHOWN = 20
"""Newest iterations whose pages are in the file."""

_STYLE = """
:root { color-scheme: light dark; --edge: light-dark(#d5d5d5, #444); --block: light-dark(#f4f4f4, #222); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       background: light-dark(#fff, #161616); color: light-dark(#1b1b1b, #e4e4e4); }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border-bottom: 1px solid var(--edge); padding: .3rem .6rem; text-align: left; }
pre { background: var(--block); padding: .6rem; overflow-x: auto; font-size: .85rem; }
details { border-top: 1px solid var(--edge); padding: .5rem 0; }
summary { cursor: pointer; font-weight: 600; }
svg { max-width: 100%; height: auto; }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Whatever a model wrote, a browser loads and runs nothing for it."""


def html_report(project: Project, ledger: Ledger) -> str:
    """Curve and history, and the pages of the newest iterations."""
    name, history = project.root.absolute().name, ledger.history()
    project_bytes = size_of(project.root)
    head = _html(learning_page(name, history, picture=False))
    picture = svg(points(history))
    figure = f"<figure>{picture}<figcaption>{escape(LEGEND)}</figcaption></figure>" if picture else ""
    iterations = "\n".join(_folded(project, entry, project_bytes) for entry in reversed(history[-_SHOWN:]))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(name)}</title><style>{_STYLE}</style></head>\n"
        f"<body>{head.replace('</h1>', f'</h1>{figure}', 1)}\n{iterations}</body></html>\n"
    )


def iteration_texts(project: Project, number: int, project_bytes: int) -> Iterator[str]:
    """The pages of a finished iteration in Markdown: how it went, and why the gate decided as it did.

    Args:
        project_bytes: as in `read_ended`.

    Raises:
        StageFailed: a file of the iteration is missing or damaged.
    """
    yield iteration_page(read_ended(project, number, project_bytes))
    gate = Run(project.run(number)).gate_page
    if gate.is_file():
        yield gate.read_text()


def _folded(project: Project, entry: FinishedIteration, project_bytes: int) -> str:
    try:
        content = "\n".join(map(_html, iteration_texts(project, entry.number, project_bytes)))
    except StageFailed as error:
        content = f"<p>{escape(str(error))}</p>"
    title = f"Iteration {entry.number}: {entry.decision.outcome}"
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _html(markdown: str) -> str:
    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
