package store

import (
	"context"
	"time"

	"tidegate/pkg/wire"
)

// Applier joins news into rows.
type Applier interface {
	Apply(ctx context.Context, news []News) (Applied, error)
}

// Reader answers questions about rows.
type Reader interface {
	Get(ctx context.Context, id string) ([]*Message, error)
	Steps(ctx context.Context, id string, variant int) ([]Step, error)
	Letter(ctx context.Context, id string, variant int) ([]byte, error)
	List(ctx context.Context, f Filter, after *Mark, limit int) ([]*Message, error)
	Each(ctx context.Context, f Filter, give func(*Message) error) error
	Count(ctx context.Context, f Filter, limit int) (int, error)
}

// Counter adds rows up.
type Counter interface {
	Tallies(ctx context.Context, from, to time.Time) ([]Tally, error)
	Failures(ctx context.Context, f Filter) ([]Failure, error)
	Parking(ctx context.Context) (waiting, foreign int64, err error)
	Repeats(ctx context.Context, q RepeatQuery) (*Repeats, error)
	HourCounts(ctx context.Context, from, to time.Time) ([]HourCount, error)
	Recount(ctx context.Context, repair bool) (*Recounted, error)
}

// Keeper does what time demands.
type Keeper interface {
	TimeOut(ctx context.Context, before time.Time) (int, error)
	Disown(ctx context.Context, before time.Time) (int, error)
	Purge(ctx context.Context, kinds []wire.Kind, before time.Time) (int, error)
	JoinLate(ctx context.Context, before time.Time) (int, error)
	MakeParts(ctx context.Context) error
	PurgeParked(ctx context.Context, before time.Time) (int, error)
}

// Resender remembers confirmed re-sends.
type Resender interface {
	StartResend(ctx context.Context, j ResendJob) (ResendJob, error)
	ResendOf(ctx context.Context, request string) (ResendJob, error)
	Resends(ctx context.Context, app string, limit int) ([]ResendJob, error)
	ClaimResend(ctx context.Context, lease time.Duration) (*ResendJob, error)
	TakeFlight(ctx context.Context, j *ResendJob, marks []ResendMark, behind *Mark) error
	EndFlight(ctx context.Context, j *ResendJob, nextAt int64) error
	DropResend(ctx context.Context, j *ResendJob) error
	FinishResend(ctx context.Context, j *ResendJob) error
	CancelResend(ctx context.Context, request string) (bool, error)
	Refusers(ctx context.Context, ms []*Message) (map[*Message]bool, error)
}

// Store is all of it; package storetest says what each part must do.
type Store interface {
	Applier
	Reader
	Counter
	Keeper
	Resender
	Ping(ctx context.Context) error
}

var _ Store = (*SQL)(nil)
