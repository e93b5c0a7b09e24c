"""Real clients of the Admin API against a real gateway: see README.md. Prints one line for each check."""

import argparse
import sys

import requests

import adc
import adc_cli
import rules
import sdk
import stand as stands
import walk
import whole
from checks import Api, Checks

MODES = {
    "embedded": {},
    "etcd": {"role_traditional": {"config_provider": "etcd"}},
}
STANDALONE = {"role_traditional": {"config_provider": "yaml"}}
CLIENTS = {"requests": walk.walk, "rules": rules.rules, "apisix-client": sdk.sdk, "adc": adc.adc}


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("only", nargs="?", default="", help="checks whose line contains this")
    args.add_argument("--adc", metavar="PROGRAM", help="drive ADC, as adc.sh builds it")
    args = args.parse_args()
    passed = failed = 0
    clients, alone = dict(CLIENTS), {"configs": whole.whole}
    if args.adc:
        clients["ADC"] = adc_cli.adc_cli(args.adc)
    runs = [(mode, deployment, clients) for mode, deployment in MODES.items()]
    runs.append(("standalone", STANDALONE, alone))
    if args.adc:
        runs.append(("standalone", STANDALONE, {"ADC": adc_cli.adc_standalone(args.adc)}))
    for mode, deployment, clients in runs:
        with stands.Stand(mode, **deployment) as stand, requests.Session() as session:
            # As many connections as ADC has requests at once.
            session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=adc.AT_ONCE))
            for client, run in clients.items():
                checks = Checks(f"{mode}: {client}", args.only)
                run(checks, Api(checks, session, stand.admin, stands.ADMIN_KEY), stand)
                passed, failed = passed + checks.passed, failed + checks.failed
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
