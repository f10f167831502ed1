"""Loading of images on nodes."""

from k8s.cluster.images import builder
from k8s.cluster.images.builder import Image, Say
from k8s.cluster.node import Node


class Images:
    """The product's images, built when asked for and loaded once on each node."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._loaded: dict[tuple[str, str], Image] = {}

    def on(self, node: Node, name: str) -> Image:
        """``base``, ``trainer``, ``workspace``, ``scheduler`` or ``hub``, loaded on a node."""
        if (node.name, name) not in self._loaded:
            image = builder.build([name], self._say)[name]
            node.load(image.archive)
            self._loaded[node.name, name] = image
        return self._loaded[node.name, name]
