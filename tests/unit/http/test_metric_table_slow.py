"""Slow tests of the table of metrics with promtool; the fast ones are in `test_metric_table.py`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.unit.http.test_metric_table import ALERTS, FIRED, OPERATORS, dashboard_expressions, names_of_alerts

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def checked(*command):
    """Run promtool; return its exit status and output."""
    done = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@promtool
def test_promtool_reads_the_alerts():
    code, said = checked("check", "rules", ALERTS)
    assert code == 0, said


@promtool
def test_alerts_fire_where_they_should(tmp_path):
    """Each alert fires after its time where its condition holds, and nowhere else."""
    path = tmp_path / "fired.yml"
    path.write_text(FIRED.read_text(encoding="utf-8").replace("[ALERTS]", f"[{ALERTS}]"), encoding="utf-8")
    code, said = checked("test", "rules", path)
    assert code == 0, said


@promtool
def test_prometheus_can_parse_the_dashboard(tmp_path):
    """Each expression is valid with its variables filled in."""
    lines = ["groups:", "- name: dashboard", "  rules:"]
    for number, (text, title) in enumerate(dashboard_expressions()):
        filled = text.replace("$__rate_interval", "5m").replace("$job", "x").replace("$instance", ".*")
        assert "$" not in filled.replace("$database", ""), title
        lines += [f"  - record: dashboard:{number}", f"    expr: {json.dumps(filled.replace('$database', '.*'))}"]
    path = tmp_path / "rules.yml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, said = checked("check", "rules", path)
    assert code == 0, said


@promtool
def test_prometheus_takes_the_configuration_of_the_page(tmp_path):
    """The example configuration in the documentation is valid, with the alerts beside it."""
    page = (OPERATORS / "monitoring.md").read_text(encoding="utf-8")
    block = re.search(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)[1]
    (tmp_path / "prometheus.yml").write_text(block, encoding="utf-8")
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    code, said = checked("check", "config", tmp_path / "prometheus.yml")
    assert code == 0, said
    assert f"{len(names_of_alerts(ALERTS))} rules found" in said
