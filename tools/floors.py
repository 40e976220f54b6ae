"""Print the oldest versions that setup.cfg allows, as pip takes them: one name==version a line.

pip install $(python tools/floors.py)
"""

import re
from configparser import ConfigParser
from pathlib import Path

FLOOR = re.compile(r"^(?P<name>[\w-]+)>=(?P<version>[\d.]+)")


def floors(path: Path) -> list[str]:
    """Return the floors of the package and of its tests.

    Raises
    ------
    ValueError
        If a requirement has no floor, because then nobody knows what it was tried with.
    """
    config = ConfigParser()
    config.read(path)
    wanted = config["options"]["install_requires"].split() + config["options.extras_require"]["test"].split()
    found = {}
    for requirement in wanted:
        floor = FLOOR.match(requirement)
        if floor is None:
            raise ValueError(f"every requirement must have a floor, as name>=version, and one has none: {requirement}")
        found[floor["name"]] = floor["version"]
    return [f"{name}=={version}" for name, version in found.items()]


if __name__ == "__main__":
    print("\n".join(floors(Path(__file__).resolve().parents[1] / "setup.cfg")))
