"""The demo's training as a plain script: ``python -m carrel.notebook.demo.train --seed 2``.

The same loop as in the notebook's cell. It may be killed at any time: started again, it goes on
from its checkpoint and ends with the accuracy of a training that was never disturbed.
"""

import argparse
import sys
import time

import carrel
from carrel.notebook.demo.digits import Network, data


def train(seed: int, epochs: int, seconds_per_epoch: float) -> float:
    """Learn the digits; returns the accuracy on those kept aside. Slowed down to be watched."""
    learn, test = data()
    network = Network(seed)
    state = carrel.checkpoint.restore(default={"epoch": 0, "weights": network.weights})
    network.weights = state["weights"]
    for epoch in range(state["epoch"] + 1, epochs + 1):
        loss = network.learn(learn, epoch)
        accuracy = network.accuracy(test)
        carrel.report(step=epoch, total=epochs, loss=loss, accuracy=accuracy)
        sys.stdout.write(f"epoch {epoch:3}: loss {loss:.4f}, accuracy {accuracy:.4f}\n")
        sys.stdout.flush()
        time.sleep(seconds_per_epoch)
        if carrel.checkpoint.every():
            carrel.checkpoint.save({"epoch": epoch, "weights": network.weights}, step=epoch)
        if carrel.checkpoint.preempted():
            carrel.checkpoint.exit_for_preemption()
    return network.accuracy(test)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0)
    asked = parser.parse_args()
    accuracy = train(asked.seed, asked.epochs, asked.seconds_per_epoch)
    sys.stdout.write(f"final accuracy {accuracy:.6f}\n")


if __name__ == "__main__":
    main()
