#!/usr/bin/env bash
# Installs Debian's Chromium and its driver for the browser tests; does nothing if both are present.
set -euo pipefail
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null; then
  echo "install Chromium and ChromeDriver, so that chromium and chromedriver are on PATH" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends chromium chromium-driver fonts-dejavu-core
