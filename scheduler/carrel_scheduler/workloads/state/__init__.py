"""The reconciler's state of live work, the events that change it, and the changes of a pass."""
