#!/usr/bin/env bash
# torch.sh VERSION [full|libraries]: a virtual environment .venv-torch-VERSION with that CUDA build of PyTorch
# and none of NVIDIA's wheels (the simulated GPU has libraries of its own), with Triton, transformers,
# accelerate, IPython and pytest. Quick when it is there. "full" is torch as pip installs it: the same files,
# and 2 GB of NVIDIA's wheels beside them, in .venv-torch-VERSION-full. "libraries" has DeepSpeed, peft, trl,
# bitsandbytes, Lightning and losses of others (libraries.txt) over the torch of .venv-torch-VERSION, in
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
if [ "$kind" = libraries ]; then tools/setup/torch.sh "$version"; fi
echo "installing torch $version $kind (a minute or two)"
rm -rf "$venv"
python3 -m venv "$venv"
install() { tools/setup/install.sh "$venv" "$@"; }
if [ "$kind" = full ]; then
  install "torch==$version.*" accelerate "${packages[@]}" "${others[@]}"
elif [ "$kind" = libraries ]; then
  # Behind its own packages stand those of the other environment.
  echo "$PWD"/.venv-torch-"$version"/lib/python3*/site-packages > "$(echo "$venv"/lib/python3*/site-packages)/torch.pth"
  # DeepSpeed comes as source, which asks for torch to be built and compiles nothing; setuptools makes wheels of
  # itself from 70.1 on, and a virtual environment may have an older one.
  install "$(grep '^wheel==' tools/setup/libraries.txt)"
  DS_BUILD_OPS=0 install --no-deps --no-build-isolation -r tools/setup/libraries.txt
else
  # torch names its CUDA wheels as requirements, and accelerate names torch. Triton is needed.
  install --no-deps "torch==$version.*" accelerate
  triton=$("$venv/bin/python" -c "
from importlib.metadata import requires
print(next(r.split(';')[0].replace(' ', '') for r in requires('torch') if r.startswith('triton')))")
  install "$triton" "${packages[@]}" "${others[@]}"
fi
# Compiled here: where PYTHONDONTWRITEBYTECODE is set, every import would compile all of torch again. What
# another environment compiled serves this one where the source is the same file.
"$venv/bin/python" - "$venv" .venv-torch-[0-9].[0-9][0-9] << 'END'
import compileall, os, pathlib, sys
here, *others = (next(pathlib.Path(name).glob("lib/python3*/site-packages")) for name in sys.argv[1:])
for there in others:
    for compiled in there.rglob("__pycache__/*.pyc") if there != here else ():
        source = compiled.parent.parent.relative_to(there) / (compiled.name.split(".")[0] + ".py")
        target = here / compiled.relative_to(there)
        if (here / source).exists() and (there / source).exists() and os.path.samefile(here / source, there / source):
            target.parent.mkdir(exist_ok=True)
            if not target.exists():
                os.link(compiled, target)
compileall.compile_dir(here, quiet=2, workers=0)  # templates that are no Python stay as they are
END
echo "$wanted" > "$venv/ready"
