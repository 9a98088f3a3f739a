package sqldb

import (
	"crypto/tls"
	"net"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"tidegate/pkg/fault"
)

// secure refuses a server on another machine that anybody could listen to or
// pretend to be (S82). sslmode=prefer, which is libpq's default, and allow fall
// back to plain text, and require believes every certificate.
func secure(pc *pgx.ConnConfig) error {
	var plain, unchecked bool
	remote := !onThisMachine(pc.Host)
	note := func(host string, t *tls.Config) {
		if onThisMachine(host) {
			return
		}
		remote = true
		plain = plain || t == nil
		// verify-ca switches Go's own check off and brings one of its own.
		unchecked = unchecked || t != nil && t.InsecureSkipVerify && t.VerifyPeerCertificate == nil && t.VerifyConnection == nil
	}
	note(pc.Host, pc.TLSConfig)
	for _, f := range pc.Fallbacks {
		note(f.Host, f.TLSConfig)
	}
	open := remote && pc.Password == "" && (pc.TLSConfig == nil || len(pc.TLSConfig.Certificates) == 0)
	switch {
	case plain:
		return insecure("may be reached without encryption: use sslmode=verify-full with sslrootcert in database.dsn")
	case unchecked:
		return insecure("may be another than it says, for its certificate is not checked: use sslmode=verify-full with sslrootcert in database.dsn")
	case open:
		return insecure("is reached without a password or a client certificate: put one into database.dsn")
	}
	return nil
}

func insecure(what string) error {
	return fault.New(fault.Invalid, "check database settings",
		"a server on another machine %s, or say database.allow_insecure: true if the network is private and you accept that", what).WithField("dsn")
}

// onThisMachine knows loopback addresses and Unix sockets.
func onThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return filepath.IsAbs(host) || host == "localhost" || ip != nil && ip.IsLoopback()
}
