"""The tree of queues: its rules, what each is entitled to, and the order of service."""
