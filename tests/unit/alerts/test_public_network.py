"""Hooks of people lead into the public network and nowhere else."""

import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override

from carrel_scheduler.alerts.public_network import (
    NotPublic,
    PublicResolver,
    check_literal,
    is_public,
)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "100.100.100.200", "224.0.0.1", "255.255.255.255"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::"),
        *("64:ff9b::7f00:1", "64:ff9b:1::1"),
    ],
)  # fmt: skip
def test_addresses_of_other_networks_are_none(address: str) -> None:
    assert not is_public(address)
    host = f"[{address.partition('%')[0]}]" if ":" in address else address
    with pytest.raises(NotPublic):
        check_literal(f"https://{host}/hook")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
def test_public_ones_pass(address: str) -> None:
    assert is_public(address)


def test_names_are_looked_at_when_they_are_looked_up() -> None:
    check_literal("https://hooks.example.org/T/B")
    check_literal("https://localhost/x")


class Names(AbstractResolver):
    """Answers with these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses, self.closed = addresses, False

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=one, port=port, family=family, proto=0, flags=0)
            for one in self.addresses
        ]

    @override
    async def close(self) -> None:
        self.closed = True


async def test_a_name_with_one_other_address_is_refused() -> None:
    good = Names("8.8.8.8")
    assert [one["host"] for one in await PublicResolver(good).resolve("h")] == ["8.8.8.8"]
    with pytest.raises(NotPublic):
        await PublicResolver(Names("8.8.8.8", "127.0.0.1")).resolve("h")
    await PublicResolver(good).close()
    assert good.closed
