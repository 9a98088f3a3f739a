package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"tidegate/pkg/fault"
)

// DefaultVersion is the oldest Kafka release whose protocol is spoken when
// Config.Version is empty. Newer brokers accept it.
const DefaultVersion = "3.6.0"

// Config says which cluster to talk to and how. The zero value of every field
// but Brokers is usable.
type Config struct {
	// Brokers are the bootstrap addresses, host:port. One that answers is enough.
	Brokers []string `koanf:"brokers"`
	// ClientID is shown in the broker's logs and quotas. Default "tidegate".
	ClientID string `koanf:"client_id"`
	// Version is the protocol version, for instance "3.6.0" (the default).
	Version string `koanf:"version"`
	SASL    SASL   `koanf:"sasl"`
	TLS     TLS    `koanf:"tls"`
	// AllowInsecure permits brokers on other machines without encryption or
	// without a login: everybody on the way could then read what users wrote.
	AllowInsecure bool `koanf:"allow_insecure"`
	// DialTimeout bounds one connection attempt. Default 2s.
	DialTimeout time.Duration `koanf:"dial_timeout"`
	// RequestTimeout bounds one request of the producer and of the admin client:
	// a broker that accepted the connection and stays silent for longer is given
	// up. Default 5s.
	RequestTimeout time.Duration `koanf:"request_timeout"`
}

// SASL is the login at the cluster; an empty Mechanism means none.
type SASL struct {
	// Mechanism is "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512".
	Mechanism string `koanf:"mechanism"`
	Username  string `koanf:"username"`
	Password  string `koanf:"password" secret:"true"`
}

// TLS is the transport encryption; at least TLS 1.2 is spoken.
type TLS struct {
	Enabled bool `koanf:"enabled"`
	// CAFile holds the PEM certificates that sign the brokers; empty means the
	// system's.
	CAFile string `koanf:"ca_file"`
	// CertFile and KeyFile are the client's own PEM pair; both or neither.
	CertFile string `koanf:"cert_file"`
	KeyFile  string `koanf:"key_file"`
	// ServerName overrides the name that the broker's certificate must carry.
	ServerName string `koanf:"server_name"`
}

// DefaultConfig talks to one broker on this machine, without login.
func DefaultConfig() Config {
	return Config{
		Brokers: []string{"127.0.0.1:9092"}, ClientID: "tidegate", Version: DefaultVersion,
		DialTimeout: 2 * time.Second, RequestTimeout: 5 * time.Second,
	}
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.ClientID == "" {
		c.ClientID = d.ClientID
	}
	if c.Version == "" {
		c.Version = d.Version
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = d.DialTimeout
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = d.RequestTimeout
	}
	return c
}

var clientIDForm = regexp.MustCompile(`\A[A-Za-z0-9._-]{1,200}\z`)

// Validate reports the first setting that cannot work, naming its field and
// what to write instead. It opens the TLS files but no connection.
func (c Config) Validate() error {
	c = c.withDefaults()
	if len(c.Brokers) == 0 {
		return invalid("brokers", "no broker is named: list at least one host:port")
	}
	for _, b := range c.Brokers {
		host, port, err := net.SplitHostPort(b)
		if err != nil || host == "" || port == "" {
			return invalid("brokers", "%q is not host:port: write for instance kafka-1:9092", b)
		}
	}
	if !clientIDForm.MatchString(c.ClientID) {
		return invalid("client_id", "%q may hold only letters, digits, '.', '_' and '-', at most 200", c.ClientID)
	}
	if _, err := parseVersion(c.Version); err != nil {
		return err
	}
	if c.DialTimeout < 0 || c.RequestTimeout < 0 {
		return invalid("dial_timeout", "dial_timeout and request_timeout must be positive, for instance 2s and 5s")
	}
	if err := c.SASL.validate(); err != nil {
		return err
	}
	if _, err := c.TLS.load(); err != nil {
		return err
	}
	return c.secure()
}

