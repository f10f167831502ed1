"""Paths of the API's resources, relative to its root."""

from typing import Final

WORKLOADS: Final = "/workloads"
WORKLOAD: Final = f"{WORKLOADS}/{{project}}/{{name}}"
PROJECTS: Final = "/projects"
PROJECT: Final = f"{PROJECTS}/{{project}}"
DEPARTMENTS: Final = "/departments"
DEPARTMENT: Final = f"{DEPARTMENTS}/{{name}}"
EXPERIMENT: Final = "/experiments/{project}/{name}"
