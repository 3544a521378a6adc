"""Reads every setting of the server from environment variables. No other file reads these variables.

A test compares VARIABLES with the documentation.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pipeline.text.options import regions

PREFIX = "SCRIBEWIRE_"

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
ROLES = ("api", "live", "worker", "courier")
ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#@]+")
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
OPERATOR_KEY = "operator-key"  # a file in the data folder
NOT_OURS = frozenset({"CLUSTER", "CUDA", "CORPORA"})  # of scripts/setup and scripts/corpora


class ConfigError(Exception):
    """A setting that cannot be used. The message names the variable, its value and the values that are allowed."""


class FileProblem(ConfigError):
    """A *file* of the command line that cannot be used, and what to do."""

    def __init__(self, file: object, text: str) -> None:
        super().__init__(text)
        self.file = str(file)


# --- parsers: (name of the variable, its text) -> value --------------------------------------------------------------


def _refuse(name: str, takes: str, raw: str) -> ConfigError:
    return ConfigError(f"{PREFIX}{name} must be {takes}, got {raw!r}")


def _whole(least: int, most: int, *, auto: int | None = None) -> Callable[[str, str], int]:
    def parse(name: str, raw: str) -> int:
        if auto is not None and raw == "auto":
            return auto
        if not (raw.isascii() and raw.isdecimal()) or not least <= int(raw) <= most:
            word = "'auto' or a whole number" if auto is not None else "a whole number"
            raise _refuse(name, f"{word} from {least} to {most}", raw)
        return int(raw)

    return parse


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def parse(name: str, raw: str) -> str:
        if raw.lower() not in allowed:
            raise _refuse(name, f"one of {', '.join(allowed)}", raw)
        return raw.lower()

    return parse


def _switch(name: str, raw: str) -> bool:
    try:
        return {"1": True, "true": True, "0": False, "false": False, "": False}[raw.lower()]
    except KeyError:
        raise _refuse(name, "1 or 0", raw) from None


def _text(name: str, raw: str) -> str:
    if not raw.strip():
        raise _refuse(name, "a non-empty text", raw)
    return raw.strip()


def _optional_text(_name: str, raw: str) -> str | None:
    return raw.strip() or None


def _region(name: str, raw: str) -> str | None:
    region = raw.strip().upper()
    if region and region not in regions():
        raise _refuse(name, f"one of {', '.join(regions())}", raw)
    return region or None


def _folder(name: str, raw: str) -> Path:
    try:
        return Path(_text(name, raw)).expanduser()
    except RuntimeError:  # ~ of an unknown user
        raise _refuse(name, "a path that can be resolved", raw) from None


def _optional_file(name: str, raw: str) -> Path | None:
    if not raw:
        return None
    path = _folder(name, raw)
    if not path.exists():
        raise _refuse(name, "the path of an existing file or folder", raw)
    return path


def _networks(name: str, raw: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in raw.split(",") if part.strip())
    except ValueError:
        raise _refuse(name, "a comma-separated list of networks such as 10.0.0.0/8", raw) from None


def _origins(name: str, raw: str) -> tuple[str, ...]:
    origins = tuple(part.strip().rstrip("/") for part in raw.split(",") if part.strip())
    if not all(origin in ("*", "null") or ORIGIN.fullmatch(origin) for origin in origins):
        raise _refuse(name, "* or a comma-separated list of origins such as https://app.example.org", raw)
    return origins


def _names(_name: str, raw: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in raw.split(",") if part.strip())


def _database_url(name: str, raw: str) -> str | None:
    if not raw:
        return None
    if not raw.startswith(("postgresql://", "postgres://")):  # the value is not shown: it may be a password
        raise ConfigError(f"{PREFIX}{name} must begin with postgresql://")
    return raw


def _blobs(name: str, raw: str) -> str | None:
    if not raw:
        return None
    if not raw.startswith("s3://"):
        raise _refuse(name, "an address such as s3://bucket/prefix", raw)
    return raw.rstrip("/")


def _roles(name: str, raw: str) -> frozenset[str]:
    roles = frozenset(part.strip() for part in raw.split(",") if part.strip())
    if not roles or not roles <= set(ROLES):
        raise _refuse(name, f"a comma-separated list of {', '.join(ROLES)}", raw)
    return roles


def _base_url(name: str, raw: str) -> str | None:
    if not raw:
        return None
    try:
        parts = urlsplit(raw)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets without an address in them, a port that is no number
        usable = False
    if not usable or parts.query or parts.fragment or "@" in raw or not raw.isprintable():
        raise _refuse(name, "an address such as https://speech.example.org", raw)
    return raw.rstrip("/")


def _variable(default: str, parse: Callable[[str, str], object], meaning: str, *, shown: bool = True) -> Any:
    """A field of Config with the *default* and *meaning* of its variable. *shown* False keeps it out of repr()."""
    return field(repr=shown, metadata={"default": default, "parse": parse, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings. Each is read from the variable of the same name in capitals, with PREFIX."""

    host: str = _variable("127.0.0.1", _text, "address to listen on")
    port: int = _variable(
        "8000", _whole(0, 65_535), "port to listen on; 0 picks a free one, which the ready line names"
    )
    data_dir: Path = _variable("./data", _folder, "database, audio and outputs; created with mode 0700")
    database_url: str | None = _variable(
        "",
        _database_url,
        "PostgreSQL that several nodes share, as postgresql://user:password@host/name; needs BLOBS",
        shown=False,
    )  # None: the embedded database in data_dir
    database_notify: bool = _variable(
        "1", _switch, "0 for databases without LISTEN and NOTIFY: waiting tasks look once a second"
    )
    blobs: str | None = _variable(
        "",
        _blobs,
        "bucket for audio and outputs, as s3://bucket/prefix; needs DATABASE_URL; AWS_* variables say the rest",
    )  # None: files in data_dir
    roles: frozenset[str] = _variable(
        "api,live,worker,courier",
        _roles,
        "the work of this node: api answers requests, live runs live sessions, worker transcribes files, courier sends "
        "webhooks and deletes old data",
    )
    node: str | None = _variable(
        "",
        _optional_text,
        "name of this node in logs and in its claims on jobs; empty: the host's with a random suffix",
    )  # None: the host's name and a random suffix
    disk_reserve_mib: int = _variable(
        "1024", _whole(0, 2**30), "free disk space that uploads and downloads leave to the database and to outputs, MiB"
    )
    engine: str = _variable(
        "auto",
        _one_of("auto", "whisper", "scripted"),
        "auto, whisper or scripted; auto is whisper, and scripted a fake engine that emits a fixed script on a timer",
    )
    whisper_model: str = _variable(
        "auto",
        _text,
        "name or folder of a Whisper model, and models of single languages, as in large-v3-turbo,en=distil-large-v3; "
        "auto is the best that needs no download",
    )
    model_memory_mib: int = _variable(
        "auto",
        _whole(256, 2**30, auto=0),
        "memory of the models that are loaded, MiB; auto is half of what this process may use, on a GPU without limit",
    )  # 0: half of what this process may use
    model_idle_s: int = _variable(
        "900",
        _whole(0, 604_800),
        "seconds without use after which a model is unloaded, except those loaded at the start; 0 keeps all",
    )
    max_live_sessions: int = _variable(
        "auto",
        _whole(1, 100_000, auto=0),
        "live sessions at once in this process; auto is what scribewire doctor measured, and without that as many as "
        "the model keeps up with",
    )  # 0: what was measured
    model_aliases: tuple[str, ...] = _variable(
        "", _names, "extra model names to accept, separated by commas; the server still picks the model. * accepts any"
    )  # "*" among them: any
    profanity_file: Path | None = _variable(
        "",
        _optional_file,
        "a text file with the words that `profanity_filter` stars, instead of the known ones; "
        "`word*` is all that begin so, `*word` all that end so; # begins a comment",
    )
    phone_region: str | None = _variable(
        "",
        _region,
        "region of telephone numbers if a request names none: two letters, such as US",
    )
    latency: str = _variable(
        "balanced",
        _one_of("low", "balanced", "accurate"),
        "low, balanced or accurate: how soon live words are final, if a session says nothing",
    )
    device: str = _variable("auto", _one_of("auto", "cpu", "cuda"), "auto, cpu or cuda: where the model runs")
    compute_type: str = _variable("auto", _text, "CTranslate2 number type: int8, int8_float16, float16, float32")
    model_threads: int = _variable(
        "auto", _whole(1, 512, auto=0), "threads of one model call; auto goes by the size of the model"
    )  # 0: as many as the model can use
    gpu_batch: int = _variable(
        "auto",
        _whole(1, 512, auto=0),
        "windows of sessions and files that share a call on a GPU; auto is 24, and a large GPU may take more at once",
    )  # 0: the engine chooses
    model_download_s: int = _variable(
        "900", _whole(1, 86_400), "longest wait for the download of a named model, seconds"
    )
    workers: int = _variable(
        "4", _whole(0, 256), "files transcribed at the same time by this process; one account has at most half"
    )
    decoder_memory_mib: int = _variable(
        "auto",
        _whole(512, 2**30, auto=0),
        "memory of all decoders together, 128 MiB for each, MiB; auto is half of what this process may use",
    )  # 0: half of what this process may use
    public_base_url: str | None = _variable(
        "", _base_url, "address that clients use; every link is built from it"
    )  # None: http://127.0.0.1:PORT, known once the port is
    allow_insecure_http: bool = _variable("0", _switch, "1 allows plain http beyond loopback")
    sandbox_host: str | None = _variable(
        "", _optional_text, "host name that serves the sandbox, in addition to /sandbox"
    )
    max_connections: int = _variable(
        "auto",
        _whole(1, 500_000, auto=0),
        "open connections; auto is as many as the limit of open files allows, at most 10,000",
    )  # 0: as many as the descriptors suffice for
    max_connections_per_address: int = _variable(
        "auto",
        _whole(1, 500_000, auto=0),
        "of these, those of one IPv4 address or IPv6 /64; auto is half; trusted proxies have no limit",
    )  # 0: half of all
    wait_default: int = _variable("60", _whole(0, 3600), "seconds that a POST waits for its result")
    wait_max: int = _variable("300", _whole(0, 3600), "most seconds that a client may ask to wait")
    signup: str = _variable(
        "open", _one_of("open", "token", "off"), "open, token or off: who may make a key without having one"
    )
    signup_token: str | None = _variable(
        "", _optional_text, "what SIGNUP=token asks for, sent as Authorization: Bearer"
    )
    local_owner: str = _variable(
        "auto",
        _one_of("auto", "off"),
        "auto or off: whether the page works without a key for the user who runs the server, on loopback and without "
        "a proxy, while no accounts were made",
    )
    egress_allow_cidrs: tuple[Network, ...] = _variable(
        "", _networks, "private networks that URLs and webhooks may reach"
    )
    allow_http_sources: bool = _variable("0", _switch, "1 allows http in addition to https in url and webhook_url")
    trusted_proxies: tuple[Network, ...] = _variable("", _networks, "proxies whose X-Forwarded-For is believed")
    cors_origins: tuple[str, ...] = _variable(
        "*",
        _origins,
        "origins whose pages may call the API; * is any, but pages get keys only if PUBLIC_BASE_URL is public",
    )  # "*" among them: any
    limits_file: Path | None = _variable(
        "", _optional_file, "a limits.toml that replaces the built-in plans and numbers"
    )
    estimator_price_feed: Path | None = _variable(
        "", _optional_file, "price snapshot of the estimator, instead of the built-in one"
    )
    estimator_ranks_dir: Path | None = _variable(
        "", _optional_file, "folder with tiktoken rank files for the estimator"
    )
    translation_url: str | None = _variable(
        "", _base_url, "translator: a chat model's address with /v1, or LibreTranslate's; empty: into English only"
    )  # None: the models here translate into English
    translation_api: str = _variable(
        "chat", _one_of("chat", "libretranslate"), "chat (OpenAI's API: Ollama, llama.cpp, vLLM) or libretranslate"
    )
    translation_model: str | None = _variable("", _optional_text, "model of the chat API; needed with it")
    translation_key: str | None = _variable("", _optional_text, "key of the translator", shown=False)
    translation_timeout_s: int = _variable(
        "20", _whole(1, 600), "longest wait for one answer from TRANSLATION_URL, seconds"
    )
    translation_wait_s: int = _variable(
        "60", _whole(0, 3600), "longest wait for the next answer from there at the end of a job, seconds"
    )
    log_format: str = _variable("text", _one_of("text", "json"), "text or json")
    log_level: str = _variable(
        "info",
        _one_of("debug", "info", "warning", "error"),
        "debug, info, warning or error: the lowest level that is logged",
    )

    @property
    def clustered(self) -> bool:
        """Whether other nodes share the database and the bucket."""
        return self.database_url is not None

    @property
    def needs_model(self) -> bool:
        """Whether a server with these settings needs the model, for live audio or for files."""
        return "live" in self.roles or ("worker" in self.roles and self.workers > 0)

    @property
    def disk_reserve_bytes(self) -> int:
        return self.disk_reserve_mib * 1024 * 1024

    @property
    def signup_origins(self) -> tuple[str, ...]:
        """The origins whose pages may get a key. "*" does not count on a machine without a public address."""
        return self.cors_origins if _is_public(self) else tuple(one for one in self.cors_origins if one != "*")

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Config":
        """Read the settings in *env*. Raises ConfigError for the first that cannot be used, or that is none."""
        _check_names(env)
        values = {row.name.lower(): row.parse(row.name, env.get(PREFIX + row.name, row.default)) for row in VARIABLES}
        config = cls(**values)  # type: ignore[arg-type]  # each row's parser gives the type of the field of its name
        _check_public_address(config)
        _check_cluster(config)
        if config.translation_url is not None and config.translation_api == "chat" and not config.translation_model:
            raise ConfigError(f"{PREFIX}TRANSLATION_MODEL must be set when {PREFIX}TRANSLATION_URL is a chat model's")
        if config.signup == "token" and config.signup_token is None:
            raise ConfigError(f"{PREFIX}SIGNUP_TOKEN must be set when {PREFIX}SIGNUP is 'token', got ''")
        return config


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, without PREFIX, and its purpose."""

    name: str
    default: str
    parse: Callable[[str, str], object]
    meaning: str


VARIABLES = tuple(Variable(one.name.upper(), **one.metadata) for one in fields(Config))


def _check_names(env: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable with PREFIX that is no setting: most likely it is misspelled."""
    known = [row.name for row in VARIABLES]
    for name in sorted(name.removeprefix(PREFIX) for name in env if name.startswith(PREFIX)):
        if name not in known and name not in NOT_OURS:
            near = get_close_matches(name, known, n=1, cutoff=0)
            raise ConfigError(f"{PREFIX}{name} is no setting. Did you mean {PREFIX}{near[0]}?")


