package figures

import (
	"context"

	"tidegate/pkg/guard"
	"tidegate/pkg/redis"
)

// nodes is how many processes the guards of a cluster stand for: each has a client
// of its own.
const nodes = 3

// fleet is a cluster of guards before one system.
type fleet struct {
	guards  []*guard.Guard
	clients []*redis.Client
}

// nodes is how many guards stand before the system.
func (s *stage) nodes() int {
	if s.Alone {
		return 1
	}
	return nodes
}

// fleet opens the guards. They hear of each other with their first callers.
func (s *stage) fleet(ctx context.Context, change func(*guard.Config)) (*fleet, error) {
	cfg := guard.DefaultConfig()
	s.mu.Lock()
	cfg.Backend, cfg.Nodes = s.unique("g"), s.nodes()
	s.mu.Unlock()
	cfg.WaitMax *= 10 // nobody is to be refused
	f := &fleet{}
	for range s.nodes() {
		if err := f.add(ctx, s, cfg, change); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) add(ctx context.Context, s *stage, cfg guard.Config, change func(*guard.Config)) error {
	d := guard.Deps{Log: s.Log}
	if !s.Alone {
		where, err := s.redis()
		if err != nil {
			return err
		}
		cfg.Budget = where.Timeout
		if d.Redis, err = redis.Open(where, s.Log); err != nil {
			return err
		}
		f.clients = append(f.clients, d.Redis)
		if _, err := d.Redis.Info(ctx); err != nil {
			return err
		}
	}
	change(&cfg)
	g, err := guard.New(cfg, d)
	if err != nil {
		return err
	}
	f.guards = append(f.guards, g)
	return nil
}

// of gives the guard of a user.
func (f *fleet) of(user int) *guard.Guard { return f.guards[user%len(f.guards)] }

// protects reports whether protection is on anywhere.
func (f *fleet) protects() bool {
	for _, g := range f.guards {
		if g.View().Mode == "protect" {
			return true
		}
	}
	return false
}

func (f *fleet) close() {
	for _, g := range f.guards {
		g.Close()
	}
	for _, c := range f.clients {
		_ = c.Close() // it has nothing of ours any more
	}
}
