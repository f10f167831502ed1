"""A real Kubernetes for tests, without containers' images and without anything installed by hand.

``binaries`` finds or builds the control plane, ``control_plane`` runs it on loopback, ``records``
ends what an earlier run left behind. Nothing here is a dependency of the product.

What is looked for, in this order: ready binaries (``KUBEBUILDER_ASSETS``, the convention of
envtest), the user's cache, a build from Go modules.
"""
