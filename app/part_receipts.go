package app

import (
	"context"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/run"
	"tidegate/receipts"
)

func buildReceipts(ctx context.Context, e *engines) (*part, error) {
	db, err := e.DB(ctx)
	if err != nil {
		return nil, err
	}
	producer, err := e.Producer()
	if err != nil {
		return nil, err
	}
	if err := api.Migrate(ctx, db); err != nil {
		return nil, err
	}
	if err := control.Migrate(ctx, db); err != nil { // for the audit of changes by hand
		return nil, err
	}
	admin, err := e.Admin()
	if err != nil {
		return nil, err
	}
	room, err := receipts.New(ctx, e.cfg.Receipts, receipts.Deps{
		Kafka: e.cfg.Kafka, Publisher: producer, Queues: admin, DB: db, Keys: api.NewKeys(api.NewBook(db, nil)),
		Topics: e.cfg.Topics.Names(), Log: e.log.Named("receipts"), Registry: e.reg, Alarms: e.Alarms(), Hasher: e.hasher, Audit: control.NewStore(db, nil),
	})
	if err != nil {
		return nil, err
	}
	if err := room.SetAccounts(e.cfg.names()); err != nil {
		return nil, err
	}
	p := &part{
		role: RoleReceipts, services: []run.Service{room}, handler: room.Handler(), store: room.Store(), ops: room.Ops(), steer: room.Steer(),
		ready:    map[string]func(context.Context) error{"queue": admin.Ping, "database": db.Ping},
		accounts: func(c Config) error { return room.SetAccounts(c.names()) },
	}
	return p, e.withJobs(ctx, p, room.Jobs())
}
