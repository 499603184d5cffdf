"""Files for machines that run the server: compose, Kubernetes, systemd, and the release workflow.

What reads them is not here (no Docker, no cluster, perhaps no systemd), so the files are held
against their schemas, and against the server: its directives, its paths, its own start.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from anabranch.config.load import load
from tests.support.servers import REPOSITORY, AnabranchServer, free_port

DOCKER = REPOSITORY / "docker"
COMPOSE = DOCKER / "compose.yaml"
UNIT = DOCKER / "systemd" / "anabranch.service"
MANIFESTS = sorted((DOCKER / "kubernetes").glob("*.yaml"))
EXTRAS = sorted((DOCKER / "kubernetes" / "extras").glob("*.yaml"))
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
SCHEMAS = Path(__file__).parents[1] / "support" / "schemas"
_VARIABLE = re.compile(r"\$\{[A-Z_]+:-([^}]*)\}")


def check(document: Any, schema: str) -> None:
    """Raise unless a document follows a schema."""
    rules = json.loads((SCHEMAS / schema).read_text("utf-8"))
    kind = jsonschema.validators.validator_for(rules)
    kind(rules).validate(document)


# -- compose --------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(r"\1", COMPOSE.read_text("utf-8")))
    return found


def test_the_compose_file_follows_the_specification() -> None:
    check(compose(), "compose-spec.json")
    broken = compose()
    broken["services"]["eu"]["port"] = broken["services"]["eu"].pop("ports")
    with pytest.raises(jsonschema.ValidationError):
        check(broken, "compose-spec.json")


def test_what_services_mount_and_wait_for_is_there() -> None:
    whole = compose()
    for name, row in whole["services"].items():
        for volume in row.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), (name, source)
            else:
                assert source in whole["volumes"], (name, source)
        for each in row.get("configs", ()):
            assert each["source"] in whole["configs"], (name, each)
        for other in row.get("depends_on", {}):
            needed = set(whole["services"][other].get("profiles", ()))
            assert needed <= set(row.get("profiles", ())), (name, other)
        if "build" in row:
            assert (DOCKER / row["build"]["context"] / row["build"]["dockerfile"]).is_file()


def test_every_port_is_for_this_machine_alone_and_is_used_once() -> None:
    ports = [port for row in compose()["services"].values() for port in row.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.rpartition(":")[0] for port in ports}) == len(ports)


def test_prometheus_asks_every_region_where_it_answers() -> None:
    whole = compose()
    content = yaml.safe_load(whole["configs"]["prometheus"]["content"])
    (job,) = content["scrape_configs"]
    regions = {
        f"{name}:{row['environment']['ANABRANCH_HTTP_PORT']}": row["environment"]
        for name, row in whole["services"].items()
        if "ANABRANCH_REGION_ID" in row.get("environment", {})
    }
    assert job["static_configs"] == [{"targets": list(regions)}]
    for target, environment in regions.items():
        assert environment["ANABRANCH_HTTP_HOSTS"] == target.partition(":")[0]
    mounted = [each.split(":")[1] for each in whole["services"]["prometheus"]["volumes"]]
    for file in content["rule_files"]:
        assert f"/etc/prometheus/{file}" in mounted


def test_the_scrape_is_admitted_with_a_password_and_without() -> None:
    """What compose tells Prometheus to send is enough in both cases."""
    port = free_port()
    password = "a-long-password"
    with AnabranchServer(extra=["--http-port", str(port), "--http-hosts", "eu"]) as server:
        assert b"anabranch_server_info" in scraped(port, "")
        with server.client() as client:
            assert client.call("CONFIG", "SET", "requirepass", password) == ("+", b"OK")
        assert b"anabranch_server_info" in scraped(port, password)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            scraped(port, "")


def scraped(port: int, password: str) -> bytes:
    """The metrics, asked for as Prometheus asks."""
    proof = base64.b64encode(f"default:{password}".encode()).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics",
        headers={"Host": f"eu:{port}", "Authorization": f"Basic {proof}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: bytes = answer.read()
        return found


def test_grafana_gets_the_dashboard_and_a_source_for_it() -> None:
    whole = compose()
    (source,) = yaml.safe_load(whole["configs"]["grafana-datasource"]["content"])["datasources"]
    dashboard = json.loads((DOCKER / "observability" / "grafana-dashboard.json").read_text())
    kinds = {row["query"] for row in dashboard["templating"]["list"] if row["type"] == "datasource"}
    assert kinds == {source["type"]}
    port = whole["services"]["prometheus"]["ports"][0].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}"
    (provider,) = yaml.safe_load(whole["configs"]["grafana-dashboards"]["content"])["providers"]
    mounted = whole["services"]["grafana"]["volumes"][0].split(":")[1]
    assert mounted.startswith(provider["options"]["path"] + "/")
    home = whole["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == mounted


# -- Kubernetes -----------------------------------------------------------------------------------


def objects(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]


def container(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod's description, and that of its one container."""
    (pod,) = [
        each["spec"]["template"]["spec"] for each in objects(path) if each["kind"] == "StatefulSet"
    ]
    (only,) = pod["containers"]
    return pod, only


