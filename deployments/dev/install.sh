# Debian packages that the engines and CI need. Sourced by `engines` and by .ci/run.
# shellcheck shell=bash disable=SC2154 # engines_dir, cache_dir and dev are set by lib.sh

# packages yes|no NAME...: installs what is missing when allowed and root, otherwise says what to install.
packages() {
  local install=$1 missing name
  shift
  mapfile -t missing < <(for name in "$@"; do "${name}_packages"; done | sort -u)
  # kcat is no engine: it is the client, not written by us, with which tests read what we wrote to Kafka.
  if [[ $install == yes ]] && ! have kcat; then missing+=(kcat); fi
  ((${#missing[@]})) || return 0
  if [[ $install == no ]]; then
    die "missing: ${missing[*]}. Install with: apt-get install --no-install-recommends ${missing[*]} (root may run: engines up --install)"
  fi
  [[ $(id -u) -eq 0 ]] || die "only root can install ${missing[*]}"
  debian_install "${missing[@]}"
}

# debian_install PACKAGE...: a policy-rc.d keeps the packages from starting servers of their own on default ports.
debian_install() {
  have apt-get || die "this is no Debian system: install $* by hand"
  local policy=/usr/sbin/policy-rc.d ours=no try bad=1
  if [[ ! -e $policy ]]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  for try in 1 2 3; do
    if apt-get -q -o DPkg::Lock::Timeout=120 update >/dev/null 2>&1 &&
      DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" >"$engines_dir/apt.log" 2>&1 </dev/null; then
      bad=0
      break
    fi
    sleep "$try"
  done
  [[ $ours == no ]] || rm -f "$policy"
  ((bad == 0)) || {
    tail -n 20 "$engines_dir/apt.log" >&2 || true
    die "apt-get could not install $*"
  }
}
