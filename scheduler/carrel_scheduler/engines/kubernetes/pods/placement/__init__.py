"""Where pods may run, over the nodes, pods and volumes that there are."""
