"""Whose a process is: by its control group on a node, by its parents on one machine."""

from pathlib import Path

import pytest

from carrel_scheduler.node.owners import PodGroups, PodOwners, pod_of

A, B = "0a0b0c0d-1111-2222-3333-444455556666", "99999999-1111-2222-3333-444455556666"
SYSTEMD = (
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{A.replace('-', '_')}.slice"
)


@pytest.mark.parametrize(
    ("lines", "owner"),
    [
        ([f"0::{SYSTEMD}/cri-containerd-{64 * 'e'}.scope"], A),
        ([f"0::/kubepods/besteffort/pod{A}/{64 * 'e'}"], A),
        (["12:pids:/", f"4:memory:/kubepods/pod{A}/{64 * 'e'}"], A),
        ([f"0::/../../kubepods-besteffort-pod{A.replace('-', '_')}.slice/x.scope"], A),
        (["0::/user.slice/user-1000.slice/session-2.scope"], None),
        (["0::/"], None),
        ([f"0::/user.slice/user@1.service/kubepods-pod{B.replace('-', '_')}.slice"], None),
        ([], None),
        # Groups that a pod made within its own, after the name of another pod's:
        ([f"0::{SYSTEMD}/x.scope/kubepods-pod{B.replace('-', '_')}.slice"], A),
        ([f"0::{SYSTEMD}/x.scope/pod{B}"], A),
        ([f"0::/system.slice/evil-pod{B}-not.service"], None),
    ],
)
def test_the_outermost_group_of_a_pod_counts(lines: list[str], owner: str | None) -> None:
    assert pod_of(lines) == owner


def test_a_process_is_looked_up_once_and_a_number_given_again_is_another(tmp_path: Path) -> None:
    def there(pid: int, pod: str, began: int) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text(f"0::/kubepods/pod{pod}/c\n")
        fields = " ".join(str(began) if number == 19 else "0" for number in range(30))
        (folder / "stat").write_text(f"{pid} (a) name) {fields}\n")

    owners = PodOwners(tmp_path)
    there(7, A, began=100)
    assert owners.find([7, 8], ()) == {7: A, 8: None}
    (tmp_path / "7" / "cgroup").write_text("")
    assert owners.find([7], ()) == {7: A}
    there(7, B, began=200)
    assert owners.find([7], ()) == {7: B}


def test_the_folders_of_pods_are_found_below_the_kubelets_alone(tmp_path: Path) -> None:
    first, second, third = (f"0a0b0c0d-1111-2222-3333-44445555666{n}" for n in range(3))
    slices = tmp_path / "kubepods.slice"
    burstable = slices / "kubepods-burstable.slice"
    theirs = {
        first: burstable / f"kubepods-burstable-pod{first.replace('-', '_')}.slice",
        second: tmp_path / "kubelet.slice" / "kubepods" / "besteffort" / f"pod{second}",
    }
    for folder in theirs.values():
        (folder / "cri-1.scope").mkdir(parents=True)
    posing = (
        tmp_path / "system.slice" / "docker-1.scope" / f"pod{third}",
        tmp_path / "user.slice" / "user-1.slice" / "kubepods" / f"pod{third}",
        theirs[first] / "cri-1.scope" / "kubepods" / f"pod{third}",
    )
    for folder in posing:
        folder.mkdir(parents=True)
    assert PodGroups(tmp_path).find({first, second, third}) == theirs
    assert PodGroups(tmp_path).find({second}) == {second: theirs[second]}
