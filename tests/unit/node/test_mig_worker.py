"""What the agent of a node does about MIG instances, on the test driver's GPUs."""

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pynvml
import pytest
from typing_extensions import override

from carrel_scheduler.environment import InvalidVariable
from carrel_scheduler.node.agent import AgentSettings, find_provider, find_worker, look
from carrel_scheduler.node.contract import MigOrder, MigOrders, MigReport, MigResult
from carrel_scheduler.node.mig import Instance, NvmlMig
from carrel_scheduler.node.mig_allocation import MachineInstances
from carrel_scheduler.node.mig_records import InstanceRecords
from carrel_scheduler.node.mig_worker import MigWorker, serve
from carrel_scheduler.node.nvml import open_nvml
from gpu_driver.session import machine
from gpu_driver.state import MIB, NONE, GpuState

ENVIRONMENT = {"CARREL_NODE_NAME": "n1", "CARREL_API_URL": "http://127.0.0.1:1", "CARREL_MIG": "on"}
LOW, HIGH = 0b0000_1111, 0b1111_0000


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuState]:
    with machine(tmp_path / "gpus", devices=2, memory=81_559 * MIB) as state:
        for index in range(2):
            state.layout.devices[index].name = b"NVIDIA H100 80GB HBM3"
            state.layout.devices[index].mig_mode = 1
        assert open_nvml(pynvml)
        yield state


class Agent:
    """Successive agents of one node; ``now`` is their clock."""

    def __init__(self, record: Path) -> None:
        self.record, self.now = record, 0.0
        self.restart()

    def restart(self, devices: NvmlMig | None = None, seconds: float = 60.0) -> None:
        self.devices = devices or NvmlMig(pynvml)
        records = InstanceRecords(self.record)
        self.worker = MigWorker(self.devices, records, lambda: self.now, seconds)

    def make(self, profile: str, slots: int, device: str, held: Sequence[str] = ()) -> MigResult:
        order = MigOrder(id="o", device=device, profile=profile, slots=slots, held=tuple(held))
        [result] = self.worker.carry_out([order])
        return result

    def there(self, device: str) -> set[tuple[str, int]]:
        return {(one.profile, one.bits) for one in self.devices.instances(device)}


@pytest.fixture
def agent(gpus: GpuState, tmp_path: Path) -> Agent:
    return Agent(tmp_path / "instances.json")


def uuid(gpus: GpuState, index: int = 0) -> str:
    return str(gpus.layout.devices[index].uuid.decode())


def test_an_instance_is_made_once_and_kept_until_another_profile_needs_its_place(
    gpus: GpuState, agent: Agent
) -> None:
    gpu = uuid(gpus)
    first = agent.make("3g.40gb", LOW, gpu)
    assert first.uuid.startswith("MIG-")
    again = agent.make("3g.40gb", LOW, gpu)
    assert again.uuid == first.uuid, "asked again it is found"
    assert (first.made, first.removed, again.made) == (True, (), False)
    other = agent.make("1g.10gb", 0b1_0000, gpu)
    assert agent.there(gpu) == {("3g.40gb", LOW), ("1g.10gb", 0b1_0000)}
    large = agent.make("7g.80gb", 0xFF, gpu, held=())
    assert (large.error, agent.there(gpu)) == ("", {("7g.80gb", 0xFF)})
    assert (large.made, sorted(large.removed)) == (True, ["1g.10gb", "3g.40gb"])
    assert len({first.uuid, other.uuid, large.uuid}) == 3


def test_what_a_pod_has_or_programs_use_is_not_touched(gpus: GpuState, agent: Agent) -> None:
    gpu = uuid(gpus)
    had = agent.make("2g.20gb", 0b11, gpu)
    refused = agent.make("7g.80gb", 0xFF, gpu, held=[had.uuid])
    assert "2g.20gb" in refused.error
    assert "is in use" in refused.error
    assert "in use" in agent.make("2g.20gb", 0b11, gpu, held=[had.uuid]).error, "nor given twice"
    gpus.list_process(0, os.getpid(), memory=MIB)
    gpus.layout.processes[0].use[0].gpu_instance = 1
    assert "is in use" in agent.make("7g.80gb", 0xFF, gpu).error
    assert agent.worker.conditions(gpu) == (), "that is no failure of the GPU"
    gpus.layout.processes[0].use[0].gpu_instance = NONE
    assert agent.make("7g.80gb", 0xFF, gpu).uuid


