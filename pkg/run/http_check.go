package run

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// What a listener's settings may be. Less than a millisecond is a number whose
// unit was forgotten, more than these nothing that a server should hold.
const (
	minHTTPTimeout    = time.Millisecond
	maxHTTPTimeout    = time.Hour
	minHTTPHeader     = 1 << 10
	maxHTTPHeader     = 1 << 20
	maxHTTPConnection = 1_000_000
)

// Validate checks what a listener needs and names the key that is wrong.
func (c HTTPConfig) Validate() error {
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return fmt.Errorf("addr %q: give host:port, for example 127.0.0.1:8080", c.Addr)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("cert_file and key_file: give both or none")
	}
	if err := c.checkNumbers(); err != nil {
		return err
	}
	_, err := c.Proxies()
	return err
}

// checkNumbers looks at what would panic or cut every request off. 0 stands for
// the default everywhere but at max_connections_per_address, where it is off.
func (c HTTPConfig) checkNumbers() error {
	d := DefaultHTTPConfig()
	for _, t := range []struct {
		key      string
		got, def time.Duration
	}{
		{"read_header_timeout", c.ReadHeaderTimeout, d.ReadHeaderTimeout},
		{"read_timeout", c.ReadTimeout, d.ReadTimeout},
		{"write_timeout", c.WriteTimeout, d.WriteTimeout},
		{"idle_timeout", c.IdleTimeout, d.IdleTimeout},
		{"drain_timeout", c.DrainTimeout, d.DrainTimeout},
	} {
		if t.got != 0 && (t.got < minHTTPTimeout || t.got > maxHTTPTimeout) {
			return fmt.Errorf("%s %s: use 1ms to 1h, or 0 for the default (%s)", t.key, t.got, t.def)
		}
	}
	switch {
	case c.MaxHeaderBytes != 0 && (c.MaxHeaderBytes < minHTTPHeader || c.MaxHeaderBytes > maxHTTPHeader):
		return fmt.Errorf("max_header_bytes %d: use %d to %d, or 0 for the default (%d)", c.MaxHeaderBytes, minHTTPHeader, maxHTTPHeader, d.MaxHeaderBytes)
	case c.MaxConnections < 0 || c.MaxConnections > maxHTTPConnection:
		return fmt.Errorf("max_connections %d: use 1 to %d, or 0 for the default (%d)", c.MaxConnections, maxHTTPConnection, d.MaxConnections)
	case c.MaxConnectionsPerAddress < 0 || c.MaxConnectionsPerAddress > maxHTTPConnection:
		return fmt.Errorf("max_connections_per_address %d: use 1 to %d, or 0 for off", c.MaxConnectionsPerAddress, maxHTTPConnection)
	}
	return nil
}

// Proxies is the set of trusted proxies. A range of every address is refused:
// with it, each client would choose the address that it is taken for.
func (c HTTPConfig) Proxies() (Addresses, error) {
	a, err := ParseAddresses(c.TrustedProxies)
	if err != nil {
		return Addresses{}, fmt.Errorf("trusted_proxies: %w", err)
	}
	if every := a.everything(); every != "" {
		return Addresses{}, fmt.Errorf("trusted_proxies: %q would believe whatever a client writes into X-Forwarded-For: list your load balancers", every)
	}
	return a, nil
}
