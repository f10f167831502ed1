"""The command itself: a real Jupyter server with our extension, started by the launcher."""

from contract.hub.stack import Stack, person


async def test_the_command_is_a_jupyter_server(stack: Stack) -> None:
    stack.runner.real = True
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        status, page = await ada.get("/user/ada/lab")
        assert status == 200
        assert "jupyter-config-data" in page
        home = stack.runner.home / "ada"
        assert home.is_dir()
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()
