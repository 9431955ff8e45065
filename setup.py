"""What setup.cfg cannot say: weights/ and cli/ lie beside fastattn/ and are packages of it."""

from setuptools import find_packages, setup

rooms = {"fastattn": "fastattn", "fastattn.weights": "weights", "fastattn.cli": "cli"}
inner = [f"{package}.{name}" for package, folder in rooms.items() for name in find_packages(folder)]
setup(packages=[*rooms, *inner], package_dir=rooms)
