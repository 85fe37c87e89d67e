"""Requests made from doc/openapi.json by schemathesis, sound and unsound: no server error, and every answer has a status,
a type and a body that the document names. Bounded in time; the seed is fixed, so a failure can be repeated."""
import os
import subprocess
import sys

from served import ROOT, SCRIPT_MODEL, run, serve

SECONDS = 30
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
ENCODER = os.path.join(ROOT, "test/data/hf/lfm2-encoder/model.gguf")


def document_holds():
    with serve("-m", SCRIPT_MODEL, "--also", ENCODER, "--ctx", "512", "--max-tokens", "8") as url:
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", url + "/openapi.json", "--checks", CHECKS, "--phases",
             "coverage,fuzzing", "--max-time", str(SECONDS), "--seed", "3", "--max-examples", "40",
             "--request-timeout", "20", "--continue-on-failure", "--no-color"],
            capture_output=True, text=True, timeout=3 * SECONDS, cwd=os.path.dirname(sys.prefix))
    if done.returncode != 0:
        raise AssertionError(done.stdout[-6000:] + done.stderr[-2000:])
    cases = [line for line in done.stdout.splitlines() if " generated, " in line]
    assert cases and int(cases[0].split()[0]) >= 100, done.stdout[-2000:]


run([("requests made from the OpenAPI document", document_holds)])
