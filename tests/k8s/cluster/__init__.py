"""A real Kubernetes for tests, without a registry of images and without anything installed by hand.

``binaries`` finds or builds the programs, ``control_plane`` runs the API server with its store and
controllers on loopback, ``infrastructure`` and ``node`` run pods on this machine, ``images`` builds
what runs in them, ``pods`` asks for pods in tests, ``records`` ends what an earlier run left
behind. Nothing here is a dependency of the product. What is looked for, in this order: a running
cluster (``CARREL_TEST_KUBECONFIG``), ready binaries (``KUBEBUILDER_ASSETS``, the convention of
envtest), the user's cache, a build from Go modules.
"""
