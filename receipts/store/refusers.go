package store

import (
	"context"
	"slices"
	"strings"

	"tidegate/pkg/wire"
)

// What WeChat says of a user who cannot be reached: not a follower, and no
// permission for the template.
const (
	codeNoFollower   = "43004"
	codeNoPermission = "43101"
)

// reach is the newest evidence about a user, or about a user and a template.
type reach struct{ no, yes int64 }

type person struct{ account, openID, template string }

// Refusers tells to whom of some messages it is of no use to send again: the
// newest that is known of the user is that he blocks the account, does not
// follow it, has left it, or gives no permission for the template. A delivery or
// anything that the user did since says otherwise.
func (s *SQL) Refusers(ctx context.Context, ms []*Message) (map[*Message]bool, error) {
	var openIDs []string
	for _, m := range ms {
		if m.OpenID != "" {
			openIDs = append(openIDs, m.OpenID)
		}
	}
	slices.Sort(openIDs)
	known := map[person]reach{}
	for _, piece := range s.pieces(slices.Compact(openIDs)) {
		cond, args := s.among("openid", 1, piece)
		when := "CASE WHEN settled_at > 0 THEN settled_at ELSE at END"
		if err := s.gather(ctx, known, "SELECT account, openid, template, MAX(CASE WHEN state = '"+string(wire.RefusedByUser)+"' OR errcode = "+codeNoFollower+" THEN "+when+" ELSE 0 END), "+
			"MAX(CASE WHEN errcode = "+codeNoPermission+" THEN "+when+" ELSE 0 END), MAX(CASE WHEN state = '"+string(wire.Delivered)+"' THEN "+when+" ELSE 0 END)"+
			" FROM "+s.t.messages.name+" WHERE kind = 'push' AND "+cond+" GROUP BY account, openid, template", args); err != nil {
			return nil, err
		}
		// The steps that robots report tell what the user did; those that a letter
		// carried have no state.
		cond = strings.Replace(cond, "openid", "m.openid", 1)
		if err := s.gather(ctx, known, "SELECT m.account, m.openid, '', MAX(CASE WHEN s.event = 'unsubscribe' THEN s.at ELSE 0 END), 0, MAX(CASE WHEN s.event <> 'unsubscribe' THEN s.at ELSE 0 END)"+
			" FROM "+s.t.messages.name+" m JOIN "+s.t.steps.name+" s ON s.id = m.id AND s.variant = m.variant AND s.part = m.part"+
			" WHERE m.kind = 'callback' AND s.state <> '' AND "+cond+" GROUP BY m.account, m.openid", args); err != nil {
			return nil, err
		}
	}
	out := map[*Message]bool{}
	for _, m := range ms {
		user, template := known[person{m.Account, m.OpenID, ""}], known[person{m.Account, m.OpenID, m.Template}]
		out[m] = user.no > user.yes || m.Template != "" && template.no > template.yes
	}
	return out, nil
}

// gather adds evidence: columns are account, openid, template, refusal of
// everything, refusal of the template, sign of life.
func (s *SQL) gather(ctx context.Context, known map[person]reach, text string, args []any) error {
	rows, err := s.db.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p person
		var all, one, yes int64
		if err := rows.Scan(&p.account, &p.openID, &p.template, &all, &one, &yes); err != nil {
			return err
		}
		if p.template != "" {
			r := known[p]
			known[p] = reach{max(r.no, one), max(r.yes, yes)}
		}
		p.template = ""
		r := known[p]
		known[p] = reach{max(r.no, all), max(r.yes, yes)}
	}
	return rows.Err()
}
