"""Alerts: what is found (``conditions``), what lasts (``states``), who is told (``delivery``)."""
