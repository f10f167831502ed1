"""How people reach the API server of a cluster."""

from pathlib import Path

from contract.api.service import ApiHarness, running


async def test_the_namespaces_are_those_of_projects_that_the_caller_sees(
    harness: ApiHarness,
) -> None:
    found = (await harness.ask("GET", "/cluster-access", "ada")).body
    assert found["server"] == "https://k8s:6443"
    assert found["sign_in"]["command"] == "kubelogin"
    projects = (await harness.ask("GET", "/whoami", "ada")).body["projects"]
    assert [one["project"] for one in found["namespaces"]] == sorted(projects)
    assert all(one["namespace"] == "carrel-" + one["project"] for one in found["namespaces"])
    everything = (await harness.ask("GET", "/cluster-access", "root")).body["namespaces"]
    assert len(everything) > len(projects)
    assert (await harness.ask("GET", "/cluster-access", "")).status == 401


async def test_one_machine_has_none(tmp_path: Path) -> None:
    async with running(tmp_path, cluster_access=None) as harness:
        answer = await harness.ask("GET", "/cluster-access", "ada")
        assert (answer.status, answer.body["code"]) == (409, "no_cluster")
