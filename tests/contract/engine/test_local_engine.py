"""The local engine keeps the contract of engines."""

from contract.engine_contract import EngineContract


class TestLocalEngine(EngineContract):
    pass
