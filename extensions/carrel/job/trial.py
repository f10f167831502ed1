"""``carrel.trial()``: the parameters of an experiment's trial, and its values and result.

The same script runs by hand: outside an experiment the parameters are the given defaults, nothing
is pruned, and reports are only remembered.

``TrialLink`` sends values in their order and gets the answer. Values that cannot be sent are kept
and sent again; the process waits for them when it ends, as the last one is the result. Reports have
a thread, so that they hold up nothing; a trial that only has a result does without.
"""

import atexit
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsFloat, TypeVar

from carrel.job import api

if TYPE_CHECKING:
    from carrel.job.report import Sender


ANSWER_SECONDS: Final = 2.0
LAST_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.2
MOST_VALUES: Final = 1000
# Statuses after which a request is not repeated.
LASTING: Final = frozenset({400, 401, 403, 404, 410, 413, 422})


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Two reports as one: all values in their order; of very many the last."""
    values = [*old.get("values", ()), *new.get("values", ())][-MOST_VALUES:]
    return {**old, **new, **({"values": values} if values else {})}


class TrialLink:
    """The connection of a trial to its experiment.

    Args:
        url: of the trial's workload.
        token: the task's own token.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._pruned = self._silent = self._answered = False
        self._sender: Sender | None = None

    def put(self, body: Mapping[str, Any]) -> None:
        """Send soon; returns at once."""
        self._thread().put(body)

    def deliver(self, body: Mapping[str, Any]) -> None:
        """Send the reports now, and wait until they are accepted."""
        if self._sender is not None:
            self._sender.put(body)
            self._sender.flush(LAST_SECONDS)
            return
        content, until = json.dumps(body).encode(), time.monotonic() + LAST_SECONDS
        while not self._tried(content) and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)

    def ask(self) -> bool:
        """Whether the trial is pruned; waits for the answer, but only once if none comes."""
        if not self._pruned:
            self._answered = False
            sender = self._thread()
            sender.put({"asks": True})
            sender.flush(0.0 if self._silent else ANSWER_SECONDS)
            self._silent = not self._answered
        return self._pruned

    def suggest(self, parameter: Mapping[str, Any]) -> Any:
        """The value of a parameter; raises ``RuntimeError``."""
        try:
            status, answer = self._request("suggestions", json.dumps(parameter).encode())
        except OSError as error:
            raise RuntimeError(f"the scheduler cannot be asked now: {error}") from error
        if status != 200:
            raise RuntimeError(str((answer or {}).get("detail") or f"refused, status {status}"))
        return answer["value"]

    def flush(self, seconds: float) -> None:
        """Wait until everything was sent, at most ``seconds``."""
        if self._sender is not None:
            self._sender.flush(seconds)

    def _thread(self) -> "Sender":
        if self._sender is None:
            from carrel.job.report import Sender  # heavy; needed for reports only

            self._sender = Sender(
                f"{self._url}/trial", self._token, merge, post=self._post, interval=0.1
            )
            atexit.register(self._sender.flush, LAST_SECONDS)
        return self._sender

    def _tried(self, content: bytes) -> bool:
        """Whether the report need not be sent again: accepted, or refused for good."""
        try:
            status = self._post(content)
        except OSError:
            return False
        if status in LASTING:
            from carrel.job.task import warn

            warn(f"the result is not taken (status {status}).")
        return status < 300 or status in LASTING

    def _post(self, content: bytes) -> int:
        status, answer = self._request("trial", content)
        if status == 200:
            self._answered = True
            self._silent = False
            self._pruned = self._pruned or bool(answer["should_prune"])
        return status

    def _request(self, part: str, content: bytes) -> tuple[int, Any]:
        return api.post_json(f"{self._url}/{part}", self._token, content)


ChoiceT = TypeVar("ChoiceT", str, int, float, bool, None)
METRIC = "objective"


