package intake

import (
	"context"
	"time"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/sender/catalogue"
)

// Templates knows the templates of accounts; *catalogue.Catalogue is one.
type Templates interface {
	Find(ctx context.Context, account, kind, id string) (catalogue.Template, catalogue.Finding)
}

// What Config.Templates may say.
const (
	TemplatesCheck = "check" // a push is held against its template; what cannot be told is accepted, marked
	TemplatesMust  = "must"  // what cannot be told gets 503
	TemplatesOff   = "off"   // WeChat decides
)

// headerTemplate marks an answer to a push whose template nobody could tell about:
// WeChat decides, and its refusal is found at the message.
const headerTemplate = "Tidegate-Template"

// templatesWait bounds what the pushes of one request wait for lists together.
const templatesWait = 2 * time.Second

// fits holds a push against its template. unchecked reports that nobody can tell.
func (in *Intake) fits(ctx context.Context, r *Request) (unchecked bool, err error) {
	if in.d.Templates == nil || in.cfg.Templates == TemplatesOff || r.Kind == wire.PushCustom {
		return false, nil
	}
	t, how := in.d.Templates.Find(ctx, r.Account, r.Kind, r.TemplateID)
	switch how {
	case catalogue.Unknown:
		return false, unfit("template_id", "the account %s has no %s template %s", r.Account, r.Kind, r.TemplateID)
	case catalogue.Found:
		if w := t.Check(r.Data); w != nil {
			return false, unfit("data."+cut(w.Key), "template %s: %s", r.TemplateID, w.Why)
		}
		return false, nil
	case catalogue.Away:
	}
	in.met.unchecked.Inc()
	if in.cfg.Templates == TemplatesMust {
		return true, fault.New(fault.Unavailable, "check template", "the account's templates cannot be read").WithRetryAfter(30 * time.Second)
	}
	return true, nil
}

func unfit(field, format string, args ...any) error {
	return fault.New(fault.Invalid, field, "%w: "+format, append([]any{api.ErrUnfit}, args...)...).WithField(field)
}

// before answers a push that is refused now as it was answered when it was accepted:
// a repeat must not learn that its template has changed since.
func (in *Intake) before(ctx context.Context, p plan, refusal error) (string, error) {
	if p.req.IdempotencyKey == "" {
		return "", refusal
	}
	body, err := p.req.bodyHash()
	if err != nil {
		return "", err
	}
	k, err := in.keys.find(ctx, p.app.Name, keyHash(p).String())
	if err != nil {
		return "", err
	}
	if !k.Published || k.BodyHash != body {
		return "", refusal
	}
	in.met.repeats.Inc()
	return k.ID, nil
}
