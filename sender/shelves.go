package sender

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/slice"
	"tidegate/sender/catalogue"
	"tidegate/sender/intake"
)

// lister reads an account's templates with the room's tokens.
type lister struct{ s *Sender }

// Templates implements catalogue.Lister. A right that the account lacks for one of
// the two lists does not hide the other.
func (l lister) Templates(ctx context.Context, account string) ([]catalogue.Template, error) {
	tok, err := l.s.tokens.Token(ctx, account)
	if err != nil {
		return nil, err
	}
	var out []catalogue.Template
	list, err := l.s.wechat.TemplateList(ctx, tok.Value)
	for _, t := range list {
		out = append(out, catalogue.Template{ID: t.ID, Kind: catalogue.KindTemplate, Title: t.Title, Keys: catalogue.KeysOf(t.Content)})
	}
	more, errMore := l.s.wechat.SubscriptionTemplateList(ctx, tok.Value)
	for _, t := range more {
		out = append(out, catalogue.Template{ID: t.ID, Kind: catalogue.KindSubscription, Title: t.Title, Keys: catalogue.KeysOf(t.Content)})
	}
	if err == nil || errMore == nil {
		return slices.Clip(out), nil
	}
	return nil, err
}

// newIntake makes the push API with what it asks: templates and limits.
func (s *Sender) newIntake(ctx context.Context, d Deps, log *zap.Logger) (*intake.Intake, error) {
	s.shelves = catalogue.New(lister{s}, d.Now, log, d.Reg)
	var counters *slice.Counters
	if d.Redis != nil {
		counters = slice.New(d.Redis)
	}
	limits, err := ratelimit.NewSLA(s.cfg.Intake.Limits, counters, d.Now, d.Reg)
	if err != nil {
		return nil, err
	}
	return intake.New(ctx, s.cfg.Intake, intake.Deps{
		DB: d.DB, Keys: d.Keys, Outbox: s.outbox, IDs: d.IDs, Topics: d.Topics, Log: log, Reg: d.Reg, Now: d.Now,
		Templates: s.shelves, Limits: limits,
	})
}
