"""The library for code in a job: checkpoints, preemption, reports, progress bars.

Only the standard library is imported here until something else is really used, and nothing here
fails or slows down a training because the platform cannot be reached. Outside a job everything
works too, and nothing is sent.
"""
