"""Checks the files of scripts/deploy/: they are valid, they belong together, and their settings are the server's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from server.config import PREFIX, Config
from server.jobs.leases import WorkerRules
from server.metrics import Metrics

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "scripts" / "deploy"
MAX_LINES = 130
STOP_S = 20 + 5  # what server/operating.md says that a stop takes, and the time until no proxy sends requests

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
DEPLOYMENTS = [one for one in OBJECTS if one["kind"] == "Deployment"]
PROXY = (DEPLOY / "Caddyfile").read_text()
IN_SECRET = {"SCRIBEWIRE_DATABASE_URL": "postgresql://user@host/name"}


def find(kind: str, name: str) -> dict[str, Any]:
    [found] = [one for one in OBJECTS if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def ours() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each process of ours that the files start, with its environment."""
    for name, service in SERVICES.items():
        if service["image"] == "scribewire-cluster":
            yield name, {key: re.sub(r"\$\{\w+:-([^}]*)}", r"\1", text) for key, text in service["environment"].items()}
    for deployment in DEPLOYMENTS:
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one.get("value", "pod-1") for one in container["env"]}
        yield deployment["metadata"]["name"], {**find("ConfigMap", "scribewire")["data"], **IN_SECRET, **env}


@pytest.mark.parametrize("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_each_file_is_short(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_every_object_is_as_kubernetes_publishes_it(one):
    kubernetes_validate.validate(one, "1.33", strict=True)


@pytest.mark.parametrize(("name", "env"), list(ours()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_settings_of_every_process_are_the_servers(name, env):
    Config.from_env(env)  # which refuses misspelled names
    config = Config.from_env({**env, f"{PREFIX}HOST": "0.0.0.0"})
    assert config.blobs, name
    assert config.database_url, name
    assert {key for key in env if not key.startswith(PREFIX)} <= {
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    }


def test_all_roles_are_played_in_both():
    for names in (SERVICES, {one["metadata"]["name"] for one in DEPLOYMENTS}):
        played = {role for name, env in ours() if name in names for role in env["SCRIBEWIRE_ROLES"].split(",")}
        assert played == {"api", "live", "worker", "courier"}


def test_every_process_has_time_for_its_stop():
    graces = [deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for deployment in DEPLOYMENTS]
    graces += [int(SERVICES[name]["stop_grace_period"].removesuffix("s")) for name in ("node-1", "node-2", "worker")]
    assert min(graces) >= max(STOP_S, WorkerRules().handback_s) * 2


def test_selectors_find_their_pods_and_scalers_their_deployments():
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in DEPLOYMENTS}
    for deployment in DEPLOYMENTS:
        assert deployment["spec"]["selector"]["matchLabels"] == labels[deployment["metadata"]["name"]]
        assert find("PodDisruptionBudget", deployment["metadata"]["name"])["spec"]["selector"]["matchLabels"] in [
            *labels.values()
        ]
        assert (
            find("HorizontalPodAutoscaler", deployment["metadata"]["name"])["spec"]["scaleTargetRef"]["name"] in labels
        )
    assert find("Service", "scribewire")["spec"]["selector"] == labels["scribewire-node"]


def test_the_metrics_that_scale_are_there():
    page = Metrics().page().decode()
    wanted = re.findall(r"name: (scribewire_\w+?)(?:_p95)?}", (DEPLOY / "kubernetes.yaml").read_text())
    assert len(wanted) == 2
    assert [name for name in wanted if f"# TYPE {name} " not in page] == []


def test_what_compose_names_is_there_and_no_image_is_the_latest():
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= SERVICES.keys()
        volumes = [volume.partition(":")[0] for volume in service.get("volumes", ())]
        assert all(name in COMPOSE["volumes"] or (DEPLOY / name).is_file() for name in volumes)
        image = service["image"]
        assert image == "scribewire-cluster" or (not image.endswith(":latest") and ":" in image)
    for condition in SERVICES["node-1"]["depends_on"]:
        assert "test" in SERVICES[condition]["healthcheck"]


def test_the_proxy_waits_for_longer_than_a_client_may_and_asks_every_node():
    [waits_s] = re.findall(r"response_header_timeout (\d+)s", PROXY)
    assert int(waits_s) > Config.from_env({}).wait_max
    assert "flush_interval -1" in PROXY
    assert not re.search(r"^\s*read_timeout", PROXY, re.MULTILINE)
    [upstreams] = re.findall(r"reverse_proxy (.*) {", PROXY)
    assert {name.partition(":")[0] for name in upstreams.split()} == {
        name for name, env in ours() if name in SERVICES and "api" in env["SCRIBEWIRE_ROLES"]
    }


def test_the_image_holds_what_its_recipe_copies():
    allowed = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {name for line in copied for name in line.split()} <= allowed


@pytest.mark.parametrize("path", sorted(ROOT.glob("requirements*.lock")), ids=lambda path: path.name)
def test_every_python_gets_the_versions_that_are_tested(path):
    """Whatever Python a machine or an image has: a second version of a package would never have run here."""
    names = re.findall(r"^([a-z0-9._-]+)==", path.read_text(), re.MULTILINE)
    assert names
    assert len(names) == len(set(names))
