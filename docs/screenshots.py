"""Take the pictures in docs/pictures/ anew: the pages of a project's last iteration, as a browser shows them.

    rlm up                                # in another terminal
    make screenshots PROJECT=quick

Needs a server that has recorded an iteration of the project, and chromium.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).with_name("pictures")
_WINDOW = "1400,1000"
_LOADING_MS = 20_000
"""Of the browser's own clock, until a page has fetched what it shows."""


def ask(api: str, path: str, content: dict[str, Any]) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        f"{api}{path}", data=json.dumps(content).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def pages(api: str, project: str) -> dict[str, str]:
    """The addresses of the pages, by the names of their pictures."""
    wanted = {"flow_runs": {"name": {"like_": f"{project} · iteration "}}, "sort": "START_TIME_DESC", "limit": 1}
    [run] = ask(api, "/flow_runs/filter", wanted) or sys.exit(f"the server has no iteration of a project {project}")
    ui = api.removesuffix("/api")
    found = {"runs": f"{ui}/runs", "iteration": f"{ui}/runs/flow-run/{run['id']}"}
    for page in ("learning", "iteration", "gate"):
        of_page = {"artifacts": {"key": {"any_": [f"{page}-{project}"]}}, "sort": "CREATED_DESC", "limit": 1}
        [artifact] = ask(api, "/artifacts/filter", of_page)
        found[f"page-{page}"] = f"{ui}/artifacts/artifact/{artifact['id']}"
    return found


def take(browser: str, address: str, picture: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"]
        flags += [f"--window-size={_WINDOW}", f"--virtual-time-budget={_LOADING_MS}", f"--screenshot={picture}"]
        subprocess.run([browser, *flags, address], check=True, capture_output=True, timeout=180)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", help="the name of its directory")
    parser.add_argument("--api", default="http://127.0.0.1:4200/api")
    given = parser.parse_args()
    browser = shutil.which("chromium") or sys.exit("chromium is needed: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    for name, address in pages(given.api, given.project).items():
        take(browser, address, PICTURES / f"{name}.png")
        print(PICTURES / f"{name}.png", address)


if __name__ == "__main__":
    main()
