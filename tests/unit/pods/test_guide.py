"""The page about others' pods, and the scheduler's rights, keep up with the rules."""

import re
from pathlib import Path

import yaml

from carrel_scheduler.engines.kubernetes.pods import gpu_annotations, labels, scheduling_groups
from carrel_scheduler.engines.kubernetes.pods.grouping_rules import POD_GROUPS, RULES
from carrel_schema import names

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "kubernetes-pods.md").read_text()
RIGHTS = ROOT / "deploy" / "kubernetes" / "rights" / "scheduler.yaml"


def test_the_page_names_every_kind_and_no_other() -> None:
    table = PAGE.partition("| kind |")[2].partition("\n\n")[0]
    named = " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))
    kinds = set(re.findall(r"[A-Z]\w+", named)) - {"Knative", "Volcano"}
    assert kinds == {rule.kind for rule in RULES}


def test_the_page_names_every_label() -> None:
    keys = {
        names.PROJECT,
        *labels.PROJECT_ALIASES[:-1],
        labels.PRIORITY,
        labels.PREEMPTIBLE,
        labels.MIN_MEMBERS,
        gpu_annotations.GPU_MEMORY,
        *gpu_annotations.GPU_SHARE,
        *gpu_annotations.GPU_DEVICES,
        names.MIG_PROFILE,
    } - {"scheduling.volcano.sh/queue-name"}
    assert {key for key in keys if f"`{key}`" not in PAGE} == set()


def test_the_scheduler_may_read_every_kind_of_owner() -> None:
    readable: dict[str, set[str]] = {}
    for document in yaml.safe_load_all(RIGHTS.read_text()):
        if (document["kind"], document["metadata"]["name"]) != ("ClusterRole", "carrel-scheduler"):
            continue
        for rule in document["rules"]:
            for group in rule["apiGroups"]:
                if "get" in rule["verbs"]:
                    readable.setdefault(group, set()).update(rule["resources"])
    wanted = {(rule.group, f"{rule.kind.lower()}s") for rule in RULES}
    wanted |= {(rule.group, "podgroups") for rule in POD_GROUPS if rule.group}
    wanted |= {
        (scheduling_groups.API_GROUP, f"{kind.lower()}s") for kind in scheduling_groups.KINDS
    }
    missing = {
        (group, plural)
        for group, plural in wanted
        if not {plural, "*"} & readable.get(group, set())
    }
    assert missing == set()
