"""The web console: pages of the cluster, the queue, jobs and projects, as a service of the Hub."""