def variables(path: Path) -> dict[str, str]:
    return {
        row["name"]: row.get("value", "0123456789abcdef" * 2) for row in container(path)[1]["env"]
    }


def refused_by_kubernetes(each: dict[str, Any]) -> list[str]:
    """Where an object breaks the schema of its kind, of Kubernetes itself or of an operator."""
    for name in ("kubernetes.json", "operators.json"):
        rules = json.loads((SCHEMAS / name).read_text("utf-8"))
        if each["kind"] in rules["$defs"]:
            break
    rules["$ref"] = f"#/$defs/{each['kind']}"
    return [error.json_path for error in jsonschema.Draft202012Validator(rules).iter_errors(each)]


@pytest.mark.parametrize("path", [*MANIFESTS, *EXTRAS], ids=lambda path: path.stem)
def test_manifests_follow_the_schemas_of_kubernetes(path: Path) -> None:
    for each in objects(path):
        assert refused_by_kubernetes(each) == []
        each["spec"]["selectors"] = each["spec"].pop(next(iter(each["spec"])))
        assert "$.spec" in refused_by_kubernetes(each), "an unknown field is found"


def test_a_trigger_takes_text_only() -> None:
    """As the operator's schema has it: a number of YAML is refused."""
    (scaled,) = [
        each for path in EXTRAS for each in objects(path) if each["kind"] == "ScaledObject"
    ]
    scaled["spec"]["triggers"][0]["metadata"]["targetValue"] = 1000
    assert refused_by_kubernetes(scaled) == ["$.spec.triggers[0].metadata.targetValue"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_name_directives_and_ports_of_the_server(path: Path) -> None:
    loaded = load([], variables(path))
    assert loaded.notes == []
    _, only = container(path)
    ports = {row["name"]: row["containerPort"] for row in only["ports"]}
    assert ports == {
        "clients": loaded.settings.port,
        "gossip": loaded.settings.gossip_port,
        "http": loaded.settings.http_port,
    }
    for service in (each for each in objects(path) if each["kind"] == "Service"):
        for row in service["spec"]["ports"]:
            assert ports[row["targetPort"]] == row["port"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_belong_together(path: Path) -> None:
    (workload,) = [each for each in objects(path) if each["kind"] == "StatefulSet"]
    services = {
        each["metadata"]["name"]: each["spec"]
        for each in objects(path)
        if each["kind"] == "Service"
    }
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    assert all(spec["selector"] == labels for spec in services.values())
    announced = variables(path)["ANABRANCH_GOSSIP_ANNOUNCE"]
    assert announced == workload["spec"]["serviceName"]
    # Another region must reach this one before it is ready: it is ready when it has their data.
    assert services[announced]["publishNotReadyAddresses"] is True
    assert workload["spec"]["replicas"] == 1
    everybody = [name for each in MANIFESTS for name in _names(each)]
    for address in variables(path).get("ANABRANCH_JOIN", "").split():
        assert address.partition(":")[0] in everybody


def _names(path: Path) -> list[str]:
    return [each["metadata"]["name"] for each in objects(path) if each["kind"] == "Service"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_give_no_rights_that_the_server_does_not_need(path: Path) -> None:
    pod, only = container(path)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 999
    assert pod["securityContext"]["fsGroup"] == 999
    assert pod["automountServiceAccountToken"] is False
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for row in only["env"]:
        if row["name"] in {"ANABRANCH_REQUIREPASS", "ANABRANCH_GOSSIP_SECRET"}:
            assert "secretKeyRef" in row["valueFrom"]


def extras() -> dict[str, dict[str, Any]]:
    """The objects beside the regions, by their kinds."""
    return {each["kind"]: each["spec"] for path in EXTRAS for each in objects(path)}


def test_what_stands_beside_the_regions_selects_them() -> None:
    found = extras()
    budget, monitor = found["PodDisruptionBudget"], found["ServiceMonitor"]
    assert budget["maxUnavailable"] == 1
    for path in MANIFESTS:
        (workload,) = [each for each in objects(path) if each["kind"] == "StatefulSet"]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert budget["selector"]["matchLabels"].items() <= labels.items()
        scraped = [
            each["metadata"]
            for each in objects(path)
            if each["kind"] == "Service"
            and monitor["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
            and monitor["endpoints"][0]["port"] in [row["name"] for row in each["spec"]["ports"]]
        ]
        (service,) = scraped
        assert service["name"] == variables(path)["ANABRANCH_HTTP_HOSTS"], "its Host is admitted"
        job = service["labels"][monitor["jobLabel"]]
        assert job == "anabranch", "as the alert rules name it"


def test_workers_are_scaled_by_what_the_server_answers() -> None:
    """The user of docker/README.md reads the lag at the place that the scaler is told."""
    pytest.importorskip("starlette", reason="the extra web is not installed")
    found = extras()
    (trigger,) = found["ScaledObject"]["triggers"]
    given = {row["parameter"] for row in found["TriggerAuthentication"]["secretTargetRef"]}
    assert given == {"username", "password"}
    scaler = trigger["metadata"]
    address = re.fullmatch(r"http://([\w-]+):(\d+)(/.*)", scaler["url"])
    assert address is not None
    services = {
        each["metadata"]["name"]: [row["port"] for row in each["spec"]["ports"]]
        for path in MANIFESTS
        for each in objects(path)
        if each["kind"] == "Service"
    }
    assert int(address[2]) in services[address[1]]
    place = re.fullmatch(r'streams\.#\(key=="(\w+)"\)\.lag', scaler["valueLocation"])
    assert place is not None
    port = free_port()
    with AnabranchServer(extra=["--http-port", str(port)]) as server, server.client() as client:
        for words in (
            ("XADD", place[1], "*", "f", "v"),
            ("XADD", place[1] + "-more", "*", "f", "v"),
            ("XGROUP", "CREATE", place[1], "g", "0"),
            ("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+info", "+xinfo|stream"),
        ):
            client.call(*words)
        request = urllib.request.Request(f"http://127.0.0.1:{port}{address[3]}")
        login = base64.b64encode(b"reader:pw").decode()
        request.add_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request) as answer:
            streams = json.load(answer)["streams"]
    assert [row["lag"] for row in streams if row["key"] == place[1]] == [1]


def test_probes_ask_for_paths_that_the_server_answers() -> None:
    paths = {
        row["httpGet"]["path"]
        for path in MANIFESTS
        for name, row in container(path)[1].items()
        if name.endswith("Probe")
    }
    assert paths == {"/healthz", "/readyz"}
    port = free_port()
    with AnabranchServer(extra=["--http-port", str(port)]):
        for each in paths:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{each}", timeout=60) as answer:
                assert answer.status == 200
                assert answer.read().strip() == b"ok"


# -- systemd --------------------------------------------------------------------------------------


def unit_lines() -> list[tuple[str, str]]:
    found = []
    for line in UNIT.read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.append((name, value))
    return found


def test_the_unit_starts_a_server_that_says_when_it_is_ready(tmp_path: Path) -> None:
    lines = dict(unit_lines())
    program, *arguments = shlex.split(lines["ExecStart"])
    assert program == "/opt/anabranch/bin/anabranch"
    assert arguments[:2] == ["serve", "/etc/anabranch/anabranch.conf"]
    configuration = tmp_path / "anabranch.conf"
    configuration.write_text("port 6379\n")
    loaded = load([str(configuration), *arguments[2:]], {})
    assert loaded.notes == []
    assert lines["Type"] == "notify"
    assert loaded.settings.supervised == "systemd"
    assert loaded.settings.dir == f"/var/lib/{lines['StateDirectory']}" == lines["WorkingDirectory"]
    assert int(lines["TimeoutStopSec"].removesuffix("s")) > loaded.settings.shutdown_timeout
    assert int(lines["LimitNOFILE"]) > loaded.settings.maxclients


def test_systemd_understands_the_unit_and_finds_it_hard(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: THE UNIT IS NOT VERIFIED")
    copy = tmp_path / UNIT.name
    # The program is not where the unit expects it; any other complaint counts.
    copy.write_text(UNIT.read_text("utf-8").replace("/opt/anabranch/bin/anabranch", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
    version = subprocess.run(
        ["systemd-analyze", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    if int(version.stdout.split()[1]) >= 250:
        hard = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20", copy],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert hard.returncode == 0, hard.stdout[-400:]


# -- the release ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_follow_their_schema(path: Path) -> None:
    workflow = yaml.load(path.read_text("utf-8"), yaml.BaseLoader)  # "on" stays a word
    check(workflow, "github-workflows.json")
