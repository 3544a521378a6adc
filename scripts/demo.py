"""The demo: starts a server, shows a live stream, a file and an estimate, and stops the server."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "server" / "sample.flac"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "SCRIBEWIRE_DATA_DIR": folder, "SCRIBEWIRE_PORT": "0"}
        server = subprocess.Popen(
            [sys.executable, "-m", "server", "serve"], cwd=ROOT, env=settings, stderr=subprocess.PIPE, text=True
        )
        try:
            show(address_of(server), (Path(folder) / "operator-key").read_text().strip())
        finally:
            server.terminate()
            server.wait(30)
    return 0


def address_of(server: "subprocess.Popen[str]") -> str:
    """Wait until the server is ready and return its address. Its log is printed until then."""
    assert server.stderr is not None
    for line in server.stderr:
        print(line, end="")
        if found := re.search(r"ready (http\S+)", line):
            return found[1]
    raise SystemExit("the server did not start")


def show(base: str, key: str) -> None:
    print("\n--- live: words as they are spoken ---")
    subprocess.run(
        [sys.executable, "-m", "server", "live", str(SAMPLE), "--server", base, "--key", key], cwd=ROOT, check=True
    )
    with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=120) as client:
        print("\n--- a file: its subtitles ---")
        fields = {"output_formats": "srt", "word_timestamps": "true"}
        answer = client.post("/v1/transcribe", files={"file": SAMPLE.read_bytes()}, data=fields).raise_for_status()
        print(httpx.get(answer.json()["formats"]["srt"]).text)
        print("--- a prompt: what five turns will cost ---")
        ask = {"prompt": "Summarise: " + answer.json()["text"], "agent_turns": 5}
        for row in client.post("/v1/estimate", json=ask).raise_for_status().json()["models"][:5]:
            print(f"{row['model']:28} {row['cost_usd']['expected'][:10]:>10} USD")


if __name__ == "__main__":
    sys.exit(main())
