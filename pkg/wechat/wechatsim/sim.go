package wechatsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Sim is one simulated WeChat. New makes it usable in-process through Handler;
// Start or Run also listen.
type Sim struct {
	cfg      Config
	log      *zap.Logger
	clock    Clock
	client   *http.Client
	hook     func(Entry)
	journal  *Journal
	faults   faults
	marks    marker
	accounts []*account
	api      map[string]endpoint
	slots    chan struct{} // one per delivery under way

	callbacks atomic.Uint64 // numbers of callbacks, also in marks
	msgIDs    atomic.Int64
	// receiptsDue were promised by an accepted push and are not callbacks yet.
	receiptsDue atomic.Int64

	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup
	closed sync.Once

	mu      sync.Mutex
	ended   bool
	server  *http.Server
	url     string
	serving chan error
}

// Option changes what Config cannot hold.
type Option func(*Sim)

// WithClock sets business time. The default is a *ShiftClock.
func WithClock(c Clock) Option { return func(s *Sim) { s.clock = c } }

// WithTransport sets how callbacks travel, for tests without sockets.
func WithTransport(t http.RoundTripper) Option { return func(s *Sim) { s.client.Transport = t } }

// WithArrivalHook calls f with every API arrival, after it is in the journal and
// before it is answered; f may block or end a process.
func WithArrivalHook(f func(Entry)) Option { return func(s *Sim) { s.hook = f } }

// New makes a simulator; it listens and pushes nothing yet.
func New(cfg Config, log *zap.Logger, opts ...Option) (*Sim, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("wechatsim configuration: %w", err)
	}
	cfg = cfg.withDefaults()
	if cfg.Seed == 0 {
		cfg.Seed = rand.Int64N(1<<40) + 1
	}
	s := &Sim{
		cfg: cfg, log: log, clock: &ShiftClock{},
		client: &http.Client{
			Transport:     callbackTransport(cfg.Timeout),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		api:    endpoints(),
		slots:  make(chan struct{}, cfg.MaxInFlight),
		marks:  newMarker(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))),
		faults: faults{dice: rand.New(rand.NewPCG(uint64(cfg.Seed), 1))},
	}
	for _, o := range opts {
		o(s)
	}
	s.life, s.end = context.WithCancel(context.Background())
	if err := s.open(); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// open makes the accounts and reads a kept journal back into them.
func (s *Sim) open() error {
	now := s.clock.Now()
	for _, a := range s.cfg.Accounts {
		acct, err := newAccount(a, s.cfg.Limits, s.cfg.Open, s.cfg.Seed)
		if err != nil {
			return err
		}
		if _, err := acct.addFollowers(a.Followers, now); err != nil {
			return fmt.Errorf("account %s: %w", a.AppID, err)
		}
		s.accounts = append(s.accounts, acct)
	}
	// Message numbers start at the time, so that a restart does not repeat one.
	s.msgIDs.Store(4_000_000_000_000_000_000 + time.Now().UnixMicro()*8)
	journal, old, err := newJournal(s.cfg.Journal, s.clock)
	if err != nil {
		return fmt.Errorf("wechatsim: %w", err)
	}
	s.journal = journal
	for _, e := range old {
		s.restore(e)
	}
	return nil
}

func (s *Sim) account(name string) *account {
	for _, a := range s.accounts {
		if a.cfg.AppID == name || a.cfg.GhID == name {
			return a
		}
	}
	return nil
}

// find returns the named account (appid or gh_ id); the empty name is the only one.
func (s *Sim) find(name string) (*account, error) {
	if name == "" && len(s.accounts) == 1 {
		return s.accounts[0], nil
	}
	if a := s.account(name); a != nil {
		return a, nil
	}
	var known []string
	for _, a := range s.accounts {
		known = append(known, a.cfg.AppID)
	}
	return nil, fmt.Errorf("%w %q: use one of %v", errUnknownAccount, name, known)
}

var (
	errUnknownAccount  = errors.New("unknown account")
	errUnknownFollower = errors.New("unknown follower")
	errClosed          = errors.New("the simulator is closed")
	errFull            = errors.New("the journal follows as many callbacks as journal.stimuli allows: start a new simulator or raise it")
)

// Start listens on Config.Addr and serves until Close.
func (s *Sim) Start() error {
	l, err := (&net.ListenConfig{}).Listen(s.life, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("listen %s: %w", s.cfg.Addr, err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: zap.NewStdLog(s.log)}
	s.mu.Lock()
	s.server, s.url, s.serving = server, "http://"+l.Addr().String(), make(chan error, 1)
	s.mu.Unlock()
	go func() { s.serving <- server.Serve(l) }()
	return nil
}

// URL is the address of API and control surface once Start returned.
func (s *Sim) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// Run starts (unless Start was called), serves until ctx ends or the listener
// fails, and closes.
func (s *Sim) Run(ctx context.Context) error {
	if s.URL() == "" {
		if err := s.Start(); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	select {
	case <-ctx.Done():
		return s.Close()
	case err := <-s.serving:
		s.serving <- err
		return errors.Join(fmt.Errorf("serve: %w", err), s.Close())
	}
}

// Close stops deliveries and the listener and waits for both. Deliveries under
// way are abandoned and stay open in the journal. It may be called twice.
func (s *Sim) Close() error {
	var err error
	s.closed.Do(func() {
		s.mu.Lock()
		s.ended = true
		server := s.server
		s.mu.Unlock()
		s.end()
		if server != nil {
			err = server.Close()
			if end := <-s.serving; !errors.Is(end, http.ErrServerClosed) {
				s.log.Warn("the listener of the simulator had ended", zap.Error(end))
			}
		}
		s.work.Wait()
		s.client.CloseIdleConnections()
		err = errors.Join(err, ignoreClosed(s.journal.close()))
	})
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// goWork runs f as work that Close waits for; false after Close.
func (s *Sim) goWork(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.work.Go(f)
	return true
}

// Journal is the record of everything so far.
func (s *Sim) Journal() *Journal { return s.journal }

// Verdict judges the journal; see Judge.Verdict for grace.
func (s *Sim) Verdict(grace time.Duration) Verdict { return s.journal.verdict(grace) }

// SetFaults replaces the fault script; an empty one is no faults.
func (s *Sim) SetFaults(list ...Fault) error {
	list = slices.Clone(list)
	for i, f := range list {
		if f.Account == "" {
			continue
		}
		a, err := s.find(f.Account)
		if err != nil {
			return fmt.Errorf("faults[%d]: %w", i, err)
		}
		list[i].Account = a.cfg.AppID
	}
	return s.faults.set(list)
}

// Faults is the script in force with its hit counts.
func (s *Sim) Faults() []Fault { return s.faults.state() }

// Advance moves business time by d, if the clock can be moved; the default can.
func (s *Sim) Advance(d time.Duration) error {
	c, ok := s.clock.(interface{ Advance(time.Duration) })
	if !ok {
		return errors.New("the clock was set from outside: move it there")
	}
	c.Advance(d)
	s.journal.append(Entry{Kind: KindNote, What: "clock advanced by " + d.String()})
	return nil
}

// Idle waits until every callback and receipt is settled and every cause and
// announced push has its effect, or ctx ends.
func (s *Sim) Idle(ctx context.Context) error {
	for {
		seq, _ := s.journal.Len()
		left := int64(s.journal.judge.outstanding()) + s.receiptsDue.Load()
		if left == 0 {
			return nil
		}
		if err := s.journal.Wait(ctx, seq); err != nil {
			return fmt.Errorf("%d callbacks, replies, pushes or receipts are outstanding: %w", left, err)
		}
	}
}
