"""Engines run tasks: processes of this machine, or pods. Five verbs, one contract suite."""
