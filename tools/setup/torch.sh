#!/usr/bin/env bash
# torch.sh VERSION: a virtual environment .venv-torch-VERSION with that CUDA build of PyTorch and
# none of NVIDIA's wheels (the simulated GPU has libraries of its own), and pytest. Quick when it is
# there.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:?which torch version?}
venv=.venv-torch-$version
if [ -e "$venv/ready" ]; then exit; fi
echo "installing torch $version (a minute or two)"
rm -rf "$venv"
python3 -m venv "$venv"
# torch names its CUDA wheels as requirements: 2 GB that are not needed here.
"$venv/bin/pip" install -q --disable-pip-version-check --no-deps "torch==$version.*"
"$venv/bin/pip" install -q --disable-pip-version-check \
  filelock typing_extensions sympy networkx jinja2 fsspec numpy pytest 2> >(grep -v "^ERROR\|^torch" >&2)
touch "$venv/ready"
