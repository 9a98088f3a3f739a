package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"tidegate/pkg/run"
)

// certificateSoon is how long before its end a certificate is worth a line.
const certificateSoon = 14 * 24 * time.Hour

// checkConfig tells what was read. That it can be used was settled before.
func (d *doctor) checkConfig(context.Context) []finding {
	names := make([]string, len(d.roles))
	for i, r := range d.roles {
		names[i] = string(r)
	}
	out := []finding{ok("configuration %s: accounts %s; checked for %s", nameOf(d.src), firstOf(d.cfg.names(), 4), strings.Join(names, ", "))}
	if d.cfg.Log.HashKey == "" {
		out = append(out, warn("set log.hash_key to the same random text everywhere", "log.hash_key is not set: hashes of openids in logs differ from one process to the next"))
	}
	out = append(out, d.checkEdge()...)
	return append(out, d.checkSecretFiles()...)
}

// checkSecretFiles looks at who may read the secrets (S85).
func (d *doctor) checkSecretFiles() []finding {
	readable, err := readableSecrets(d.src.File)
	if err != nil {
		return []finding{fail("", "%v", err)}
	}
	var out []finding
	for _, f := range readable {
		out = append(out, warn("chmod o= "+f, "secrets in %s: every user of this machine can read them", f))
	}
	return out
}

// checkRules reads the rules as the roles will; its errors carry file, line
// and column.
func (d *doctor) checkRules(context.Context) []finding {
	if d.cfg.Rules == "" || !d.needs(RoleProxy, RoleRobot) {
		return nil
	}
	role := RoleRobot
	if !d.needs(RoleRobot) {
		role = RoleProxy
	}
	rules, err := rulesSource{path: d.cfg.Rules}.load(d.cfg, role)
	if err != nil {
		return []finding{fail("correct the file; a running robot keeps its old rules meanwhile", "rules: %v", err)}
	}
	return []finding{ok("rules %s, version %s", d.cfg.Rules, rules.Version())}
}

// checkListeners tries every address that the roles listen on. When a process
// of this configuration runs already, its operations listener answers and the
// other addresses may be taken.
func (d *doctor) checkListeners(ctx context.Context) []finding {
	var out []finding
	seen := map[string]bool{}
	running := d.alreadyRuns(ctx)
	for _, role := range d.roles {
		for _, l := range d.cfg.listeners(role) {
			if !seen[l.key] {
				seen[l.key] = true
				out = append(out, checkAddress(ctx, l, running))
			}
		}
	}
	out = append(out, d.checkOps())
	for _, l := range []struct {
		key  string
		cfg  run.HTTPConfig
		used bool
	}{{"ops", d.cfg.Ops.HTTPConfig, true}, {"proxy.http", d.cfg.Proxy.HTTP, d.needs(RoleProxy)}, {"api", d.cfg.API, d.needs(RoleSender, RoleReceipts)}} {
		if l.used && l.cfg.CertFile != "" {
			out = append(out, d.checkCertificate(l.key, l.cfg.CertFile, l.cfg.KeyFile))
		}
	}
	return out
}

// checkOps tells who may use the operations listener. That an open one is on
// loopback or meant to be open was settled before.
func (d *doctor) checkOps() finding {
	switch n := len(d.cfg.Ops.Keys); {
	case n == 1:
		return ok("ops asks for a key; there is 1")
	case n > 1:
		return ok("ops asks for a key; there are %d", n)
	case onLoopback(d.cfg.Ops.Addr):
		return ok("ops asks for no key; only this machine reaches it")
	}
	return warn("add ops.keys ('tidegate ops-key NAME' makes one) unless everybody in that network is trusted",
		"ops %s asks for no key (allow_open): who reaches it can read memory and use /ops/v1/", d.cfg.Ops.Addr)
}

func checkAddress(ctx context.Context, l listener, running bool) finding {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", l.addr)
	if err == nil {
		_ = ln.Close()
		return ok("%s %s is free", l.key, l.addr)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && running:
		return ok("%s %s is in use, and a role of this configuration is running", l.key, l.addr)
	case errors.Is(err, syscall.EADDRINUSE):
		return fail("stop the other process, unless it is this role, or choose another port", "%s %s is used by another process", l.key, l.addr)
	case errors.Is(err, os.ErrPermission):
		return fail("choose a port from 1024 up, or allow it (systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE)", "%s %s may not be opened by this user", l.key, l.addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fail("use an address of this machine, 127.0.0.1, or 0.0.0.0 for all", "%s %s is not an address of this machine", l.key, l.addr)
	}
	return fail("correct it", "%s %s cannot be opened: %v", l.key, l.addr, err)
}

// alreadyRuns asks the operations listener whether it is one of ours. One
// with TLS is not asked: its certificate names the host that others use.
func (d *doctor) alreadyRuns(ctx context.Context) bool {
	host, port, err := net.SplitHostPort(d.cfg.Ops.Addr)
	if err != nil || port == "0" || d.cfg.Ops.CertFile != "" {
		return false
	}
	if anyAddress(host) {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return err == nil && resp.StatusCode == http.StatusOK && string(text) == "ok\n"
}

func (d *doctor) checkCertificate(key, certFile, keyFile string) finding {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fail("give a PEM certificate and its private key", "%s certificate %s: %v", key, certFile, err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fail("give a PEM certificate and its private key", "%s certificate %s: %v", key, certFile, err)
	}
	left := leaf.NotAfter.Sub(d.now())
	text := fmt.Sprintf("%s certificate %s is valid until %s", key, certFile, leaf.NotAfter.Format(time.DateOnly))
	switch {
	case left <= 0:
		return fail("renew it", "%s certificate %s ended on %s", key, certFile, leaf.NotAfter.Format(time.DateOnly))
	case left < certificateSoon:
		return warn("renew it", "%s", text)
	}
	return ok("%s", text)
}
