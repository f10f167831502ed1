"""Paths of objects."""

import pytest

from carrel_scheduler.kube.resources import JOBS, LEASES, NODES, PODS


def test_paths_of_the_core_group_and_of_others() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("vision") == "/api/v1/namespaces/vision/pods"
    assert PODS.path("vision", "p", "binding") == "/api/v1/namespaces/vision/pods/p/binding"
    assert JOBS.path("vision", "j") == "/apis/batch/v1/namespaces/vision/jobs/j"
    assert LEASES.api_version == "coordination.k8s.io/v1"
    assert PODS.api_version == "v1"


def test_kinds_without_namespaces_ignore_them() -> None:
    assert NODES.path("vision", "n") == "/api/v1/nodes/n"


def test_no_name_leaves_its_place() -> None:
    assert PODS.path("a/b", "../secrets?x=#") == (
        "/api/v1/namespaces/a%2Fb/pods/..%2Fsecrets%3Fx%3D%23"
    )
    with pytest.raises(ValueError, match=r"'\.\.' is not a name"):
        PODS.path("a", "..")


def test_what_names_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="needs one"):
        PODS.path("a", sub="binding")
    with pytest.raises(ValueError, match="namespace: '' is not a namespace; Pod needs one"):
        PODS.path(name="p")
