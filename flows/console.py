"""The log lines that a run's process writes to whoever started it."""

import logging
from collections.abc import Iterator

from prefect.logging.handlers import PrefectConsoleHandler


def outlive_the_reader() -> None:
    """Let this process go on when nobody reads its output any more, as when its worker was killed.

    The console of Prefect's log handler would end it then, from whichever thread writes the next line. The lines still
    go to the server.
    """
    for handler in _console_handlers():
        _go_quiet_on_broken_pipe(handler)


def _console_handlers() -> Iterator[PrefectConsoleHandler]:
    for logger in [logging.root, *logging.root.manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger):
            yield from (found for found in logger.handlers if isinstance(found, PrefectConsoleHandler))


def _go_quiet_on_broken_pipe(handler: PrefectConsoleHandler) -> None:
    console = handler.console

    def go_quiet() -> None:
        console.quiet = True

    # The method is there to be replaced, but Prefect makes the console itself.
    console.on_broken_pipe = go_quiet  # type: ignore[method-assign]
