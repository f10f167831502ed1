"""Whom to evict or to move so that waiting work fits: reclaim, preempt, both, consolidate."""
