"""The program of a workspace's server: JupyterHub's, which starts sooner without unused imports.

``python -m carrel.workspace.server [arguments]``, in place of ``python -m jupyterhub.singleuser``.
"""

from carrel_process.late_imports import put_off_iri_checks


def main() -> None:
    """Run the server; returns when it has ended."""
    put_off_iri_checks()
    from jupyterhub.singleuser import main as serve

    serve()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