def test_what_somebody_else_made_stays_unless_an_admin_says_so(
    gpus: GpuState, agent: Agent
) -> None:
    gpu = uuid(gpus)
    theirs = agent.devices.create(gpu, "3g.40gb", LOW)
    for profile, slots in (("3g.40gb", LOW), ("7g.80gb", 0xFF)):
        assert "was not made by Carrel" in agent.make(profile, slots, gpu).error
    assert agent.make("3g.40gb", HIGH, gpu).uuid, "beside it there is room"
    assert [one.uuid for one in agent.devices.instances(gpu) if one.bits == LOW] == [theirs.uuid]
    agent.worker = MigWorker(agent.devices, MachineInstances())
    assert agent.make("3g.40gb", LOW, gpu).uuid == theirs.uuid


def test_an_agent_that_starts_again_knows_what_it_made(gpus: GpuState, agent: Agent) -> None:
    gpu = uuid(gpus)
    made = agent.make("3g.40gb", LOW, gpu)
    agent.restart()
    assert agent.make("3g.40gb", LOW, gpu).uuid == made.uuid
    assert agent.make("4g.40gb", LOW, gpu).uuid, "and may remove it"


def test_one_that_ends_while_the_next_has_begun_tells_it_what_it_made(
    gpus: GpuState, agent: Agent
) -> None:
    gpu = uuid(gpus)
    following = Agent(agent.record)
    made = agent.make("3g.40gb", LOW, gpu)
    assert following.make("3g.40gb", LOW, gpu).uuid == made.uuid


class Ending(NvmlMig):
    """As if the agent were killed as soon as the instance is there."""

    @override
    def create(self, device: str, profile: str, bits: int) -> Instance:
        super().create(device, profile, bits)
        raise OSError("killed")


def test_one_that_ended_between_making_and_telling_leaves_nothing_foreign(
    gpus: GpuState, agent: Agent
) -> None:
    gpu = uuid(gpus)
    agent.restart(Ending(pynvml))
    killed = agent.make("2g.20gb", 0b11, gpu)
    assert (killed.error, killed.made) == ("killed", False)
    agent.restart()
    assert agent.make("7g.80gb", 0xFF, gpu).uuid, "it is ours, and makes room"


def test_half_an_instance_of_ours_is_made_again(gpus: GpuState, agent: Agent) -> None:
    gpu = uuid(gpus)
    agent.make("2g.20gb", 0b11, gpu)
    gpus.layout.devices[0].migs[0].incomplete = 1
    agent.restart()
    assert agent.make("2g.20gb", 0b11, gpu).uuid
    assert len(agent.devices.instances(gpu)) == 1


def test_after_a_restart_of_the_node_what_an_admin_makes_is_theirs(
    gpus: GpuState, agent: Agent
) -> None:
    gpu = uuid(gpus)
    agent.make("3g.40gb", LOW, gpu)
    for one in agent.devices.instances(gpu):  # a restart of the node removes them all
        agent.devices.remove(gpu, one)
    agent.restart()
    assert agent.make("1g.10gb", 0b1_0000, gpu).uuid
    agent.devices.create(gpu, "3g.40gb", LOW)
    assert "was not made by Carrel" in agent.make("4g.40gb", LOW, gpu).error


def test_a_record_that_cannot_be_read_makes_nothing_ours(gpus: GpuState, agent: Agent) -> None:
    agent.make("3g.40gb", LOW, uuid(gpus))
    agent.record.write_text("[[")
    agent.restart()
    assert "was not made by Carrel" in agent.make("4g.40gb", LOW, uuid(gpus)).error


def test_a_gpu_that_fails_repeatedly_is_closed_and_tried_again_later(
    gpus: GpuState, agent: Agent
) -> None:
    gpu = uuid(gpus)
    gpus.layout.devices[0].mig_failures = 3
    for _ in range(3):
        assert agent.worker.conditions(gpu) == ()
        assert "cannot be made on GPU" in agent.make("3g.40gb", LOW, gpu).error
    [condition] = agent.worker.conditions(gpu)
    assert (condition.key, condition.severity) == ("mig", "closed")
    assert "3g.40gb cannot be made" in condition.message
    assert agent.worker.conditions(uuid(gpus, 1)) == ()
    agent.now += 601.0
    assert agent.worker.conditions(gpu) == (), "it may be tried"
    gpus.layout.devices[0].mig_failures = 1
    agent.make("3g.40gb", LOW, gpu)
    assert agent.worker.conditions(gpu), "and is closed again at once"
    agent.now += 601.0
    assert agent.make("3g.40gb", LOW, gpu).uuid
    agent.now -= 600.0
    assert agent.worker.conditions(gpu) == (), "until it works"


