"""Alerts: what is found (``conditions``), what lasts (``states``), and delivery (``delivery``)."""