// secure refuses brokers on other machines that anybody could listen to or
// pretend to be (S82).
func (c Config) secure() error {
	if c.AllowInsecure || allLoopback(c.Brokers) {
		return nil
	}
	const way = "; set it up, or say kafka.allow_insecure: true if the network is private and you accept that"
	if !c.TLS.Enabled {
		return invalid("tls.enabled", "brokers on other machines are reached without encryption%s", way)
	}
	if c.SASL.Mechanism == "" && c.TLS.CertFile == "" {
		return invalid("sasl.mechanism", "brokers on other machines are reached without a login or a client certificate%s", way)
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

func parseVersion(s string) (sarama.KafkaVersion, error) {
	v, err := sarama.ParseKafkaVersion(s)
	if err != nil {
		return v, invalid("version", "%q is not a Kafka version: write for instance %s", s, DefaultVersion)
	}
	if !v.IsAtLeast(sarama.V2_4_0_0) {
		return v, invalid("version", "%s is too old: 2.4.0 is the oldest that works", s)
	}
	return v, nil
}

func (s SASL) validate() error {
	switch s.Mechanism {
	case "":
		if s.Username != "" || s.Password != "" {
			return invalid("sasl.mechanism", "a user is given without a mechanism: write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		}
		return nil
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	default:
		return invalid("sasl.mechanism", "%q is not supported: write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", s.Mechanism)
	}
	if s.Username == "" || s.Password == "" {
		return invalid("sasl.username", "sasl.username and sasl.password must both be set for %s", s.Mechanism)
	}
	return nil
}

// load reads the certificate files, or gives nil where TLS is off.
func (t TLS) load() (*tls.Config, error) {
	if !t.Enabled {
		if t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "" {
			return nil, invalid("tls.enabled", "TLS files are named but tls.enabled is false: set it to true or remove them")
		}
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, invalid("tls.ca_file", "cannot be read: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("tls.ca_file", "%s holds no PEM certificate", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, invalid("tls.cert_file", "tls.cert_file and tls.key_file belong together: set both or neither")
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, invalid("tls.cert_file", "the pair %s, %s cannot be used: %w", t.CertFile, t.KeyFile, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// base is the sarama configuration that producer, group and admin share.
func (c Config) base() (*sarama.Config, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	out := sarama.NewConfig()
	out.ClientID = c.ClientID
	out.Version, _ = parseVersion(c.Version)
	out.Net.DialTimeout = c.DialTimeout
	out.Net.ReadTimeout = c.RequestTimeout
	out.Net.WriteTimeout = c.RequestTimeout
	// Not every topic of a large cluster, only ours; and none by accident: a
	// topic that appears with the broker's defaults has the wrong partitions.
	out.Metadata.Full = false
	out.Metadata.AllowAutoTopicCreation = false
	// New partitions must be seen well before their records expire, and a moved
	// leader soon (libraries.md 8.12).
	out.Metadata.RefreshFrequency = 30 * time.Second
	out.Metadata.Retry.Max = 3
	out.Metadata.Retry.Backoff = 100 * time.Millisecond
	out.Metadata.Timeout = 2 * c.RequestTimeout
	if c.TLS.Enabled {
		t, err := c.TLS.load()
		if err != nil {
			return nil, err
		}
		out.Net.TLS.Enable, out.Net.TLS.Config = true, t
	}
	c.SASL.apply(out)
	if err := out.Validate(); err != nil {
		return nil, fault.New(fault.Invalid, "configure kafka", "%w", err)
	}
	return out, nil
}

func (s SASL) apply(out *sarama.Config) {
	if s.Mechanism == "" {
		return
	}
	out.Net.SASL.Enable = true
	out.Net.SASL.User, out.Net.SASL.Password = s.Username, s.Password
	out.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
	if strings.HasPrefix(s.Mechanism, "SCRAM") {
		sha512 := strings.HasSuffix(s.Mechanism, "512")
		out.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{sha512: sha512} }
	}
}

func invalid(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "configure kafka "+field, format, args...).WithField(field)
}

// errClosed is what a closed producer or admin answers.
var errClosed = errors.New("closed")
