"""What an iteration begins with: a project in which nothing is left of what was killed before."""

from pathlib import Path

import pytest

from rlm_core.config import Config
from rlm_core.config_file import load_config
from rlm_core.errors import AdapterError
from rlm_core.files import write_text
from rlm_core.iteration import begin
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import CHECKPOINT, Project
from tests.core.conftest import Settings, write
from tests.core.test_ledger import adapter, decision


@pytest.fixture
def config(settings: Settings, tmp_path: Path) -> Config:
    return load_config(Path(write(tmp_path, settings)))


@pytest.fixture
def project(config: Config) -> Project:
    return Project(Path(config.project))


def test_the_checkpoint_of_an_iteration_that_has_ended_goes_and_the_own_one_stays(
    config: Config, project: Project
) -> None:
    own, other = (write_text(project.run(number) / CHECKPOINT, "") for number in (1, 2))
    assert begin(config).number == 1
    assert own.exists()
    assert not other.exists()


def test_a_backup_that_was_not_made_is_made_up_for(config: Config, project: Project) -> None:
    begin(config)
    with open_ledger(project.ledger) as ledger:
        ledger.commit(decision(1, accepted=True), 0.3, [], {})
    assert not project.ledger_backup.exists()
    with pytest.raises(AdapterError, match="runs/0001/adapter"):  # this accept has none
        begin(config)
    with open_ledger(project.ledger_backup, create=False) as ledger:
        assert ledger.incumbent() == adapter(1)
