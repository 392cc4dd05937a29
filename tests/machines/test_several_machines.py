"""docs/several-machines.md, followed to the letter on hosts of its own; one of them is cut off in the middle."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import MakeConfig
from tests.machines.hosts import NAMES, Host, Switch, cannot_be_made, hosts
from tests.served.machine import ROOT, wait_for

PAGE = (ROOT / "docs" / "several-machines.md").read_text()
GO_ON = ("prefect server start", "prefect worker start", "rlm serve", "dask scheduler", "dask worker")
RUN = "prefect deployment run"
GONE = "a server is asked less or no more: http://10.10.0.4:8080"

impossible = cannot_be_made()


def commands() -> Iterator[tuple[str, str]]:
    """The page's commands with the names of their hosts."""
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        yield from re.findall(rf"^([{NAMES}])\$ (.+)$", block, re.MULTILINE)


def follow(host: Host, command: str) -> str:
    """What a command printed that has ended."""
    program, _, rest = command.partition(" ")
    if program == "export":
        host.export(rest)
    elif program == "cd":
        host.enter(rest)
    elif command.startswith(GO_ON):
        host.start(command)
    elif program == "curl":
        wait_for(lambda: host.follow(command).returncode == 0)
    else:
        done = host.follow(command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return ""


@pytest.fixture
def shared(tmp_path: Path, make_config: MakeConfig) -> Path:
    """What all hosts have at /srv: this repository, and a project with the page's settings and the tiny model."""
    directory = tmp_path / "srv"
    directory.mkdir()
    (directory / "rlm-flows").symlink_to(ROOT)
    [block] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    said = yaml.safe_load(block)
    small = {"group_size": 64, "shard_problems": 1, "batch_size": 4}
    config = yaml.safe_load(make_config(rollout={**said["rollout"], **small}, prefect=said["prefect"]).read_text())
    (directory / "mine.yaml").write_text(yaml.safe_dump({**config, "project": said["project"]}))
    return directory


def run_with_a_cut(switch: Switch, b: Host, command: str, iteration: Path) -> None:
    """An iteration during whose rollouts host d is gone until it was noticed."""
    running = b.start(command)
    wait_for(lambda: any((iteration / "rollouts").glob("*.jsonl")) or running.poll() is not None)
    with switch.cut("d"):
        wait_for(lambda: GONE in b.log.read_text() or running.poll() is not None)
    assert running.wait(timeout=600) == 0, b.log.read_text()


@pytest.mark.skipif(bool(impossible), reason=str(impossible))
@pytest.mark.timeout(2_400)
def test_the_page_does_what_it_says_also_when_a_host_is_cut_off(shared: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "homes"
    scratch.mkdir()
    iteration = shared / "mine" / "runs" / "0001"
    with hosts(shared, scratch) as (switch, by_name):
        for name, command in commands():
            if command.startswith(RUN):
                run_with_a_cut(switch, by_name[name], command, iteration)
            else:
                printed = follow(by_name[name], command)
        said = {name: host.log.read_text() for name, host in by_name.items()}
    assert re.search(r"^│ 1 +│ .*│ (accepted|rejected|probation) ", printed, re.MULTILINE), printed
    assert GONE in said["b"], "the cut was noticed"
    shards = [f"{number:03}" for number in range(6)]
    assert sorted(path.stem for path in (iteration / "verdicts").glob("*.jsonl")) == shards
