#!/usr/bin/env bash
# torch.sh VERSION [full|libraries]: a virtual environment .venv-torch-VERSION with that CUDA build of PyTorch
# and none of NVIDIA's wheels (the simulated GPU has libraries of its own), with Triton, transformers,
# accelerate, IPython and pytest. Quick when it is there. "full" is torch as pip installs it: the same files,
# and 2 GB of NVIDIA's wheels beside them, in .venv-torch-VERSION-full. "libraries" has DeepSpeed, peft, trl,
# bitsandbytes and Lightning (libraries.txt) over the torch of .venv-torch-VERSION, in
# .venv-torch-VERSION-libraries.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:?which torch version?}
kind=${2:-}
venv=.venv-torch-$version${kind:+-$kind}
packages=(filelock typing_extensions sympy networkx jinja2 fsspec setuptools numpy pytest pytest-xdist expecttest hypothesis)
others=(transformers psutil ipython)  # psutil: what accelerate needs beside torch
wanted="${packages[*]} ${others[*]}"
if [ "$kind" = libraries ]; then wanted=$(cat tools/setup/libraries.txt); fi
if [ "$(cat "$venv/ready" 2> /dev/null)" = "$wanted" ]; then exit; fi
if [ -n "$kind" ]; then tools/setup/torch.sh "$version"; fi
echo "installing torch $version $kind (a minute or two)"
rm -rf "$venv"
python3 -m venv "$venv"
# Compiled here: where PYTHONDONTWRITEBYTECODE is set, every import would compile all of torch again.
install() { "$venv/bin/pip" install -q --disable-pip-version-check "$@" 2> >(grep -v "^ERROR\|^torch" >&2); }
# What another environment has already is neither fetched nor unpacked again. Not what each has of its own.
link() { # link ENVIRONMENT [PATTERN...]: its packages, without those
  local site others=(! -name 'pip*' ! -name 'setuptools*' ! -name 'pkg_resources' ! -name '*distutils*')
  site=$(echo "$venv"/lib/python3*/site-packages)
  for pattern in "${@:2}"; do others+=(! -name "$pattern"); done
  find "$1"/lib/python3*/site-packages -mindepth 1 -maxdepth 1 "${others[@]}" -print0 |
    xargs -0 sh -c 'cp -alt "$0" "$@" 2> /dev/null || cp -at "$0" "$@"' "$site"
}
if [ "$kind" = full ]; then
  link ".venv-torch-$version"
  install "torch==$version.*"
elif [ "$kind" = libraries ]; then
  # Behind its own packages stand those of the other environment.
  echo "$PWD"/.venv-torch-"$version"/lib/python3*/site-packages > "$(echo "$venv"/lib/python3*/site-packages)/torch.pth"
  # DeepSpeed comes as source, which asks for torch to be built and compiles nothing; setuptools makes wheels of
  # itself from 70.1 on, and a virtual environment may have an older one.
  install "$(grep '^wheel==' tools/setup/libraries.txt)"
  DS_BUILD_OPS=0 install --no-deps --no-build-isolation -r tools/setup/libraries.txt
else
  for other in .venv-torch-[0-9].[0-9][0-9]; do
    [ "$(cat "$other/ready" 2> /dev/null)" != "$wanted" ] || { link "$other" 'torch*' 'functorch*' 'triton*' && break; }
  done
  # torch names its CUDA wheels as requirements, and accelerate names torch. Triton is needed.
  install --no-deps "torch==$version.*" accelerate
  triton=$("$venv/bin/python" -c "
from importlib.metadata import requires
print(next(r.split(';')[0].replace(' ', '') for r in requires('torch') if r.startswith('triton')))")
  install "$triton" "${packages[@]}" "${others[@]}"
fi
echo "$wanted" > "$venv/ready"
