"""The client of Carrel's REST API: ``Client`` for plain code, ``AsyncClient`` for coroutines."""

from carrel.client.aio import AsyncClient
from carrel.client.config import ClientSettings
from carrel.client.sync import Client
from carrel.client.terminal import Terminal

__all__ = ["AsyncClient", "Client", "ClientSettings", "Terminal"]
