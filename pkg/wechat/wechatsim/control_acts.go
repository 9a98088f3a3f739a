package wechatsim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// who names an account and one of its followers; both may be left out where
// there is only one account, and where any follower will do.
type who struct {
	Account string `json:"account"`
	OpenID  string `json:"openid"`
}

// follower resolves who: the named follower, or the first one.
func (s *Sim) follower(q who) (string, error) {
	if q.OpenID != "" {
		return q.OpenID, nil
	}
	ids, err := s.Followers(q.Account, 1)
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("%w: the account has none, add some with POST /sim/v1/followers", errUnknownFollower)
	}
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// actRequest is any act; each path uses the fields that fit it.
type actRequest struct {
	who
	// Mark adds a mark, so that the verdict joins the reply; without it the
	// content goes out exactly as given.
	Mark bool   `json:"mark"`
	Text string `json:"text"`
	Type string `json:"type"`
	// MenuItem makes a text the click on a msgmenu item with this id.
	MenuItem string `json:"menu_item"`
	Key      string `json:"key"`
	URL      string `json:"url"`

	Scene string `json:"scene"`
	XML   string `json:"xml"`
}

// act resolves the follower, adds a mark to *content and delivers.
func (s *Sim) act(ctx context.Context, q actRequest, glue string, content *string, stimulus func(openid string) (Stimulus, error)) (any, error) {
	openid, err := s.follower(q.who)
	if err != nil {
		return nil, err
	}
	mark := ""
	if q.Mark && content != nil {
		mark = s.Mark()
		*content += glue + mark
	}
	stim, err := stimulus(openid)
	if err != nil {
		return nil, err
	}
	if mark != "" {
		stim.Token, stim.Wants = mark, 1
	}
	return s.Act(ctx, q.Account, stim)
}

func (s *Sim) postSay(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[actRequest](r)
	if err != nil {
		return nil, err
	}
	if q.Type != "" && q.Type != "text" {
		return s.act(ctx, q, "", nil, func(id string) (Stimulus, error) { return Media(id, q.Type) })
	}
	if q.Text == "" {
		return nil, errors.New("text: say something")
	}
	return s.act(ctx, q, " ", &q.Text, func(id string) (Stimulus, error) {
		if q.MenuItem != "" {
			return MsgMenu(id, q.MenuItem, q.Text), nil
		}
		return Text(id, q.Text), nil
	})
}

func (s *Sim) postMenu(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[actRequest](r)
	switch {
	case err != nil:
		return nil, err
	case q.URL != "":
		return s.act(ctx, q, "", nil, func(id string) (Stimulus, error) { return View(id, q.URL), nil })
	case q.Key == "":
		return nil, errors.New("key: name the menu key, or set url for a link button")
	}
	return s.act(ctx, q, "_", &q.Key, func(id string) (Stimulus, error) { return Menu(id, q.Key), nil })
}

func (s *Sim) postScan(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[actRequest](r)
	if err == nil && q.Scene == "" {
		err = errors.New("scene: name the QR code's scene")
	}
	if err != nil {
		return nil, err
	}
	return s.act(ctx, q, "_", &q.Scene, func(id string) (Stimulus, error) { return Scan(id, q.Scene), nil })
}

// postSubscribe makes a new follower when no openid is given.
func (s *Sim) postSubscribe(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[actRequest](r)
	if err != nil {
		return nil, err
	}
	if q.OpenID == "" {
		made, err := s.AddFollowers(q.Account, 1)
		if err != nil {
			return nil, err
		}
		q.OpenID = made[0]
	}
	q.Mark = q.Mark && q.Scene != ""
	return s.act(ctx, q, "_", &q.Scene, func(id string) (Stimulus, error) { return Subscribe(id, q.Scene), nil })
}

func (s *Sim) postUnsubscribe(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[actRequest](r)
	if err != nil {
		return nil, err
	}
	return s.act(ctx, q, "", nil, func(id string) (Stimulus, error) { return Unsubscribe(id), nil })
}

func (s *Sim) postLocation(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[actRequest](r)
	if err != nil {
		return nil, err
	}
	return s.act(ctx, q, "", nil, func(id string) (Stimulus, error) { return Location(id), nil })
}

// postRaw delivers any document, rightly signed: malformed ones are for tests.
func (s *Sim) postRaw(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[actRequest](r)
	if err == nil && q.XML == "" {
		err = errors.New("xml: give the whole document")
	}
	if err != nil {
		return nil, err
	}
	return s.act(ctx, q, "", nil, func(id string) (Stimulus, error) { return Stimulus{OpenID: id, Raw: q.XML}, nil })
}

type followersRequest struct {
	Account string `json:"account"`
	Count   int    `json:"count"`
}

// maxListed bounds the openids listed in one answer.
const maxListed = 10_000

func (s *Sim) postFollowers(_ context.Context, r *http.Request) (any, error) {
	q, err := read[followersRequest](r)
	if err != nil {
		return nil, err
	}
	if q.Count < 1 {
		return nil, errors.New("count: add at least one")
	}
	made, err := s.AddFollowers(q.Account, q.Count)
	if err != nil {
		return nil, err
	}
	return map[string]any{"added": len(made), "openids": made[:min(len(made), maxListed)]}, nil
}

func (s *Sim) listFollowers(_ context.Context, r *http.Request) (any, error) {
	limit := maxListed
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxListed {
			return nil, fmt.Errorf("limit %q: use 1 to %d", text, maxListed)
		}
		limit = n
	}
	ids, err := s.Followers(r.URL.Query().Get("account"), limit)
	if err != nil {
		return nil, err
	}
	return map[string]any{"openids": ids}, nil
}

type loadRequest struct {
	Account       string  `json:"account"`
	Rate          float64 `json:"rate"`
	Count         int     `json:"count"`
	For           span    `json:"for"`
	Loop          string  `json:"loop"`
	Users         int     `json:"users"`
	Mix           Mix     `json:"mix"`
	RepeatShare   float64 `json:"repeat_share"`
	RepeatAfter   span    `json:"repeat_after"`
	ParallelShare float64 `json:"parallel_share"`
	LoseAckShare  float64 `json:"lose_ack_share"`
	Text          string  `json:"text"`
	MenuKey       string  `json:"menu_key"`
	Scene         string  `json:"scene"`
	Wants         int     `json:"wants"`
}

// postLoad answers when the load is over; a caller who leaves ends it.
func (s *Sim) postLoad(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[loadRequest](r)
	if err != nil {
		return nil, err
	}
	return s.Load(ctx, LoadSpec{
		Account: q.Account, Rate: q.Rate, Count: q.Count, For: time.Duration(q.For), Loop: q.Loop, Users: q.Users,
		Mix: q.Mix, RepeatShare: q.RepeatShare, RepeatAfter: time.Duration(q.RepeatAfter),
		ParallelShare: q.ParallelShare, LoseAckShare: q.LoseAckShare,
		Text: q.Text, MenuKey: q.MenuKey, Scene: q.Scene, Wants: q.Wants,
	})
}
