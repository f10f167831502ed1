"""Metrics of endpoints that are there, and none of those that have gone."""

from carrel_hub.gateway.metrics import EndpointMetrics


def test_requests_are_counted_by_class_and_forgotten_with_their_endpoint() -> None:
    metrics = EndpointMetrics()
    metrics.observe("vision", "a", 200, 0.02)
    metrics.observe("vision", "a", 503, 0.02)
    metrics.observe("vision", "b", 0, 9.0)
    text = metrics.text([("vision", "a", 3, 2), ("vision", "b", 0, 0)]).decode()
    assert 'carrel_endpoint_requests_total{endpoint="a",project="vision",status="5xx"} 1.0' in text
    assert 'carrel_endpoint_requests_total{endpoint="b",project="vision",status="gone"} 1.0' in text
    assert (
        'carrel_endpoint_latency_seconds_bucket{endpoint="a",le="0.025",project="vision"} 2.0'
        in text
    )
    assert 'carrel_endpoint_in_flight{endpoint="a",project="vision"} 3.0' in text
    assert 'carrel_endpoint_latency_seconds_count{endpoint="b"' not in text
    assert "_created" not in text
    text = metrics.text([("vision", "b", 0, 0)]).decode()
    assert 'endpoint="a"' not in text
    assert 'endpoint="b"' in text
    assert "endpoint=" not in metrics.text([]).decode()