class Hanging(NvmlMig):
    """The driver does not answer before it is let go."""

    let_go = threading.Event()

    @override
    def create(self, device: str, profile: str, bits: int) -> Instance:
        self.let_go.wait(30.0)
        return super().create(device, profile, bits)


def test_a_driver_that_does_not_answer_is_not_waited_for_without_end(
    gpus: GpuState, agent: Agent
) -> None:
    gpu = uuid(gpus)
    agent.restart(Hanging(pynvml), seconds=0.05)
    assert "did not answer within" in agent.make("3g.40gb", LOW, gpu).error
    assert "an earlier call" in agent.make("1g.10gb", 0b1_0000, gpu).error, "nor asked for more"
    call = agent.worker._known[gpu].call
    assert call is not None
    Hanging.let_go.set()
    made = call.result(30.0)
    agent.restart()
    assert agent.make("3g.40gb", LOW, gpu).uuid == made.uuid


def test_orders_of_different_gpus_and_unknown_ones_are_answered_each(
    gpus: GpuState, agent: Agent
) -> None:
    orders = [
        MigOrder(id="a", device=uuid(gpus, 0), profile="1g.10gb", slots=1),
        MigOrder(id="b", device=uuid(gpus, 1), profile="9g.10gb", slots=1),
        MigOrder(id="c", device="GPU-nobody", profile="1g.10gb", slots=1),
        MigOrder(id="d", device=uuid(gpus, 0), profile="1g.10gb", slots=2),
    ]
    found = {one.id: one for one in agent.worker.carry_out(orders)}
    assert [bool(found[name].uuid) for name in "abcd"] == [True, False, False, True]
    assert "has no profile 9g.10gb; it has: 1g.10gb" in found["b"].error
    assert "GPU-nobody" in found["c"].error


def test_what_could_not_be_told_is_told_with_the_next_question(
    gpus: GpuState, agent: Agent
) -> None:
    order = MigOrder(id="a", device=uuid(gpus), profile="1g.10gb", slots=1)
    answers: Iterator[MigOrders | OSError] = iter(
        [MigOrders(orders=(order,)), OSError("gone"), MigOrders(), MigOrders()]
    )
    heard: list[tuple[str, ...]] = []

    def ask(report: MigReport) -> MigOrders:
        heard.append(tuple(one.id for one in report.results))
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    serve(agent.worker, ask, lambda _: len(heard) == 4)
    assert heard == [(), ("a",), ("a",), ()]


def settings(tmp_path: Path, **given: str) -> AgentSettings:
    record = str(tmp_path / "instances.json")
    return AgentSettings.from_environment(ENVIRONMENT | {"CARREL_MIG_RECORD": record} | given)


def test_the_report_of_a_node_says_which_gpus_are_closed(gpus: GpuState, tmp_path: Path) -> None:
    found = settings(tmp_path)
    provider, worker = find_provider(found), find_worker(found)
    assert provider is not None
    assert worker is not None
    gpus.layout.devices[1].mig_mode = 0
    first, second = look(provider, worker).devices
    assert (first.conditions, first.broken, second.broken) == ((), False, False)
    [condition] = second.conditions
    assert (condition.severity, condition.message) == (
        "closed",
        "MIG mode is off: nvidia-smi -mig 1",
    )
    msgspec.json.encode(first)


def test_without_the_setting_nothing_is_made(gpus: GpuState, tmp_path: Path) -> None:
    assert find_worker(settings(tmp_path, CARREL_MIG="off")) is None
    gpus.layout.devices[0].name = b"Tesla T4"
    gpus.layout.devices[0].mig_mode = 0
    for wrong in ({"CARREL_MIG": "yes"}, {"CARREL_DCGM_URL": "http://127.0.0.1:9400"}):
        with pytest.raises(InvalidVariable, match="CARREL_"):
            settings(tmp_path, **wrong)
