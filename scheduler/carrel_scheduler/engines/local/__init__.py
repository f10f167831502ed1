"""Tasks as processes of this machine; ``engine.LocalEngine`` is the engine."""
