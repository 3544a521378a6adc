"""A bucket for tests: moto's server in a process of its own, which can be silent, away, or lose its answers."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import boto3
import httpx

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "scribewire"

_numbers = count(1)


@dataclass(frozen=True)
class BucketService:
    """A running service with one bucket. Each test takes a prefix() of its own."""

    port: int
    pid: int
    switch: Path = field(repr=False)

    @property
    def env(self) -> dict[str, str]:
        """The variables with which any S3 tool finds the service."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",  # moto believes every signature
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    def prefix(self) -> str:
        """A place in the bucket that nobody has used yet, as a URL."""
        return f"s3://{BUCKET}/test-{next(_numbers)}"

    def count_unfinished_uploads(self, url: str) -> int:
        """How many multipart uploads below *url* are neither completed nor aborted."""
        listing = httpx.get(f"http://127.0.0.1:{self.port}/{BUCKET}?uploads").text
        return listing.count(f"<Key>{url.removeprefix(f's3://{BUCKET}/')}/")

    @contextmanager
    def fail_with(self, mode: str) -> Iterator[None]:
        """Make the service fail while the block lasts: "away", "lost" or "unconditional", as bucket_process says."""
        written = self.switch.with_suffix(".new")
        written.write_text(mode)
        written.rename(self.switch)
        try:
            yield
        finally:
            self.switch.unlink()

    @contextmanager
    def check_keys(self, *allowed: str) -> Iterator[dict[str, str]]:
        """Check keys while the block lasts, which gets the variables of a user who may do what is *allowed*."""
        iam = boto3.client("iam", endpoint_url=self.env["AWS_ENDPOINT_URL"], **_as_words(self.env))
        user = f"user-{next(_numbers)}"
        iam.create_user(UserName=user)
        statement = {"Effect": "Allow", "Action": list(allowed), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
        iam.put_user_policy(UserName=user, PolicyName="own", PolicyDocument=policy)
        made = iam.create_access_key(UserName=user)["AccessKey"]
        self._check_keys_after(0)
        try:
            yield {"AWS_ACCESS_KEY_ID": made["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"]}
        finally:
            self._check_keys_after(math.inf)

    def _check_keys_after(self, requests: float) -> None:
        httpx.post(f"http://127.0.0.1:{self.port}/moto-api/reset-auth", content=str(requests)).raise_for_status()

    @contextmanager
    def stop_answering(self) -> Iterator[None]:
        """Stop the service while the block lasts: it takes connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@contextmanager
def bucket_service(folder: Path) -> Iterator[BucketService]:
    """Run a service with one empty bucket while the block lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    switch = folder / "bucket-switch"
    program = [sys.executable, str(ROOT / "tests" / "server" / "bucket_process.py"), str(port), str(switch)]
    running = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: running.poll() is not None or _make_bucket(port))
        assert running.poll() is None, "the bucket service did not start"
        yield BucketService(port, running.pid, switch)
    finally:
        running.kill()
        running.wait()


def _as_words(env: dict[str, str]) -> dict[str, str]:
    """The variables as boto3's clients take them."""
    return {
        "aws_access_key_id": env["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": env["AWS_SECRET_ACCESS_KEY"],
        "region_name": env["AWS_REGION"],
    }


def _make_bucket(port: int) -> bool:
    try:
        return httpx.put(f"http://127.0.0.1:{port}/{BUCKET}").is_success
    except httpx.TransportError:
        return False
