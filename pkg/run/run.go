// Package run gives every long-lived part the same life: it has a name, Run
// blocks until its context ends, and whatever was opened is closed in reverse
// order under one deadline.
//
// A Stack holds the undoes, each registered with a name right after its do. A
// Group runs services together: the first that fails ends the others, and
// Wait returns only after every one of them has returned.
package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Service is a part that lives as long as its context.
type Service interface {
	Name() string
	// Run blocks until ctx ends (then it returns nil) or the part cannot go on.
	Run(ctx context.Context) error
}

// Func makes a Service of a function.
func Func(name string, fn func(context.Context) error) Service { return fn1{name, fn} }

type fn1 struct {
	name string
	fn   func(context.Context) error
}

func (f fn1) Name() string                  { return f.name }
func (f fn1) Run(ctx context.Context) error { return f.fn(ctx) }

// Group runs services until the first failure or the end of its context.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	err    error
}

// NewGroup makes a group under a context.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancel(ctx)
	return &Group{ctx: ctx, cancel: cancel}
}

// Go starts one service. A panic in it becomes an error with the stack, so
// that one part cannot take the process down without a word.
func (g *Group) Go(s Service) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		err := safely(g.ctx, s)
		// A service that gives back the end of the group has not failed. Before
		// that, "context canceled" is an error like any other.
		if err != nil && (g.ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
			g.fail(fmt.Errorf("%s: %w", s.Name(), err))
		}
	}()
}

func safely(ctx context.Context, s Service) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return s.Run(ctx)
}

func (g *Group) fail(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.mu.Unlock()
	g.cancel()
}

// Stop asks every service to end. It may be called more than once.
func (g *Group) Stop() { g.cancel() }

// Done is closed when the group is asked to end or a service has failed.
func (g *Group) Done() <-chan struct{} { return g.ctx.Done() }

// Wait returns when all services have returned, with the first failure.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Stack is a list of named undoes, run last-in-first-out.
type Stack struct {
	mu    sync.Mutex
	items []undo
}

type undo struct {
	name string
	stop func(context.Context) error
}

// Push registers the undo of something that was just done.
func (s *Stack) Push(name string, stop func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = append(s.items, undo{name, stop})
}

// Stop runs every undo, newest first, even after one failed, under one
// deadline given by ctx. A second call finds nothing left and returns nil.
func (s *Stack) Stop(ctx context.Context) error {
	s.mu.Lock()
	items := s.items
	s.items = nil
	s.mu.Unlock()
	var errs []error
	for i := len(items) - 1; i >= 0; i-- {
		if err := items[i].stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", items[i].name, err))
		}
	}
	return errors.Join(errs...)
}

// Every calls fn at once and then each d until ctx ends. It never overlaps
// calls: a slow fn delays the next.
func Every(ctx context.Context, d time.Duration, fn func(context.Context)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		fn(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
