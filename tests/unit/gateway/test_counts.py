"""Metrics of endpoints that are there, and none of those that have gone."""

from carrel_hub.gateway.counts import Counts


def test_requests_are_counted_by_class_and_forgotten_with_their_endpoint() -> None:
    counts = Counts()
    counts.answered("vision", "a", 200, 0.02)
    counts.answered("vision", "a", 503, 0.02)
    counts.answered("vision", "b", 0, 9.0)
    counts.now("vision", "a", 3, 2)
    text = counts.text().decode()
    assert 'carrel_endpoint_requests_total{endpoint="a",project="vision",status="5xx"} 1.0' in text
    assert 'carrel_endpoint_requests_total{endpoint="b",project="vision",status="gone"} 1.0' in text
    assert (
        'carrel_endpoint_latency_seconds_bucket{endpoint="a",le="0.025",project="vision"} 2.0'
        in text
    )
    assert 'carrel_endpoint_in_flight{endpoint="a",project="vision"} 3.0' in text
    assert 'carrel_endpoint_latency_seconds_count{endpoint="b"' not in text
    counts.keep_only({("vision", "b")})
    assert 'endpoint="a"' not in counts.text().decode()
    assert 'endpoint="b"' in counts.text().decode()
    counts.keep_only(set())
    assert "endpoint=" not in counts.text().decode()
