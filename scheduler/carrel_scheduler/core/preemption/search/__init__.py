"""The search for victims over arrays, for identical tasks; it knows neither jobs nor the cycle.

``model.lay_out`` puts candidates on their nodes and refuses what is impossible by sums;
``search.search`` finds the victims. Unlike tasks are left to ``preemption.sequential``.
"""
