package wechatsim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

type refuseRequest struct {
	who
	Refuses bool `json:"refuses"`
}

// postRefuse lets a follower block the account's messages, or accept them again.
func (s *Sim) postRefuse(_ context.Context, r *http.Request) (any, error) {
	q, err := read[refuseRequest](r)
	if err != nil {
		return nil, err
	}
	a, err := s.find(q.Account)
	if err != nil {
		return nil, err
	}
	if !a.setRefuses(q.OpenID, q.Refuses) {
		return nil, fmt.Errorf("%w %q", errUnknownFollower, q.OpenID)
	}
	return map[string]bool{"refuses": q.Refuses}, nil
}

type subscribeMsgRequest struct {
	who
	Templates []string `json:"templates"`
	Accept    bool     `json:"accept"`
}

// postSubscribeMsg is a user's answer to the subscription question: it changes
// what bizsend may send and pushes the event.
func (s *Sim) postSubscribeMsg(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[subscribeMsgRequest](r)
	if err == nil && len(q.Templates) == 0 {
		err = errors.New("templates: name at least one template")
	}
	if err != nil {
		return nil, err
	}
	a, err := s.find(q.Account)
	if err != nil {
		return nil, err
	}
	openid, err := s.follower(q.who)
	if err != nil {
		return nil, err
	}
	n := 0
	if q.Accept {
		n = 1
	}
	if !a.agree(openid, q.Templates, n) {
		return nil, fmt.Errorf("%w %q", errUnknownFollower, openid)
	}
	return s.Act(ctx, q.Account, popup(openid, q.Templates, q.Accept))
}

type callbackRequest struct {
	Account string `json:"account"`
	// URL is the new address; empty checks the present one.
	URL   string `json:"url"`
	Check bool   `json:"check"`
}

func (s *Sim) postCallback(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[callbackRequest](r)
	switch {
	case err != nil:
	case q.URL == "":
		err = s.VerifyURL(ctx, q.Account)
	default:
		err = s.SetCallbackURL(ctx, q.Account, q.URL, q.Check)
	}
	if err != nil {
		return nil, err
	}
	return map[string]bool{"checked": q.Check || q.URL == ""}, nil
}

// postExpect announces a push and returns the mark that it must carry.
func (s *Sim) postExpect(_ context.Context, r *http.Request) (any, error) {
	q, err := read[who](r)
	if err != nil {
		return nil, err
	}
	openid, err := s.follower(q)
	if err != nil {
		return nil, err
	}
	mark := s.Mark()
	if err := s.ExpectPush(q.Account, openid, mark); err != nil {
		return nil, err
	}
	return map[string]string{"mark": mark, "openid": openid}, nil
}

// journalQuery filters the journal stream.
type journalQuery struct {
	after  uint64
	limit  int
	follow bool
	keep   func(*Entry) bool
}

func parseJournalQuery(q url.Values) (journalQuery, error) {
	jq := journalQuery{limit: maxListed, follow: q.Get("follow") == "1" || q.Get("follow") == "true"}
	if text := q.Get("after"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return jq, fmt.Errorf("after %q: use an entry's seq", text)
		}
		jq.after = n
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1_000_000 {
			return jq, fmt.Errorf("limit %q: use 1 to 1000000", text)
		}
		jq.limit = n
	}
	kind, account, openid, token, what := q.Get("kind"), q.Get("account"), q.Get("openid"), q.Get("token"), q.Get("what")
	jq.keep = func(e *Entry) bool {
		return (kind == "" || string(e.Kind) == kind) && (account == "" || e.Account == account) &&
			(openid == "" || e.OpenID == openid) && (what == "" || e.What == what) &&
			(token == "" || slices.Contains(e.Tokens, token))
	}
	return jq, nil
}

// getJournal streams NDJSON, oldest first; with follow=1 it goes on as entries come.
func (s *Sim) getJournal(w http.ResponseWriter, r *http.Request) {
	q, err := parseJournalQuery(r.URL.Query())
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(encodeJSON(map[string]string{"error": err.Error()}))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	for left := q.limit; left > 0; {
		entries, next := s.journal.Read(q.after, min(left, 1000), q.keep)
		for _, e := range entries {
			if _, err := w.Write(encodeJSON(e)); err != nil {
				return
			}
		}
		moved := next > q.after
		left, q.after = left-len(entries), next
		if moved {
			continue
		}
		_ = flush.Flush()
		if !q.follow || s.journal.Wait(ctx, q.after) != nil {
			return
		}
	}
}
