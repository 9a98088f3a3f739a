package redis

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mode says how the servers in Config.Addrs are organised.
type Mode string

// The three topologies.
const (
	Single   Mode = "single"   // one server
	Sentinel Mode = "sentinel" // Addrs are sentinels; they name the master
	Cluster  Mode = "cluster"  // Addrs are some nodes of a Redis Cluster
)

// Config says where Redis is and how long a call may take. Start from
// DefaultConfig; a zero Mode, Timeout, PoolSize or Prefix takes its default.
type Config struct {
	Mode   Mode     `koanf:"mode"`
	Addrs  []string `koanf:"addrs"`  // host:port
	Master string   `koanf:"master"` // sentinel: name of the watched master

	Username         string `koanf:"username"` // ACL user; empty means "default"
	Password         string `koanf:"password" secret:"true"`
	SentinelUsername string `koanf:"sentinel_username"`
	SentinelPassword string `koanf:"sentinel_password" secret:"true"`
	DB               int    `koanf:"db"` // not in a cluster
	TLS              TLS    `koanf:"tls"`
	// AllowInsecure permits servers on other machines without encryption or
	// without a login.
	AllowInsecure bool `koanf:"allow_insecure"`

	// Timeout bounds each of: dialling, waiting for a connection, writing,
	// reading. A context that ends earlier wins.
	Timeout time.Duration `koanf:"timeout"`
	// PoolSize is the number of connections per server.
	PoolSize int `koanf:"pool_size"`
	// Prefix is put before every key and channel, followed by a colon.
	Prefix string `koanf:"prefix"`
}

// TLS switches encryption on and names the files it needs (PEM).
type TLS struct {
	Enabled    bool   `koanf:"enabled"`
	CAFile     string `koanf:"ca_file"`     // empty: the system's roots
	CertFile   string `koanf:"cert_file"`   // client certificate, if the server asks for one
	KeyFile    string `koanf:"key_file"`    // its private key
	ServerName string `koanf:"server_name"` // if it differs from the host in addrs
}

// The defaults. The timeout is far below WeChat's 5 s, because a hanging Redis
// must not eat a callback's budget.
const (
	DefaultTimeout  = 200 * time.Millisecond
	DefaultPoolSize = 32
	DefaultPrefix   = "tg"
)

// DefaultConfig is one local server.
func DefaultConfig() Config {
	return Config{
		Mode: Single, Addrs: []string{"127.0.0.1:6379"},
		Timeout: DefaultTimeout, PoolSize: DefaultPoolSize, Prefix: DefaultPrefix,
	}
}

func (c Config) withDefaults() Config {
	if c.Mode == "" {
		c.Mode = Single
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.PoolSize == 0 {
		c.PoolSize = DefaultPoolSize
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	return c
}

// Validate reports everything that is wrong with the configuration, each line
// with the field and what to do. It opens no connection and no file.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := append(c.checkTopology(), c.checkRest()...)
	return errors.Join(append(errs, c.secure())...)
}

// secure refuses servers on other machines that anybody could listen to or
// write to (S82).
func (c Config) secure() error {
	if c.AllowInsecure || allLoopback(c.Addrs) {
		return nil
	}
	const way = "set it up, or say redis.allow_insecure: true if the network is private and you accept that"
	if !c.TLS.Enabled {
		return errors.New("redis.tls.enabled: servers on other machines are reached without encryption; " + way)
	}
	if c.Password == "" && c.TLS.CertFile == "" {
		return errors.New("redis.password: servers on other machines are reached without a login or a client certificate; " + way)
	}
	return nil
}

// allLoopback reports whether nothing leaves this machine.
func allLoopback(addrs []string) bool {
	return !slices.ContainsFunc(addrs, func(addr string) bool {
		host, _, err := net.SplitHostPort(addr)
		ip := net.ParseIP(host)
		return err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback())
	})
}

func (c Config) checkTopology() []error {
	var errs []error
	switch c.Mode {
	case Single:
		if len(c.Addrs) > 1 {
			errs = append(errs, fmt.Errorf("redis.addrs: mode single takes one address, got %d; set redis.mode to cluster or sentinel", len(c.Addrs)))
		}
	case Sentinel:
		if c.Master == "" {
			errs = append(errs, errors.New("redis.master: mode sentinel needs the name of the master, as in sentinel.conf"))
		}
	case Cluster:
		if c.DB != 0 {
			errs = append(errs, errors.New("redis.db: a cluster has only database 0; remove the setting and use redis.prefix"))
		}
	default:
		errs = append(errs, fmt.Errorf("redis.mode: %q is unknown; use single, sentinel or cluster", c.Mode))
	}
	if c.Mode != Sentinel && c.Master != "" {
		errs = append(errs, errors.New("redis.master: only mode sentinel has a master name; set redis.mode to sentinel or remove it"))
	}
	if len(c.Addrs) == 0 {
		errs = append(errs, errors.New("redis.addrs: give at least one host:port"))
	}
	for _, a := range c.Addrs {
		host, port, err := net.SplitHostPort(a)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			errs = append(errs, fmt.Errorf("redis.addrs: %q is not host:port", a))
		}
	}
	return errs
}

func (c Config) checkRest() []error {
	var errs []error
	if c.DB < 0 || c.DB > 1<<14 {
		errs = append(errs, fmt.Errorf("redis.db: %d is out of range; the server's default is 0 to 15", c.DB))
	}
	if c.Username != "" && c.Password == "" {
		errs = append(errs, errors.New("redis.password: an ACL user needs a password"))
	}
	if c.Timeout < time.Millisecond || c.Timeout > 5*time.Second {
		errs = append(errs, fmt.Errorf("redis.timeout: %v is outside 1ms to 5s; a callback has 5 s in all", c.Timeout))
	}
	if c.PoolSize < 1 || c.PoolSize > 10000 {
		errs = append(errs, fmt.Errorf("redis.pool_size: %d is outside 1 to 10000", c.PoolSize))
	}
	if strings.ContainsAny(c.Prefix, "{}*?[]\\ \t\r\n") || len(c.Prefix) > 64 {
		errs = append(errs, fmt.Errorf("redis.prefix: %q may hold up to 64 characters, without braces, blanks and pattern characters", c.Prefix))
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		errs = append(errs, errors.New("redis.tls: cert_file and key_file belong together; give both or none"))
	}
	if !c.TLS.Enabled && c.TLS != (TLS{}) {
		errs = append(errs, errors.New("redis.tls.enabled: files are given but TLS is off; set it to true"))
	}
	return errs
}
