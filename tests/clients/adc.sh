#!/usr/bin/env bash
# Builds ADC, APISIX's declarative client, from a checkout: adc.sh CHECKOUT FOLDER
# Writes FOLDER/adc.cjs. ADC itself is in no registry; what it needs is, in the versions below.
set -euo pipefail
checkout=$(realpath "$1")
mkdir -p "$2"
cd "$2"
fail() {
  echo "adc: $*" >&2
  exit 1
}
[ -f "$checkout/apps/cli/src/main.ts" ] || fail "$checkout is no checkout of ADC"
command -v npm >/dev/null || fail "npm is missing"
# Linked, so that what is imported is found beside it.
ln -sfn "$checkout/apps" apps
ln -sfn "$checkout/libs" libs
cat >package.json <<'JSON'
{
  "private": true,
  "dependencies": {
    "@scalar/openapi-parser": "0.28.8", "agentkeepalive": "^4.6.0", "axios": "1.18.1", "chalk": "^5.6.2",
    "commander": "^15.0.0", "datum-diff": "<2", "dotenv": "^17.3.1", "esbuild": "^0.28.1", "express": "^5.1.0",
    "glob": "^13.0.0", "immer": "^11.1.8", "js-yaml": "^5.2.0", "listr2": "^10.0.0", "lodash-es": "^4.18.1",
    "lru-cache": "^11.0.0", "parse-duration": "^2.1.5", "pluralize": "^8.0.0", "qs": "^6.14.1", "rxjs": "^7.8.2",
    "semver": "^7.8.5", "signale": "^1.4.0", "slugify": "^1.6.6", "source-map-support": "^0.5.21", "tslib": "^2.8.1",
    "winston": "^3.17.0", "zod": "^4.4.3"
  }
}
JSON
[ -d node_modules/esbuild ] || npm install --no-audit --no-fund --silent >npm.log 2>&1 || fail "npm cannot install what ADC needs: $(tail -n 1 npm.log)"
aliases=()
for lib in "$checkout"/libs/*/; do
  name=$(basename "$lib")
  [ ! -f "$lib/src/index.ts" ] || aliases+=("--alias:@api7/adc-$name=./libs/$name/src/index.ts")
done
npx esbuild apps/cli/src/main.ts --bundle --platform=node --format=cjs --outfile=adc.cjs --preserve-symlinks \
  --log-level=error "--alias:@api7/adc-sdk/schema=./libs/sdk/src/core/schema.ts" "${aliases[@]}"
