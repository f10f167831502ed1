"""Experiments in Optuna's eyes: a storage that its own tools read.

    import carrel, optuna
    study = optuna.load_study(study_name="vision/sweep", storage=carrel.optuna_storage())

A study is named ``project/experiment``. The storage holds every experiment that its owner's token
may see, follows those that are under way, and is read-only: what an experiment does is decided by
the scheduler. ``optuna.copy_study`` and ``carrel experiment export`` make copies of one's own.

A log of entries is all that is read over REST; Optuna's ``JournalStorage`` makes studies of it.
"""

import copy
import time
from collections.abc import Container
from typing import Any, Final, NoReturn

from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

from carrel.client import Client
from carrel.errors import ApiError, CarrelError

FRESH_SECONDS: Final = 1.0
# Numbers of trials lie in the lower half of an id, the study in the upper.
STUDY_SHIFT: Final = 32
OWN_STUDY: Final = 0


class ReadOnlyStudy(CarrelError):  # noqa: N818 - reads as the fact it states
    """The study belongs to an experiment; the scheduler alone writes it."""

    def __init__(self) -> None:
        super().__init__(
            "The studies of experiments are read-only: the scheduler writes them. "
            "Copy one with optuna.copy_study, and write into the copy."
        )


class RemoteJournal(BaseJournalBackend):
    """An experiment's log; read again when what is known is older than a second."""

    def __init__(self, client: Client, project: str, name: str) -> None:
        self._client, self._project, self._name = client, project, name
        self._read_at = -FRESH_SECONDS

    @override
    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Entries from a number on."""
        if log_number_from and time.monotonic() - self._read_at < FRESH_SECONDS:
            return []
        entries = self._client.study_log(self._project, self._name, first=log_number_from)
        self._read_at = time.monotonic()
        return entries

    @override
    def append_logs(self, logs: list[dict[str, Any]]) -> NoReturn:
        """Refused."""
        raise ReadOnlyStudy


def optuna_storage(client: Client | None = None) -> "CarrelStorage":
    """The experiments that you may see, as a storage for Optuna's own tools.

    Args:
        client: of which server and with which token; by default as everywhere.
    """
    return CarrelStorage(client or Client())


class CarrelStorage(BaseStorage):
    """See ``optuna_storage``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: list[str] = []
        self._journals: list[JournalStorage] = []

    def _open(self, name: str) -> int:
        if name not in self._names:
            project, _, experiment = name.rpartition("/")
            project = project or self._client.settings.project
            try:
                journal = JournalStorage(RemoteJournal(self._client, project, experiment))
            except ApiError as error:
                raise KeyError(f"There is no experiment `{name}`: {error}") from error
            if not journal.get_all_studies():
                raise KeyError(f"The experiment `{name}` has not begun")
            self._journals.append(journal)
            self._names.append(name)
        return self._names.index(name)

    def _journal(self, study_id: int) -> JournalStorage:
        if not 0 <= study_id < len(self._journals):
            raise KeyError("Record does not exist.")
        return self._journals[study_id]

    @override
    def get_study_id_from_name(self, study_name: str) -> int:
        return self._open(study_name)

    @override
    def get_study_name_from_id(self, study_id: int) -> str:
        self._journal(study_id)
        return self._names[study_id]

    @override
    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._journal(study_id).get_study_directions(OWN_STUDY)

    @override
    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._journal(study_id).get_study_user_attrs(OWN_STUDY)

    @override
    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._journal(study_id).get_study_system_attrs(OWN_STUDY)

    @override
    def get_all_studies(self) -> list[FrozenStudy]:
        for found in self._client.list_workloads(kind="experiment"):
            searches = found.spec.experiment is not None and not found.spec.experiment.map
            if searches and found.status.experiment is not None:
                self._open(f"{found.project}/{found.name}")
        return [
            FrozenStudy(
                study_name=name,
                direction=None,
                directions=self.get_study_directions(study_id),
                user_attrs=self.get_study_user_attrs(study_id),
                system_attrs=self.get_study_system_attrs(study_id),
                study_id=study_id,
            )
            for study_id, name in enumerate(self._names)
        ]

    @override
    def get_trial(self, trial_id: int) -> FrozenTrial:
        study_id, own = divmod(trial_id, 1 << STUDY_SHIFT)
        return _with_id(self._journal(study_id).get_trial(own), trial_id)

    @override
    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        own = self._journal(study_id).get_trial_id_from_study_id_trial_number(
            OWN_STUDY, trial_number
        )
        return (study_id << STUDY_SHIFT) + own

    @override
    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        found = self._journal(study_id).get_all_trials(OWN_STUDY, deepcopy, states)
        return [_with_id(one, (study_id << STUDY_SHIFT) + one._trial_id) for one in found]  # noqa: SLF001 - the id is part of Optuna's contract for storages

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ReadOnlyStudy

    create_new_study = delete_study = set_study_user_attr = set_study_system_attr = _refuse
    create_new_trial = set_trial_param = set_trial_state_values = _refuse
    set_trial_intermediate_value = set_trial_user_attr = set_trial_system_attr = _refuse


def _with_id(trial: FrozenTrial, trial_id: int) -> FrozenTrial:
    found = copy.copy(trial)
    found._trial_id = trial_id  # noqa: SLF001 - the id is part of Optuna's contract for storages
    return found
