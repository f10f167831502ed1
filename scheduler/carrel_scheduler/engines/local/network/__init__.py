"""Network namespaces: one for each user's tasks, where the machine allows it.

Tasks of one user share it, as processes of one machine share a network; nobody else's reach them.
``127.0.0.1`` is the namespace's own, but the ports of Carrel that tasks need lead to Carrel's parts
on the machine. The machine (and so proxy, gateway and Hub) reaches a task at the namespace's
address, whichever address of the namespace the task listens on.

``addressing`` holds names and addresses, ``nftables`` the rules, ``setup`` is the program that
changes the machine, ``namespaces`` is what the engine calls.
"""
