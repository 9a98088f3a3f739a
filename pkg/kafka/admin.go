package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"tidegate/pkg/fault"
)

// Admin asks the cluster and creates topics. It connects at the first question
// and again after a failure. It is safe for concurrent use.
type Admin struct {
	conf *sarama.Config
	addr []string

	mu     sync.Mutex
	conn   *adminConn
	closed bool
	calls  sync.WaitGroup // questions that outlive their context
}

type adminConn struct {
	client sarama.Client
	admin  sarama.ClusterAdmin
}

// NewAdmin checks the configuration; it does not connect.
func NewAdmin(cfg Config) (*Admin, error) {
	bridge(nil)
	conf, err := cfg.base()
	if err != nil {
		return nil, err
	}
	conf.Metadata.Full = true // finding the controller needs a question that names no topic
	conf.Admin.Timeout = cfg.withDefaults().RequestTimeout
	conf.Admin.Retry.Max = 3
	return &Admin{conf: conf, addr: cfg.Brokers}, nil
}

func (a *Admin) open() (*adminConn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errClosed
	}
	if a.conn != nil && !a.conn.client.Closed() {
		return a.conn, nil
	}
	client, err := sarama.NewClient(a.addr, a.conf)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client) // asks for the controller
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	a.conn = &adminConn{client: client, admin: admin}
	return a.conn, nil
}

// ask runs a question of sarama's, none of which takes a context, beside the
// caller. When ctx ends first, the question ends by its network time-outs; Close
// waits for it. So a question may outlive its caller: whoever gets an error leaves alone
// what the question writes to.
func (a *Admin) ask(ctx context.Context, op string, question func(*adminConn) error) error {
	if err := ctx.Err(); err != nil {
		return adminFault(op, err)
	}
	answer := make(chan error, 1)
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return adminFault(op, errClosed)
	}
	a.calls.Add(1)
	a.mu.Unlock()
	go func() {
		defer a.calls.Done()
		conn, err := a.open()
		if err == nil {
			err = question(conn)
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return adminFault(op, err)
	case <-ctx.Done():
		return adminFault(op, context.Cause(ctx))
	}
}

// Ping asks the cluster for its members: an answer proves address, encryption
// and login.
func (a *Admin) Ping(ctx context.Context) error {
	return a.ask(ctx, "ping kafka", func(c *adminConn) error {
		brokers, _, err := c.admin.DescribeCluster()
		if err == nil && len(brokers) == 0 {
			err = sarama.ErrOutOfBrokers
		}
		return err
	})
}

// ClusterInfo is what the cluster tells about itself.
type ClusterInfo struct {
	Brokers    []string // "id host:port", sorted
	Controller int32
	// Version is what brokers reveal of their release: a KRaft cluster its
	// metadata.version, with the release that brought it, and each the newest
	// produce request it understands. Brokers do not tell their exact release.
	Version string
}

// Cluster describes the cluster.
func (a *Admin) Cluster(ctx context.Context) (ClusterInfo, error) {
	var out ClusterInfo
	err := a.ask(ctx, "describe kafka cluster", func(c *adminConn) error {
		brokers, controller, err := c.admin.DescribeCluster()
		if err != nil {
			return err
		}
		if len(brokers) == 0 {
			return sarama.ErrOutOfBrokers
		}
		info := ClusterInfo{Controller: controller}
		for _, b := range brokers {
			info.Brokers = append(info.Brokers, fmt.Sprintf("%d %s", b.ID(), b.Addr()))
		}
		slices.Sort(info.Brokers)
		if info.Version, err = versionOf(c.client, brokers[0].ID()); err != nil {
			return err
		}
		out = info
		return nil
	})
	if err != nil {
		return ClusterInfo{}, err
	}
	return out, nil
}

// Close waits for questions that are under way and closes the connections. It
// may be called twice.
func (a *Admin) Close() error {
	a.mu.Lock()
	conn, was := a.conn, a.closed
	a.closed, a.conn = true, nil
	a.mu.Unlock()
	if was {
		return nil
	}
	a.calls.Wait()
	if conn == nil || conn.client.Closed() {
		return nil
	}
	return fault.Wrap(fault.Unavailable, "close kafka admin", conn.admin.Close())
}
