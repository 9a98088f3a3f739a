package catalogue

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/telemetry"
)

// Kinds of templates, as pushes name them.
const (
	KindTemplate     = "template"
	KindSubscription = "subscription"
)

// Template is what is known of a template.
type Template struct {
	ID    string
	Kind  string
	Title string
	Keys  []string // that its data must have, in their order in the text
}

// Lister reads an account's templates of both kinds. Of a kind that it gives none
// of, nobody can tell: the account may lack the right to that list.
type Lister interface {
	Templates(ctx context.Context, account string) ([]Template, error)
}

// Finding is how sure an answer is.
type Finding int

// The findings.
const (
	Away    Finding = iota // nobody can tell now
	Found                  // the template is known
	Unknown                // the account has no such template
)

const (
	// oldAfter is when a list is read again; it is used meanwhile.
	oldAfter = 10 * time.Minute
	// goodFor is how long a list is used that cannot be read again.
	goodFor = 24 * time.Hour
	// restAfter is the least time between two readings for one account.
	restAfter = 30 * time.Second
	// readTimeout bounds one reading; patience is how long a push waits for it.
	readTimeout = 5 * time.Second
	patience    = time.Second
	// readers is how many accounts are read at once.
	readers = 4
)

// Catalogue is safe for concurrent use. Run does the reading: without it every
// answer is Away.
type Catalogue struct {
	lister Lister
	now    func() time.Time
	log    *zap.Logger
	read   *prometheus.CounterVec
	work   chan *shelf

	mu      sync.Mutex
	shelves map[string]*shelf // by account: callers ask for configured accounts only
}

// shelf is the list of one account.
type shelf struct {
	account string
	all     map[string]Template // by kind and id
	kinds   map[string]bool     // that it has any of
	readAt  time.Time           // of the list that is there
	triedAt time.Time
	reading chan struct{} // closed when the reading under way is over; nil: none is
}

// New makes an empty catalogue. now may be nil.
func New(l Lister, now func() time.Time, log *zap.Logger, reg prometheus.Registerer) *Catalogue {
	if now == nil {
		now = time.Now
	}
	c := &Catalogue{lister: l, now: now, log: log.Named("catalogue"), work: make(chan *shelf, 64), shelves: map[string]*shelf{},
		read: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_sender_template_lists_total", Help: "Readings of an account's templates, by result.",
		}, []string{"account", "result"})}
	telemetry.Registerer(reg).MustRegister(c.read)
	return c
}

// Name implements run.Service.
func (c *Catalogue) Name() string { return "template catalogue" }

// Run reads lists until ctx ends.
func (c *Catalogue) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for {
				select {
				case s := <-c.work:
					c.fill(ctx, s)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Wait()
	for { // nobody may wait for a reading that will not be
		select {
		case s := <-c.work:
			c.put(s, nil)
		default:
			return nil
		}
	}
}

// Find looks a template up. It waits for a first list, or for a newer one if the id
// is not in the one that is there, but not long.
func (c *Catalogue) Find(ctx context.Context, account, kind, id string) (Template, Finding) {
	asked := c.now()
	t, f, reading := c.look(account, kind, id, asked)
	if f == Found || reading == nil {
		return t, f
	}
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-reading:
	case <-wait.C:
	case <-ctx.Done():
	}
	t, f, _ = c.look(account, kind, id, asked)
	return t, f
}

// look answers from the copy and asks for another one where that would help; the
// channel is closed when that has come.
func (c *Catalogue) look(account, kind, id string, asked time.Time) (Template, Finding, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelves[account]
	if s == nil {
		s = &shelf{account: account}
		c.shelves[account] = s
	}
	now := c.now()
	if now.Sub(s.readAt) > goodFor {
		s.all, s.kinds = nil, nil
	}
	t, found := s.all[kind+" "+id]
	fresh := s.kinds[kind] && !s.readAt.Before(asked.Add(-restAfter))
	switch {
	case found && now.Sub(s.readAt) < oldAfter:
		return t, Found, nil
	case found:
		c.ask(s, now)
		return t, Found, nil
	case fresh:
		return Template{}, Unknown, nil
	}
	c.ask(s, now)
	return Template{}, Away, s.reading
}

// ask is called with mu held.
func (c *Catalogue) ask(s *shelf, now time.Time) {
	if s.reading != nil || now.Sub(s.triedAt) < restAfter {
		return
	}
	select {
	case c.work <- s:
		s.triedAt, s.reading = now, make(chan struct{})
	default: // many accounts at once: the next push asks again
	}
}

func (c *Catalogue) fill(ctx context.Context, s *shelf) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := c.lister.Templates(ctx, s.account)
	switch {
	case err != nil:
		c.read.WithLabelValues(s.account, "failed").Inc()
		c.log.Warn("templates could not be read; what is known of them stays in use", zap.String("account", s.account), zap.Error(err))
		list = nil
	case len(list) == 0:
		c.read.WithLabelValues(s.account, "empty").Inc()
	default:
		c.read.WithLabelValues(s.account, "read").Inc()
	}
	c.put(s, list)
}

// put takes a list over, if there is one, and lets those go on who wait for it.
func (c *Catalogue) put(s *shelf, list []Template) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(list) > 0 {
		s.all, s.kinds, s.readAt = make(map[string]Template, len(list)), map[string]bool{}, c.now()
		for _, t := range list {
			s.kinds[t.Kind] = true
			s.all[t.Kind+" "+t.ID] = t
		}
	}
	close(s.reading)
	s.reading = nil
}