class Parameters(dict[str, Any]):
    """Parameters by name: ``parameters["lr"]`` and ``parameters.lr``."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            known = ", ".join(f"`{one}`" for one in self) or "none"
            raise AttributeError(f"there is no parameter `{name}`; there are {known}")
        return self[name]


class Trial:
    """A configuration of an experiment. Made by ``carrel.trial``.

    Attributes:
        number: within the experiment, from 0; ``None`` outside of one.
        experiment: its name; empty outside of one.
        parameters: what to try, a mapping whose values are attributes, too.
        metric: the name under which values are reported.
    """

    def __init__(
        self,
        number: int | None,
        experiment: str,
        metric: str,
        parameters: Mapping[str, Any],
        link: TrialLink | None,
    ) -> None:
        self.number, self.experiment, self.metric = number, experiment, metric
        self.parameters = Parameters(parameters)
        self._link = link

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def report(self, value: SupportsFloat, step: int | None = None) -> None:
        """Report a value of the metric.

        Args:
            value: of the metric; what is no finite number is left out, with a word in the log.
            step: such as the epoch; without it, the one after the last.
        """
        number = self._number(value)
        if number is None:
            return
        if self._link is None:
            self._remember(number, step)
            return
        from carrel.job.report import reporter  # heavy; a trial may have a result only

        self._link.put({"values": [{"step": step, "value": number}]})
        reporter().record(step, {self.metric: number})

    def should_prune(self) -> bool:
        """Whether the trial is pruned and should end now; asks the scheduler.

        While the scheduler does not answer the trial goes on.
        """
        return self._link is not None and self._link.ask()

    def result(self, value: SupportsFloat) -> None:
        """Set the result, instead of the value reported last; returns once accepted."""
        number = self._number(value)
        if number is None:
            return
        if self._link is None:
            self._remember(number, None)
        else:
            self._link.deliver({"result": number})

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
        default: float | None = None,
    ) -> float:
        """A parameter that the script defines itself; see ``suggest_int``."""
        middle = math.sqrt(low * high) if log else low + (high - low) / 2
        facts = {"type": "float", "low": low, "high": high, "step": step, "log": log}
        return float(self._suggest(name, facts, middle if default is None else default))

    def suggest_int(
        self,
        name: str,
        low: int,
        high: int,
        *,
        step: int | None = None,
        log: bool = False,
        default: int | None = None,
    ) -> int:
        """A parameter that the script defines itself.

        One that the experiment declares, or that is among the defaults of ``carrel.trial``, has the
        value given there. Outside an experiment it is ``default``, else in the middle. A trial that
        was preempted gets the same value again.

        Raises ``RuntimeError`` when the scheduler refuses it or cannot be asked.
        """
        middle = round(math.sqrt(low * high)) if log else low + (high - low) // 2
        facts = {"type": "int", "low": low, "high": high, "step": step, "log": log}
        return int(self._suggest(name, facts, middle if default is None else default))

    def suggest_categorical(
        self, name: str, choices: Sequence[ChoiceT], *, default: ChoiceT | None = None
    ) -> ChoiceT:
        """Suggest one of several values; see ``suggest_int``. By hand: ``default`` or the first."""
        usual = choices[0] if default is None else default
        chosen: ChoiceT = self._suggest(
            name, {"type": "categorical", "choices": list(choices)}, usual
        )
        return chosen

    def _suggest(self, name: str, facts: Mapping[str, Any], usual: Any) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        value = usual
        if self._link is not None:
            value = self._link.suggest({"name": name, **facts})
        self.parameters = Parameters({**self.parameters, name: value})
        return value

    def _number(self, value: SupportsFloat) -> float | None:
        number = float(value)
        if math.isfinite(number):
            return number
        from carrel.job.task import warn  # heavy, and seldom needed

        warn(f"{self.metric} is {number} and is not reported.")
        return None

    def _remember(self, value: float, step: int | None) -> None:
        from carrel.job.report import reporter  # heavy; needed outside experiments only

        reporter().report(step, None, {self.metric: value})


class _ProcessLink:
    """The link of this process; a forked child gets its own."""

    link: TrialLink | None = None


def use_link(link: TrialLink) -> None:
    """Have ``trial`` use this way to the scheduler; a worker's trials have another one."""
    _ProcessLink.link = link


def trial(**defaults: Any) -> Trial:
    """The trial of this process.

    Example::

        trial = carrel.trial(lr=0.1)
        for epoch in range(20):
            accuracy = train(lr=trial.parameters.lr)
            trial.report(accuracy, step=epoch)
            if trial.should_prune():
                break

    Args:
        defaults: parameters for when the script runs by hand; what the experiment gives wins, and
            so does ``CARREL_PARAM_<NAME>`` in the environment.
    """
    env = os.environ.get
    number, url, token = env("CARREL_TRIAL"), env("CARREL_URL"), env("CARREL_TASK_TOKEN")
    given = _given(defaults)
    metric = env("CARREL_METRIC") or METRIC
    if not (number and url and token):
        return Trial(None, "", metric, {**defaults, **given}, None)
    if _ProcessLink.link is None:
        where = f"{env('CARREL_PROJECT')}/{env('CARREL_WORKLOAD')}"
        _ProcessLink.link = TrialLink(f"{url.rstrip('/')}/api/v1/workloads/{where}", token)
    experiment = env("CARREL_EXPERIMENT") or ""
    return Trial(int(number), experiment, metric, {**defaults, **given}, _ProcessLink.link)


def _given(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters from the environment: CARREL_PARAMETERS, and single ones for the defaults."""
    given: dict[str, Any] = json.loads(os.environ.get("CARREL_PARAMETERS") or "{}")
    for name in defaults.keys() - given.keys():
        plain = "".join(one if one.isalnum() and one.isascii() else "_" for one in name)
        text = os.environ.get(f"CARREL_PARAM_{plain.upper()}")
        if text is not None:
            given[name] = text if isinstance(defaults[name], str) else json.loads(text)
    return given


def _forget() -> None:
    _ProcessLink.link = None


os.register_at_fork(after_in_child=_forget)
