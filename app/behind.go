package app

import (
	"context"
	"errors"

	"tidegate/pkg/run"
)

// behind is a room with what has to outlive it: rear is told to end when the room
// has ended, and not when the process begins to stop.
type behind struct {
	run.Service
	rear run.Service
}

// Run implements run.Service.
func (b behind) Run(ctx context.Context) error {
	rear, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	over := make(chan error, 1)
	go func() { over <- b.rear.Run(rear) }()
	err := b.Service.Run(ctx)
	end()
	return errors.Join(err, <-over)
}
