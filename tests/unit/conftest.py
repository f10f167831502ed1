"""Properties are judged by what they say, not by how long a busy machine takes for an example."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unhurried", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")
