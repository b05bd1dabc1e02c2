"""Schemathesis against the admin routes of a real gateway: `make test-admin-api`.

Takes the path of the `schemathesis` program. The gateway runs on a folder of its own; its admin key
reaches schemathesis by the environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HEAVYLIFT = (sys.executable, "-m", "heavylift")
CONFIG = """
headers = { Authorization = "Bearer ${ADMIN_KEY}" }
[generation]
max-examples = 60
# It would find the id of its own key in the list and revoke it.
[phases.stateful]
enabled = false
[checks]
# A path that is none of ours is told so, whatever the method.
unsupported_method.enabled = false
# A whole number that is written as 1.0 is refused, which a schema cannot say.
positive_data_acceptance.enabled = false
"""


def main() -> int:
    """Start, check, stop; the status is schemathesis' own."""
    with tempfile.TemporaryDirectory(prefix="heavylift-admin-") as folder:
        made = subprocess.run(
            [*HEAVYLIFT, "keys", "create", "admin", "--admin", "--state", folder, "--json"],
            check=True,
            capture_output=True,
        )
        key = json.loads(made.stdout)["key"]
        gateway = subprocess.Popen(
            [
                *(*HEAVYLIFT, "gateway", "--upstream", "http://127.0.0.1:1"),
                *("--port", "0", "--state", folder),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            lines = iter(gateway.stderr or ())
            url = next(line for line in lines if line.startswith("listening on "))[13:].strip()
            config = Path(folder) / "schemathesis.toml"
            config.write_text(CONFIG, "utf-8")
            return subprocess.run(
                [sys.argv[1], "--config-file", str(config), "run", f"{url}/admin/openapi.json"],
                env=os.environ | {"ADMIN_KEY": key},
                cwd=folder,
                check=False,
            ).returncode
        finally:
            gateway.terminate()
            gateway.communicate()


if __name__ == "__main__":
    sys.exit(main())
