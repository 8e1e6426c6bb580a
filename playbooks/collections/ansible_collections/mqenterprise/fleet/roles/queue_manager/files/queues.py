"""Wait until this host's node has public queues. Arguments: its ``qmnode``, its socket, seconds, computer, names."""

import json
import subprocess
import sys
import time


def main() -> None:
    """Wait; exit code 1 with the names of those that are missing."""
    program, path, seconds, computer, *names = sys.argv[1:]
    until = time.monotonic() + float(seconds)
    while True:
        listed = [program, "queue", "list", "--json", "--socket", path]
        done = subprocess.run(listed, capture_output=True, text=True, check=False)
        here = done.stdout.casefold()
        missing = [name for name in names if json.dumps(f"{computer}\\{name}".casefold()).strip('"') not in here]
        if not missing:
            return
        if time.monotonic() > until:
            why = done.stderr.strip()[-300:] or "see its log"
            sys.exit(f"{computer} has not taken over {', '.join(missing)} from the directory: {why}")
        time.sleep(0.3)


main()
