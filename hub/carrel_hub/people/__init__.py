"""People as the Hub knows them: shown and changed for the scheduler, whose API administrators use.

``records`` reads who there is, whatever they sign in with; ``changes`` is what can be done with
one of them; ``handlers`` offers both to the scheduler's service alone, by a scope of its own.
"""
