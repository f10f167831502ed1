"""Handwritten digits and a small network in NumPy, the same to the last bit each time.

Each epoch shuffles with a generator of its own, made from the seed and the epoch's number, so an
epoch depends on the weights before it and nothing else: a training that went on from a checkpoint
ends with the very numbers of one that was never disturbed.
"""

import os

# With one thread every sum is taken in the same order, on every machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Pictures, one row of 64 grey values (0 to 1) each, and what digit they show."""

    pictures: Floats
    digits: Whole


def data() -> tuple[Samples, Samples]:
    """The digits that come with scikit-learn: four fifths to learn from, the rest to test with."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    pictures, digits = found.data[order] / 16.0, found.target[order]
    cut = len(digits) * 4 // 5
    return Samples(pictures[:cut], digits[:cut]), Samples(pictures[cut:], digits[cut:])


class Network:
    """A network with one hidden layer, softmax on top, and plain gradient descent."""

    def __init__(self, seed: int, hidden: int = 32) -> None:
        self.seed = seed
        random = np.random.default_rng(seed)
        self.weights: dict[str, Floats] = {
            "w1": random.normal(0, 0.15, (64, hidden)),
            "b1": np.zeros(hidden),
            "w2": random.normal(0, 0.15, (hidden, 10)),
            "b2": np.zeros(10),
        }

    def learn(self, samples: Samples, epoch: int, batch: int = 32, rate: float = 0.1) -> float:
        """Go once through the samples; returns the mean loss."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(samples.digits))
        losses = [
            self._step(samples.pictures[part], samples.digits[part], rate)
            for part in np.array_split(order, len(order) // batch)
        ]
        return float(np.mean(losses))

    def accuracy(self, samples: Samples) -> float:
        """The share of digits read rightly."""
        _, chances = self._forward(samples.pictures)
        return float(np.mean(np.argmax(chances, axis=1) == samples.digits))

    def _forward(self, pictures: Floats) -> tuple[Floats, Floats]:
        weights = self.weights
        hidden = np.tanh(pictures @ weights["w1"] + weights["b1"])
        scores = hidden @ weights["w2"] + weights["b2"]
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, powers / powers.sum(axis=1, keepdims=True)

    def _step(self, pictures: Floats, digits: Whole, rate: float) -> float:
        weights, rows = self.weights, np.arange(len(digits))
        hidden, chances = self._forward(pictures)
        loss = -np.log(chances[rows, digits]).mean()
        wrong = chances.copy()
        wrong[rows, digits] -= 1.0
        wrong /= len(digits)
        back = (wrong @ weights["w2"].T) * (1.0 - hidden**2)
        slopes = {
            "w1": pictures.T @ back, "b1": back.sum(axis=0),
            "w2": hidden.T @ wrong, "b2": wrong.sum(axis=0),
        }  # fmt: skip
        self.weights = {name: weights[name] - rate * slopes[name] for name in weights}
        return float(loss)
