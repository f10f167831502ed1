"""Run by IPython at the start of a workspace's kernels (``PYTHONSTARTUP``): loads our magics.

A plain ``python`` runs it as well and nothing happens; so does a kernel without this package.
"""

if "get_ipython" in globals():
    from importlib.util import find_spec

    if find_spec("carrel") is not None:
        get_ipython().run_line_magic("load_ext", "carrel")  # type: ignore[name-defined] # noqa: F821 - IPython's own
    del find_spec
