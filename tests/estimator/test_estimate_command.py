"""Tests of the estimator's command line."""

import io
import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from estimator.__main__ import main, short_usd


@dataclass
class Command:
    """Runs the command in this process, as a shell would."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, stdin: bytes = b"", **environ: str) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main(arguments, environ)
        return status, *self.capsys.readouterr()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "estimator", "-", "--models", "gpt-5-mini", "--json"],
        input=b"Hello, world!",
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["models"][0]["tokens"]["prompt"]["expected"] == 4


def test_json_is_the_answer_of_the_interface(command):
    options = ("--models", "gpt-5-mini, nope", "--turns", "5", "--complexity", "high", "--json")
    status, out, _ = command("Hello, world!", *options)
    assert status == 0
    answer = json.loads(out)
    assert answer["inputs"]["agent_turns"] == 5
    assert answer["inputs"]["complexity"] == "high"
    assert answer["models"][0]["tokens"]["prompt"]["expected"] == 4
    assert answer["unknown_models"] == ["nope"]
    assert answer["id"].startswith("est_")


def test_people_get_a_table_with_every_model_and_what_to_think_of_it(command):
    status, out, _ = command("Hello, world!", "--turns", "3", "--audio-seconds", "3600")
    assert status == 0
    for word in (
        "gpt-5-mini",
        "GLM-5.3-Flash",
        "minimax-m3",
        "ends 2026-12-11, then",
        "openai/whisper-1 $0.3600",
        "not percentiles",
        "genai-prices",
    ):
        assert word in out


def test_markup_in_a_models_name_is_shown_not_obeyed(command):
    _, out, _ = command("hi", "--models", "gpt-5-mini,[bold]x[/nope]")
    assert "[bold]x[/nope]" in out


def test_every_option_reaches_the_request(command, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("Hello, world!", encoding="utf-8")
    options = ["--cache", "off", "--reasoning", "high", "--output-tokens", "9", "--system-tokens", "8"]
    options += ["--priced-at", "2026-12-01T00:00:00Z", "--audio-seconds", "9.5", "--models", "gpt-5-mini", "--json"]
    answer = json.loads(command(f"@{file}", *options)[1])
    inputs = answer["inputs"]
    assert (inputs["cache"], inputs["reasoning"]) == ("off", "high")
    assert (inputs["output_tokens"], inputs["system_tokens"]) == (9, 8)
    assert (inputs["prompt_chars"], inputs["audio_seconds"], answer["priced_at"]) == (13, 9.5, "2026-12-01T00:00:00Z")


@pytest.mark.parametrize("given", [("-",), ()])
def test_the_prompt_may_come_from_standard_input(command, given):
    _, out, _ = command(*given, "--models", "gpt-5-mini", "--json", stdin="Привет".encode())
    assert json.loads(out)["inputs"]["prompt_chars"] == 6


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("hi", "--models", "gpt-5-mni"), b"", "did you mean gpt-5-mini"),
        (("hi", "--turns", "0"), b"", "agent_turns: must be from 1 to 200"),
        (("hi", "--turns", "many"), b"", "agent_turns: must be a whole number"),
        (("@/no/such/file",), b"", "No such file"),
        (("-",), b"\xff", "utf-8"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(command, arguments, stdin, said):
    status, out, err = command(*arguments, stdin=stdin)
    assert (status, out) == (2, "")
    assert err.startswith("estimate: ")
    assert err.endswith(".\n")
    assert said in err
    assert err.count("\n") == 1


def test_a_price_file_is_used(command, tmp_path, feed):
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(feed))
    _, out, _ = command("--list", "--json", ESTIMATOR_PRICE_FEED=str(file))
    assert json.loads(out)["price_source"]["version"].startswith("feed ")


def test_a_wrong_rank_file_stops_the_command_with_its_reason(command, tmp_path):
    (tmp_path / "o200k_base.tiktoken").write_text("IQ== 0")
    status, _, err = command("hi", ESTIMATOR_RANKS_DIR=str(tmp_path))
    assert status == 2
    assert "SHA-256" in err


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0.015680875", "$0.01568"),
        ("0.0000006", "$0.0000006000"),
        ("1234.5", "$1,234.50"),
        ("0.5", "$0.5000"),
        ("0", "$0.00"),
    ],
)
def test_a_small_price_never_shows_as_nothing(amount, shown):
    assert short_usd(amount) == shown