def _is_public(config: Config) -> bool:
    """Whether clients on other machines use this server."""
    return config.public_base_url is not None and urlsplit(config.public_base_url).hostname not in LOOPBACK


def _check_public_address(config: Config) -> None:
    """Raise ConfigError unless links for other machines are https and do not depend on a Host header."""
    if config.allow_insecure_http:
        return
    if config.public_base_url is None and config.host not in LOOPBACK:
        raise ConfigError(
            f"{PREFIX}PUBLIC_BASE_URL must be set to the https address that clients use, because {PREFIX}HOST is "
            f"{config.host!r} and not a loopback address ({PREFIX}ALLOW_INSECURE_HTTP=1 lifts this)"
        )
    public = urlsplit(config.public_base_url or "")
    if public.scheme == "http" and public.hostname not in LOOPBACK:
        raise ConfigError(
            f"{PREFIX}PUBLIC_BASE_URL must be https, got {config.public_base_url!r} "
            f"({PREFIX}ALLOW_INSECURE_HTTP=1 lifts this)"
        )


def _check_cluster(config: Config) -> None:
    """Raise ConfigError unless nodes share both the database and the bucket, or neither."""
    if (config.database_url is None) != (config.blobs is None):
        given, missing = ("DATABASE_URL", "BLOBS") if config.blobs is None else ("BLOBS", "DATABASE_URL")
        raise ConfigError(f"{PREFIX}{missing} must be set when {PREFIX}{given} is: nodes share both or neither")
    if config.database_url is None and config.roles != frozenset(ROLES):
        raise ConfigError(f"{PREFIX}ROLES can only be less than {','.join(ROLES)} when {PREFIX}DATABASE_URL is set")
