"""Container images on one machine: pulled, unpacked once, and the root of tasks' sandboxes."""
